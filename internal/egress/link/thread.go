package link

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// elsewhere calls f on a thread of its own, which ends with the call: what f
// does to it (join a namespace) is seen by nobody else. It is never the
// process's first thread, for that one would outlive the call.
func elsewhere(f func() error) error {
	done := make(chan error, 1)
	go thrownAway(f, done)
	return <-done
}

func thrownAway(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// While this goroutine waits, locked, no other runs on its thread.
		over := make(chan error, 1)
		go thrownAway(f, over)
		done <- <-over
		runtime.UnlockOSThread()
		return
	}
	done <- f() // never unlocked: the thread ends with the goroutine
}
