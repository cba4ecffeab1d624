package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// step is a mount that init makes, in the words of mount(2).
type step struct {
	source, target, fstype, data string
	flags                        uintptr

	what   string // for errors and warnings
	soft   bool   // a failure is no more than a warning
	also   bool   // leave it out where the step before has failed
	detach bool   // unmount target instead
}

// steps are the mounts of commands.
func (cfg Config) steps() []step {
	steps := []step{{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE, what: "make mounts private"}}
	if cfg.PIDNamespace && !weak.On(weak.ProcKept) {
		steps = append(steps, step{
			source: "proc", target: "/proc", fstype: "proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
			what: "mount /proc",
		})
		if !weak.On(weak.ProcSysWritable) {
			steps = append(steps, protectProc()...)
		}
	}
	for _, p := range cfg.Places { // they may lie in what is hidden next
		show := readOnlyAt(p.Source, p.Target, "show "+p.Target)
		if weak.On(weak.LimitsWritable) {
			show = show[:1]
		}
		steps = append(steps, show...)
	}
	for _, path := range cfg.Unmount {
		steps = append(steps, step{target: path, detach: true, soft: true, what: "unmount " + path})
	}
	return append(steps, cfg.hideSteps()...)
}

// hideSteps cover what commands must not see.
func (cfg Config) hideSteps() (steps []step) {
	for _, path := range cfg.hidden() {
		if cfg.Strict {
			// What is covered is still listed, with its path on the host.
			steps = append(steps, step{target: path, detach: true, soft: true, what: "unmount " + path})
		}
		steps = append(steps, hide(path))
	}
	return steps
}

// readOnlyAt shows a file or directory in a place, if both are there.
func readOnlyAt(source, target, what string) []step {
	return []step{
		{source: source, target: target, flags: unix.MS_BIND | unix.MS_REC, what: what, soft: true},
		{
			target: target, what: what, soft: true, also: true,
			flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
		},
	}
}

// hidden is what commands must not see.
func (cfg Config) hidden() []string {
	if weak.On(weak.ControlShown) {
		return nil
	}
	return cfg.Hide
}

// hide covers a directory by an empty one that nobody can write. It is not
// just unmounted: a wall may show the same directory below its mount point as
// well, as gVisor's file server does, and would uncover it.
func hide(path string) step {
	return step{
		source: "none", target: path, fstype: "tmpfs", data: "size=4k,mode=0555",
		flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, what: "hide " + path,
	}
}

// protectProc makes read-only what root could otherwise use to reach the
// kernel through a fresh /proc. A kernel that serves no such file, or can't
// mount over it, is no obstacle: where it matters, a wall does not let root
// in.
func protectProc() (steps []step) {
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "kcore", "keys", "timer_list"} {
		path := filepath.Join("/proc", name)
		steps = append(steps, readOnlyAt(path, path, "make "+path+" read-only")...)
	}
	return steps
}

// infant is all that init needs, made before it is born: it can't allocate.
type infant struct {
	flags   uintptr // clone's
	steps   []rawStep
	results []int32 // errno of each step; skipped is -1
	report  uintptr // pipe
	null    uintptr // /dev/null
	name    *byte
	ignore  sigaction
	keep    layout
	rest    *rest
}

type rawStep struct {
	source, target, fstype, data *byte
	flags                        uintptr
	soft, also, detach           bool
}

// sigaction is the kernel's struct, on the architectures that we build for.
type sigaction struct{ handler, flags, restorer, mask uint64 }

// skipped stands for a step that was left out.
const skipped = -1

