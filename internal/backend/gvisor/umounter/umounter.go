// Package umounter is the helper by which gVisor's sentry and gofer give up
// their /proc: this binary, executed again, which waits for a word and takes
// /proc off.
//
// Each start of an instance has two of them, and most of what one costs is the
// initialization of packages that it has no use for. So it does its work, and
// ends the process, in its own initialization, which comes early: packages are
// initialized in the order of their paths, as far as what they import has been,
// and this one imports next to nothing.
//
// It knows the one command line that gVisor's sandboxsetup.ExecProcUmounter
// has, and leaves any other to gVisor's own command, which does the same.
package umounter

import (
	"os"
	"slices"
	"syscall"
)

// commandLine is the one of the helper, its name in front.
var commandLine = []string{"/proc/self/exe", "umount", "--sync-fd=3", "/proc"}

const (
	syncFD = 3
	proc   = "/proc"
	// failed is the exit status by which gVisor's own command fails.
	failed = 128
)

func init() {
	if slices.Equal(os.Args, commandLine) {
		os.Exit(run(syncFD, proc))
	}
}

// run takes off what is mounted at target once a byte was read from fd, and
// returns an exit status. A pipe that is closed without a byte is a failure:
// the process at its other end is gone.
func run(fd int, target string) int {
	var word [1]byte
	for {
		n, err := syscall.Read(fd, word[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != 1 {
			return failed
		}
		break
	}
	if syscall.Unmount(target, syscall.MNT_DETACH) != nil {
		return failed
	}
	return 0
}
