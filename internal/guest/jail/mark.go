package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Mark names what a command and all its descendants have in common where
// there is no cgroup: the inode of a UTS namespace of their own, which the
// filter lets none of them leave. 0 is no mark. The kernel gives the number to
// another namespace as soon as this one is gone, which it is not before Unmark.
type Mark uint64

// Unmark gives the command's mark up: its bearer may be another command by now. It is
// called once, unless the command has none.
func (p *Process) Unmark() {
	if p.marked != nil {
		_ = p.marked.Close()
	}
}

// newMark makes a UTS namespace. It exists while the file is open or a
// process is in it.
func (c *cell) newMark() (Mark, *os.File, error) {
	var ns *os.File
	var st unix.Stat_t
	var err error
	err2 := c.mark.do(func() {
		if err = unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return
		}
		ns, err = os.Open("/proc/thread-self/ns/uts")
	})
	if err = errors.Join(err2, err); err != nil {
		return 0, nil, fmt.Errorf("mark a command: %w", err)
	}
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return 0, nil, errors.Join(fmt.Errorf("mark a command: %w", err), ns.Close())
	}
	return Mark(st.Ino), ns, nil
}

// Bearers lists the live processes that bear a mark.
func Bearers(mark Mark) ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && bears(pid, mark) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Marked counts the live processes that bear a mark, and sends each of them
// sig unless it is 0.
func Marked(mark Mark, sig unix.Signal) (int, error) {
	pids, err := Bearers(mark)
	if err != nil || sig == 0 {
		return len(pids), err
	}
	for n, pid := range pids {
		if err := signalBearer(pid, mark, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return n + 1, fmt.Errorf("signal %d: %w", pid, err)
		}
	}
	return len(pids), nil
}

func bears(pid int, mark Mark) bool {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/uts", &st)
	return err == nil && st.Ino == uint64(mark)
}

// signalBearer looks again once it holds the process, whose number may have
// become another's.
func signalBearer(pid int, mark Mark, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		return unix.Kill(pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !bears(pid, mark) {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// KillMarked kills until no process bears the mark, or limit has passed. It
// returns how many were left.
func KillMarked(mark Mark, limit time.Duration) (int, error) {
	pause := time.Millisecond
	for deadline := time.Now().Add(limit); ; {
		n, err := Marked(mark, unix.SIGKILL)
		if n == 0 || err != nil || time.Now().After(deadline) {
			return n, err
		}
		// Those just killed need a moment to go; a fork bomb is faster than
		// any moment, so do not begin with a long one.
		time.Sleep(pause) //nolint:forbidigo // it has to look again in any case
		pause = min(2*pause, 50*time.Millisecond)
	}
}
