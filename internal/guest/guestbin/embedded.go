//go:build !weakened

package guestbin

// read returns the agent that was embedded.
func read() ([]byte, error) { return bin.ReadFile(name) }
