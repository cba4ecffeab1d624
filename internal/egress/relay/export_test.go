package relay

// LargeInUse counts the large buffers of streams that are in use.
func LargeInUse() int { return int(streamBuffers.used.Load()) }
