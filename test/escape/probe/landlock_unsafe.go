package main

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// mostLayers is how many Landlock domains a kernel stacks.
const mostLayers = 16

// landlock counts the domains that a thread is in: it stacks its own until
// the kernel has enough.
func landlock(t *trial) {
	abi, err := raw(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		t.note("this kernel has none: %v", err)
		return
	case err != nil:
		// The calls are refused. What a domain closes, and rights don't, is
		// the directory that covers the agent's.
		if _, err := os.ReadDir(facts.Control); err == nil {
			t.find("%s can be listed, which a domain would refuse", facts.Control)
		}
		t.note("asked by effect")
		return
	}
	done := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the domains die with the thread
		done <- stack()
	}()
	switch n := <-done; {
	case n < 0:
		t.note("a domain of one's own can't be made")
	case n >= mostLayers:
		t.find("commands are in no domain: %d could be stacked", n)
	default:
		t.note("in %d, ABI %d", mostLayers-n, abi)
	}
}

// stack adds domains that forbid next to nothing, and returns how many went
// in; -1 where something else than their number stopped it.
func stack() int {
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
		return -1
	}
	handled := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK) // the first field of a ruleset
	fd, err := raw(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), unsafe.Sizeof(handled), 0)
	if err != nil {
		return -1
	}
	defer unix.Close(int(fd))
	for n := range mostLayers {
		_, err := raw(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0)
		switch {
		case errors.Is(err, unix.E2BIG):
			return n
		case err != nil:
			return -1
		}
	}
	return mostLayers
}
