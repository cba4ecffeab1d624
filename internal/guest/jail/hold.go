package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold is what is done to a command between its exec and its first
// instruction. The command has itself traced, stops as it begins, and is let
// go when all is done: neither it nor any child of it is ever without.
type hold struct {
	cgroup   int    // an open cgroup v2 directory; 0: none
	oomScore int    // 0: leave it
	files    uint64 // see Config.Files
}

func (h hold) needed() bool { return h.cgroup > 0 || h.oomScore > 0 || h.files > 0 }

// release runs on the thread that forked the command, its tracer. A command
// to which that can't be done is killed.
func (h hold) release(pid, pidfd int) (*Process, error) {
	ws, err := awaitStop(pid)
	if err == nil && !ws.Stopped() { // killed before it began
		closeIfOpen(pidfd)
		return &Process{PID: pid, Inner: pid, reaped: true, status: statusOf(ws)}, nil
	}
	if err == nil {
		// This thread sees what commands see: another one does it.
		done := make(chan error)
		go func() { done <- h.apply(pid) }()
		err = <-done
	}
	p := newProcess(pid, pidfd)
	if err == nil {
		signal := ws.StopSignal()
		if signal == unix.SIGTRAP {
			signal = 0
		}
		err = detach(pid, signal)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: killed meanwhile
		_ = p.Signal(unix.SIGKILL)
		p.Wait()
		return nil, err
	}
	return p, nil
}

func awaitStop(pid int) (ws unix.WaitStatus, err error) {
	for {
		_, err = unix.Wait4(pid, &ws, unix.WUNTRACED|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return ws, fmt.Errorf("wait until a command begins: %w", err)
	}
	return ws, nil
}

// apply runs where the agent's own /proc is.
func (h hold) apply(pid int) error {
	id := strconv.Itoa(pid)
	if h.cgroup > 0 {
		if err := writeAt(h.cgroup, "cgroup.procs", id); err != nil {
			if removed(h.cgroup) {
				return &StartError{Code: CodeNotExecutable, Msg: goneGroup, Err: err}
			}
			return fmt.Errorf("put a command into its cgroup: %w", err)
		}
	}
	if h.files > 0 {
		if err := limitFiles(pid, h.files); err != nil {
			return err
		}
	}
	if h.oomScore > 0 {
		if err := writeAt(unix.AT_FDCWD, filepath.Join("/proc", id, "oom_score_adj"), strconv.Itoa(h.oomScore)); err != nil {
			return fmt.Errorf("give a command its oom score: %w", err)
		}
	}
	return nil
}

func writeAt(dir int, name, text string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func detach(pid int, signal syscall.Signal) error {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(signal), 0, 0)
	if e != 0 {
		return fmt.Errorf("let a command go: %w", e)
	}
	return nil
}

func closeIfOpen(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
