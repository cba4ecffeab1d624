//go:build race

package role

// environment spares each role of a test the second that a race detector waits at its end.
var environment = []string{"GORACE=atexit_sleep_ms=0"}
