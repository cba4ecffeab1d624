// Package hostlock has the locks that programs take on files of shared directories hold
// on the host too: against the host's programs, and against other sandboxes.
//
// gVisor keeps every lock in its own kernel, where nobody outside sees it. Here fcntl
// and flock of a file in a share do two things: the lock is taken inside, as before, which
// settles it between the sandbox's programs; and it is taken on the host, by the
// descriptor that the sentry reads and writes the file by. On the host a sandbox is one
// owner of locks: what it holds there is the sum of what its programs hold. For a file
// of which it has no descriptor, as for a directory, a lock is refused by ENOLCK.
//
// What it does not do is find a deadlock between a sandbox and others, and it lets no
// kernel be written down while a lock is held outside: that would be another's
// before it goes on.
package hostlock

import (
	"strconv"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Shares knows the directories that others see as well.
type Shares struct {
	conns map[int]bool // descriptors of the connections to the gofer that serve them
	known sync.Map     // of *vfs.Filesystem: whether it is one
}

// New returns those that are served by the connections with these descriptors.
func New(conns []int) *Shares {
	s := &Shares{conns: make(map[int]bool)}
	for _, c := range conns {
		s.conns[c] = true
	}
	return s
}

// has reports whether file lies in a share, and is what can be locked there.
func (s *Shares) has(file *vfs.FileDescription) bool {
	fs := file.Mount().Filesystem()
	shared, ok := s.known.Load(fs)
	if !ok {
		shared = s.conns[connection(fs)]
		s.known.Store(fs, shared)
	}
	return shared.(bool) && lockable(file)
}

// connection is the descriptor by which a file system is served; -1: by none.
func connection(fs *vfs.Filesystem) int {
	const option = "rfdno="
	for o := range strings.SplitSeq(fs.Impl().MountOptions(), ",") {
		if v, ok := strings.CutPrefix(o, option); ok {
			if fd, err := strconv.Atoi(v); err == nil {
				return fd
			}
		}
	}
	return -1
}

// Fcntl wraps fcntl: what it does with locks of files in shares is done here.
func (s *Shares) Fcntl(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		var act func(*kernel.Task, *vfs.FileDescription, arch.SyscallArguments) error
		switch args[1].Int() {
		case linux.F_SETLK, linux.F_SETLKW, linux.F_OFD_SETLK, linux.F_OFD_SETLKW:
			act = setRange
		case linux.F_GETLK, linux.F_OFD_GETLK:
			act = func(t *kernel.Task, file *vfs.FileDescription, args arch.SyscallArguments) error {
				return testRange(t, file, args, func() error {
					_, _, err := fn(t, sysno, args)
					return err
				})
			}
		default:
			return fn(t, sysno, args)
		}
		file := t.GetFile(args[0].Int())
		if file == nil {
			return fn(t, sysno, args)
		}
		defer file.DecRef(t)
		if !s.has(file) {
			return fn(t, sysno, args)
		}
		return 0, nil, act(t, file, args)
	}
}

// Flock wraps flock likewise.
func (s *Shares) Flock(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		file := t.GetFile(args[0].Int())
		if file == nil {
			return fn(t, sysno, args)
		}
		defer file.DecRef(t)
		op := args[1].Int()
		if !s.has(file) {
			return fn(t, sysno, args)
		}
		n := enter(file)
		defer n.leave()
		var typ fslock.LockType
		switch op &^ linux.LOCK_NB {
		case linux.LOCK_EX:
			typ = fslock.WriteLock
		case linux.LOCK_SH:
			typ = fslock.ReadLock
		case linux.LOCK_UN:
			return 0, nil, n.unlockWhole(t, file)
		default:
			return fn(t, sysno, args) // which says what is wrong
		}
		return 0, nil, n.wait(t, op&linux.LOCK_NB == 0, func() error {
			return n.lockWhole(t, file, typ)
		})
	}
}
