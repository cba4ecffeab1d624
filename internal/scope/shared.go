package scope

import (
	"sync"
	"sync/atomic"
)

// Shared is a scope that tools ask while it changes. Load takes no lock; changes wait for
// one another.
type Shared struct {
	now atomic.Pointer[Scope]
	mu  sync.Mutex // held by who changes it
}

// NewShared holds a scope.
func NewShared(s Scope) *Shared {
	sh := new(Shared)
	sh.now.Store(&s)
	return sh
}

// Load is the scope as it is now.
func (s *Shared) Load() Scope { return *s.now.Load() }

// Update replaces the scope by what change makes of it.
func (s *Shared) Update(change func(Scope) Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := change(s.Load())
	s.now.Store(&next)
}
