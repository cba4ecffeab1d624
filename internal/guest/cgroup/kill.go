package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a killed group may take to become empty: a process
// stuck in the kernel goes when the kernel lets it.
const patience = 10 * time.Second

// ErrBusy says that killed processes have not gone yet.
var ErrBusy = errors.New("killed processes have not ended yet")

// Kill ends every process in the group, those included that are forked
// meanwhile, and returns when none is left, or with ErrBusy after ten seconds.
func (g *Group) Kill() error {
	for deadline := time.Now().Add(patience); ; {
		left, err := g.killOnce()
		if err != nil {
			return fmt.Errorf("kill cgroup: %w", err)
		}
		if left == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return ErrBusy
		}
		left.awaitChange(100 * time.Millisecond)
	}
}

// killOnce returns the slot if it had processes, nil if it has none now. It
// holds the lock so that the slot can't become another command's meanwhile.
func (g *Group) killOnce() (*slot, error) {
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	s := g.slot
	if s == nil || !s.populated() {
		return nil, nil
	}
	// Linux compares how often the cgroup was killed with how often the
	// forker's own was, so a process born into one that ever was killed may be
	// killed at birth.
	s.killed = true
	err := write(s.dir, "cgroup.kill", "1")
	if errors.Is(err, unix.ENOENT) { // before Linux 5.14
		err = s.signalEach(unix.SIGKILL)
	}
	return s, err
}

// signalEach signals the members one by one. A fork in between escapes the
// round, not the loop around it.
func (s *slot) signalEach(sig unix.Signal) error {
	pids, err := s.members()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Members lists the processes that are in the group now.
func (g *Group) Members() ([]int, error) {
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	if g.slot == nil {
		return nil, nil
	}
	return g.slot.members()
}

// members leaves out processes of a namespace that we can't see.
func (s *slot) members() (pids []int, err error) {
	f, err := open(s.dir, "cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// awaitChange returns when cgroup.events has changed since it was read, or
// after limit.
func (s *slot) awaitChange(limit time.Duration) {
	_ = at(s.events, func(fd int) error {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, int(limit.Milliseconds()))
		return err
	})
}

// Crowds reports whether the group holds half of the processes or more that
// all commands together may have, so that others hardly find room.
func (g *Group) Crowds() bool {
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	if g.slot == nil || g.tree.limit.Load() == 0 {
		return false
	}
	f, err := open(g.slot.dir, "cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	var n int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		n++
	}
	return 2*n >= g.tree.limit.Load()
}

// Signal sends sig to every process that is in the group now.
func (g *Group) Signal(sig unix.Signal) error {
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	if g.slot == nil {
		return nil
	}
	return g.slot.signalEach(sig)
}

// Freezer stops all commands and has them go on, without their seeing it.
type Freezer struct{ file *os.File }

// Freezer opens the commands' freezer, for which there may be no descriptor
// later on. It is nil where the kernel has none, or the host keeps it. The
// caller closes it.
func (t *Hierarchy) Freezer() (*Freezer, error) {
	f, err := open(t.dir, "cgroup.freeze", unix.O_WRONLY)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the commands' freezer: %w", err)
	}
	return &Freezer{f}, nil
}

// Set freezes or thaws. It does not wait until all have come to a stop.
func (f *Freezer) Set(frozen bool) error {
	text := "0"
	if frozen {
		text = "1"
	}
	if _, err := unix.Pwrite(int(f.file.Fd()), []byte(text), 0); err != nil {
		return fmt.Errorf("freeze commands (%s): %w", text, err)
	}
	return nil
}

// Close lets go of the freezer, as it is.
func (f *Freezer) Close() error { return f.file.Close() }