func newInfant(cfg Config, steps []step, report, null *os.File) (*infant, error) {
	n := &infant{
		flags:   uintptr(unix.SIGCHLD) | unix.CLONE_NEWNS | unix.CLONE_PIDFD,
		results: make([]int32, len(steps)),
		report:  report.Fd(), null: null.Fd(),
		ignore: sigaction{handler: 1}, // SIG_IGN
	}
	if !weak.On(weak.IPCShared) {
		n.flags |= unix.CLONE_NEWIPC
	}
	if cfg.PIDNamespace {
		n.flags |= unix.CLONE_NEWPID
	}
	var err error
	text := func(s string) *byte {
		p, e := unix.BytePtrFromString(s)
		err = errors.Join(err, e)
		return p
	}
	n.name = text(InitName)
	for _, s := range steps {
		n.steps = append(n.steps, rawStep{
			source: text(s.source), target: text(s.target), fstype: text(s.fstype), data: text(s.data),
			flags: s.flags, soft: s.soft, also: s.also, detach: s.detach,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("prepare inner init: %w", err)
	}
	if n.keep, err = readLayout(); err != nil {
		return nil, err
	}
	if n.rest, err = newRest(n.keep, n.report); err != nil {
		return nil, err
	}
	n.keep.rest = n.rest.address()
	return n, nil
}

// born gives up what only the child needed.
func (n *infant) born() { n.rest.close() }

// bear forks. The child never returns; it is a copy of the agent that gives
// back all the agent's memory and descriptors, and runs but system calls from
// then on. To execute a program instead would cost more
// than all the rest of a jail.
//
// What the child runs must not grow the stack, allocate or be instrumented;
// package unix's calls go through wrappers that look for the goroutine, which
// is forgotten as well.
//
//go:noinline
//go:norace
//go:nocheckptr
func (n *infant) bear() (pid, pidfd int, err error) {
	fd := int32(-1)
	var here byte
	beforeFork()
	id, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, n.flags, 0, uintptr(unsafe.Pointer(&fd)), 0, 0, 0)
	if errno != 0 || id != 0 {
		afterFork()
		if errno != 0 {
			return 0, -1, errno
		}
		return int(id), int(fd), nil
	}
	afterForkInChild()
	n.arrange()
	if n.detach() {
		report, results, size := n.report, unsafe.Pointer(unsafe.SliceData(n.results)), uintptr(len(n.results))*4
		foreign, rest := n.keep.foreign, n.rest.call
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, report, uintptr(results), size)
		n.keep.rename(n.name)
		n.keep.forget(uintptr(unsafe.Pointer(&here)))
		// There is no data any more from here on but this function's own.
		if !foreign {
			rest()
		}
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, report, 0, 0)
		for {
			_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// arrange makes the mounts, up to the first failure that is not soft.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (n *infant) arrange() {
	failed := false
	for i := range n.steps {
		s := &n.steps[i]
		if s.also && failed {
			n.results[i] = skipped
			continue
		}
		var e syscall.Errno
		if s.detach {
			_, _, e = syscall.RawSyscall(unix.SYS_UMOUNT2, uintptr(unsafe.Pointer(s.target)), unix.MNT_DETACH, 0)
			n.results[i] = int32(e)
			continue
		}
		_, _, e = syscall.RawSyscall6(unix.SYS_MOUNT, uintptr(unsafe.Pointer(s.source)), uintptr(unsafe.Pointer(s.target)),
			uintptr(unsafe.Pointer(s.fstype)), s.flags, uintptr(unsafe.Pointer(s.data)), 0)
		n.results[i] = int32(e)
		failed = e != 0
		if failed && !s.soft {
			return
		}
	}
}

// detach gives up the agent's session and descriptors, and reports whether it
// could. Orphans that end are never its zombies: the kernel reaps the
// children of a process that ignores SIGCHLD.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (n *infant) detach() bool {
	ignore := uintptr(unsafe.Pointer(&n.ignore))
	_, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), ignore, 0, 8, 0, 0)
	failed := e != 0
	for _, sig := range [...]uintptr{1, 2, 3, 13, 15} { // HUP, INT, QUIT, PIPE, TERM
		_, _, e = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, ignore, 0, 8, 0, 0)
		failed = failed || e != 0
	}
	_, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	failed = failed || e != 0
	// Root's commands share init's user id: without this they could trace it.
	_, _, e = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0)
	failed = failed || e != 0
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(n.name)), 0)
	for fd := range uintptr(3) {
		_, _, e = syscall.RawSyscall(unix.SYS_DUP3, n.null, fd, 0)
		failed = failed || e != 0
	}
	if n.report > 3 {
		_, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, n.report-1, 0)
		failed = failed || e != 0
	}
	_, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, n.report+1, 1<<32-1, 0)
	return !failed && e == 0
}

// hear reads init's answer: what went wrong, step by step. Its end means that
// init has forgotten the program.
func hear(report io.Reader, steps []step) (warnings []string, err error) {
	raw := make([]byte, 4*len(steps))
	if _, err := io.ReadFull(report, raw); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if _, err := report.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the answer's end: %w", err)
	}
	for i, s := range steps {
		code := int32(binary.NativeEndian.Uint32(raw[4*i:]))
		switch e := syscall.Errno(code); {
		case code == skipped, code == 0, s.soft && e == unix.ENOENT:
		case s.soft:
			warnings = append(warnings, s.what+": "+e.Error())
		default:
			return warnings, fmt.Errorf("%s: %w", s.what, e)
		}
	}
	// The end comes when the agent's memory is given back.
	if rest, err := io.ReadAll(report); err != nil || len(rest) > 0 {
		return warnings, fmt.Errorf("wait until it is on its own: %d more bytes, %w", len(rest), err)
	}
	return warnings, nil
}
