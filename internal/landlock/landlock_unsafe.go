// Package landlock speaks to the kernel's Landlock: which version there is, and a domain for
// the calling thread and what it starts. What rights a domain has, and what to do without
// Landlock, is its callers' to say; it refuses nothing by itself, and no error of it names a path.
package landlock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ABI returns the version of the kernel's interface. Where there is none the error is ENOSYS,
// and EOPNOTSUPP where it is switched off.
func ABI() (int, error) {
	n, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// Ruleset is the descriptor of a domain that is being filled.
type Ruleset int

// New makes a ruleset. Fields that an older kernel does not know have to be zero, which it
// accepts.
func New(attr unix.LandlockRulesetAttr) (Ruleset, error) {
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return -1, e
	}
	return Ruleset(fd), nil
}

// Add gives rights at and below what fd is open at.
func (r Ruleset) Add(fd int, rights uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// Enter puts the calling thread into the domain, for good. It must have no_new_privs, or the
// right to do without.
func (r Ruleset) Enter() error {
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r), 0, 0); e != 0 {
		return e
	}
	return nil
}

// Close gives the descriptor back. A domain that was entered stays.
func (r Ruleset) Close() { _ = unix.Close(int(r)) }
