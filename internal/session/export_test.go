package session

// Leave gives up a Runtime whose daemon was killed.
func (r *Runtime) Leave() { r.detachAll() }
