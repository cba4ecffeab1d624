package procid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Handle refers to one process until it is closed, even after the process has
// ended. Its methods may be called from several goroutines at once.
type Handle struct {
	id ID
	f  *os.File // a pidfd

	mu   sync.Mutex
	exit Exit // set once reaped
}

// Exit is how a process ended, as far as this process could learn it.
type Exit struct {
	Known  bool        // false where the process was no child of ours, or another reaped it
	Code   int         // its exit code, if Signal is 0
	Signal unix.Signal // the signal that ended it, or 0
}

// Open returns a handle to the process that id names. It fails with ErrGone
// if that has ended, even where its parent has not reaped it yet.
func Open(id ID) (*Handle, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if id.BootID != boot {
		return nil, fmt.Errorf("process %v is of another boot: %w", id, ErrGone)
	}
	fd, err := openPidfd(id.PID)
	if err != nil {
		return nil, err
	}
	h := &Handle{id: id, f: os.NewFile(uintptr(fd), "pidfd")}
	if err := h.verify(); err != nil {
		h.f.Close()
		return nil, err
	}
	return h, nil
}

// verify makes sure that the pidfd refers to the process of the ID. The
// start time is read after the pidfd was opened: if it matches, the process
// of the ID had the number then, and as it had it before too, it is the one
// that was opened.
func (h *Handle) verify() error {
	s, err := readStat(h.id.PID)
	if err != nil {
		return err
	}
	if s.StartTime != h.id.StartTime {
		return fmt.Errorf("process %v: its number belongs to another now: %w", h.id, ErrGone)
	}
	if !h.Alive() {
		return fmt.Errorf("process %v is a zombie: %w", h.id, ErrGone)
	}
	return nil
}

// OpenPID returns a handle to the process that has the number pid now; see Of.
func OpenPID(pid int) (*Handle, error) {
	id, err := Of(pid)
	if err != nil {
		return nil, err
	}
	return Open(id)
}

// Alive reports whether the process of id runs. A zombie does not.
func Alive(id ID) bool {
	h, err := Open(id)
	if err != nil {
		return false
	}
	h.Close()
	return true
}

// openPidfd opens a pidfd that the runtime's poller can wait for.
func openPidfd(pid int) (int, error) {
	if pid <= 0 {
		return -1, fmt.Errorf("process number %d: %w", pid, unix.EINVAL)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10, or the number of a thread
		if fd, err = unix.PidfdOpen(pid, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, fmt.Errorf("process %d: %w", pid, ErrGone)
	case err != nil:
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	return fd, nil
}

// ID returns the identity that the handle was opened with.
func (h *Handle) ID() ID { return h.id }

// Close gives the handle up; the process goes on.
func (h *Handle) Close() error { return h.f.Close() }

// Alive reports whether any thread of the process still runs.
//
// The state letter of /proc/PID/stat would not do: it is the first thread's,
// which may have ended before the others. A pidfd becomes readable when the
// last thread has, reaped or not.
func (h *Handle) Alive() bool {
	done := false
	err := h.control(func(fd int) error {
		done = exited(fd)
		return nil
	})
	return err == nil && !done
}

// exited reports whether the process of a pidfd has ended.
func exited(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Kill sends SIGKILL. Killing a process that has ended is no error.
func (h *Handle) Kill() error {
	err := h.Signal(unix.SIGKILL)
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Signal sends sig. It fails with ErrGone where the process has been reaped;
// a zombie swallows signals in silence.
func (h *Handle) Signal(sig unix.Signal) error {
	err := h.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("process %v: %w", h.id, ErrGone)
	case err != nil:
		return fmt.Errorf("signal process %v: %w", h.id, err)
	}
	return nil
}

// Done blocks until the process has ended, or until ctx has, whose cause it
// then returns. It leaves the zombie for others to reap.
func (h *Handle) Done(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// Waiters have deadlines of their own, so each needs a file of its own.
	f, err := h.dup()
	if err != nil {
		return err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process %v: %w", h.id, err)
	}
	err = rc.Read(func(fd uintptr) bool { return exited(int(fd)) })
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for process %v: %w", h.id, err)
	}
	return nil
}

// dup returns a second file for the pidfd, known to the runtime's poller.
func (h *Handle) dup() (*os.File, error) {
	var dup int
	err := h.control(func(fd int) (err error) {
		dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for process %v: %w", h.id, err)
	}
	return os.NewFile(uintptr(dup), "pidfd"), nil
}

// Wait blocks like Done and then reaps the process if it is a child of the
// caller's: one it started, or an orphan that came to it as the subreaper.
// Don't mix it with exec.Cmd.Wait for the same process: only one of them
// learns the exit status.
func (h *Handle) Wait(ctx context.Context) (Exit, error) {
	if err := h.Done(ctx); err != nil {
		return Exit{}, err
	}
	return h.Reap()
}

// Reap collects the exit status of a process that has ended, without
// blocking. For one that still runs, that is no child, or that another has
// reaped, Exit.Known is false. Later calls return what the first one learnt.
func (h *Handle) Reap() (Exit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exit.Known {
		return h.exit, nil
	}
	exit, err := h.waitidLocked()
	if err != nil {
		return Exit{}, fmt.Errorf("reap process %v: %w", h.id, err)
	}
	h.exit = exit
	return exit, nil
}

// waitidLocked asks the kernel once.
func (h *Handle) waitidLocked() (Exit, error) {
	var info siginfo
	err := h.control(func(fd int) error { return waitid(fd, &info) })
	if errors.Is(err, unix.ECHILD) || errors.Is(err, unix.EAGAIN) {
		return Exit{}, nil
	}
	if err != nil || info.pid == 0 {
		return Exit{}, err
	}
	if info.code == cldExited {
		return Exit{Known: true, Code: int(info.status)}, nil
	}
	return Exit{Known: true, Signal: unix.Signal(info.status)}, nil
}

// control calls fn with the pidfd, which stays open meanwhile.
func (h *Handle) control(fn func(fd int) error) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = fn(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
