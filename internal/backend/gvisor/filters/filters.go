// Package filters has the system call filters of gVisor's sentry and gofer,
// for the options of our wall, built beforehand: to build them from gVisor's
// rules takes each start of an instance longer than anything else does.
//
// gVisor has a place for programs like these, which only its own build fills.
// A program is looked up by all options that change it, has the values that a
// process alone knows put in, and is no other, instruction by instruction,
// than the one that gVisor builds: a test compares the two. Options and
// machines that there is no program for have theirs built, as before.
//
// To gVisor's rules for the sentry come those by which it holds locks on the host, and to those for the gofer
// those by which it makes files as others.
package filters

//go:generate go test -run ^TestProgramsAreGVisors$DOLLAR -update

// Register puts the programs where gVisor looks for them. It must be called
// before a filter is installed, and by one goroutine.
func Register() {
	allowLocks()
	allowOwners()
	register(sentry, gofer)
}
