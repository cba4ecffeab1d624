// Package softlimit knows how many files this process was given to open. Package
// syscall raises the soft limit as it begins, and gives the first one back to what
// it executes; who executes without it does so by this.
//
// It imports nothing, and asks the kernel itself: packages are initialized in the order of
// their paths as what they import is ready, so this one is before syscall.
package softlimit

var first, known = read()

func read() (uint64, bool) {
	var l [2]uint64
	errno := getrlimit(&l)
	return l[0], errno == 0
}

// getrlimit reads RLIMIT_NOFILE, the soft one and the hard one.
//
//go:noescape
func getrlimit(l *[2]uint64) (errno uintptr)

// Files is the soft RLIMIT_NOFILE that the process began with, and false where it
// could not be read.
func Files() (uint64, bool) { return first, known }
