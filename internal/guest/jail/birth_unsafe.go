package jail

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/softlimit"
)

// vforkSyscall is for a clone whose child goes on on the same stack. Package
// syscall's own is called from elsewhere by way of a frame, which the child
// would overwrite.
func vforkSyscall(trap, a1, a2, a3 uintptr) (r1 uintptr, errno syscall.Errno)

// birth is all that a command's first process needs between fork and exec, made
// before: the process shares the agent's memory until it executes its program.
//
// It has closed the agent's descriptors by then, which package syscall can't do.
// Close-on-exec comes too late: the kernel opens a program, the interpreter in
// its first line and the loader that it names before it takes effect, and
// /proc/self/fd would lead to what the agent has open.
type birth struct {
	file      *byte
	argv, env []*byte
	uid, gid  uintptr
	groups    []uint32
	files     [3]uintptr // above 2
	terminal  bool       // the first file becomes the controlling terminal
	traced    bool
	nofile    *unix.Rlimit // nil: the agent's
	cgroup    bool         // clone3, in place of clone

	flags uintptr
	args  cloneArgs
	pidfd int32
	errno syscall.Errno // the child's
}

// cloneArgs is the kernel's struct, up to what we use.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// newBirth wants c's files to stay open until the birth is over.
func newBirth(c Command, file string, traced bool, cgroup int) (b *birth, release func(), err error) {
	b = &birth{
		uid: uintptr(c.User.UID), gid: uintptr(c.User.GID), groups: c.User.groups(),
		terminal: c.Terminal, traced: traced, nofile: firstLimit(), pidfd: -1,
		flags: unix.CLONE_VFORK | unix.CLONE_VM | unix.CLONE_PIDFD,
	}
	if err := b.texts(file, c.Argv, c.Env); err != nil {
		return nil, nil, err
	}
	if cgroup > 0 {
		b.cgroup = true
		b.args = cloneArgs{flags: uint64(b.flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(cgroup)}
	}
	release, err = b.take(c.Files)
	return b, release, err
}

func (b *birth) texts(file string, argv, env []string) error {
	var errs [3]error
	b.file, errs[0] = syscall.BytePtrFromString(file)
	b.argv, errs[1] = syscall.SlicePtrFromStrings(argv)
	b.env, errs[2] = syscall.SlicePtrFromStrings(env)
	return errors.Join(errs[:]...)
}

// take finds the files' numbers. Where one is below 3, which the child would
// overwrite by another, it takes a duplicate, until release.
func (b *birth) take(files [3]*os.File) (release func(), err error) {
	var own []int
	release = func() {
		for _, fd := range own {
			_ = unix.Close(fd)
		}
	}
	for i, f := range files {
		// The number is used while the file is held, and Fd would make it
		// blocking.
		raw, err := f.SyscallConn()
		if err == nil {
			var dupErr error
			err = raw.Control(func(fd uintptr) {
				if b.files[i] = fd; fd > 2 {
					return
				}
				var n int
				if n, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); dupErr == nil {
					b.files[i], own = uintptr(n), append(own, n)
				}
			})
			err = errors.Join(err, dupErr)
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("pass %s: %w", f.Name(), err)
		}
	}
	return release, nil
}

// firstLimit is how many files the agent was given to open: package syscall has
// taken all that it could get.
func firstLimit() *unix.Rlimit {
	first, known := softlimit.Files()
	var now unix.Rlimit
	if !known || unix.Getrlimit(unix.RLIMIT_NOFILE, &now) != nil {
		return nil
	}
	return &unix.Rlimit{Cur: min(first, now.Cur), Max: now.Max}
}

// execute forks and has the child execute the program.
func (b *birth) execute() (pid, pidfd int, err error) {
	var pin runtime.Pinner // numbers in args are no pointers to the collector
	defer pin.Unpin()
	pin.Pin(b)
	b.args.pidfd = uint64(uintptr(unsafe.Pointer(&b.pidfd)))
	id, errno := b.fork()
	afterFork()
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, -1, errno
	}
	// The child has executed its program, or ended, before this process went on.
	if b.errno == 0 {
		return int(id), int(b.pidfd), nil
	}
	for {
		if _, err := unix.Wait4(int(id), nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	closeIfOpen(int(b.pidfd))
	return 0, -1, b.errno
}

// fork returns to the parent alone, and there at once: until the child executes,
// both have this frame. What the child runs must not grow the stack, allocate
// or be instrumented, as in bear.
//
//go:noinline
//go:norace
//go:nocheckptr
func (b *birth) fork() (pid uintptr, errno syscall.Errno) {
	beforeFork()
	if b.cgroup {
		pid, errno = vforkSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&b.args)), unsafe.Sizeof(b.args), 0)
	} else {
		pid, errno = vforkSyscall(unix.SYS_CLONE, b.flags|uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&b.pidfd)))
	}
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	afterForkInChild()
	if b.errno = b.become(); b.errno == 0 {
		_, _, b.errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(b.file)),
			uintptr(unsafe.Pointer(unsafe.SliceData(b.argv))), uintptr(unsafe.Pointer(unsafe.SliceData(b.env))))
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// become makes the child a session of the user's, with three files.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (b *birth) become() (e syscall.Errno) {
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(b.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(b.groups))), 0); e != 0 {
		return e
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, b.gid, b.gid, b.gid); e != 0 {
		return e
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, b.uid, b.uid, b.uid); e != 0 {
		return e
	}
	for i := range uintptr(3) {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, b.files[i], i, 0); e != 0 {
			return e
		}
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, math.MaxUint32, 0); e != 0 {
		return e
	}
	if b.terminal {
		if _, _, e = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1); e != 0 {
			return e
		}
	}
	if b.nofile != nil {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(b.nofile)), 0, 0, 0); e != 0 {
			return e
		}
	}
	if b.traced {
		_, _, e = syscall.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
	}
	return e
}
