package holders

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// endLimit is how long a process may take to be gone once it was killed.
const endLimit = 5 * time.Second

// End kills a process that a search finds something of, and waits until it is gone. One that has ended or is not found
// any more is left alone: then ended is false. The process is one of this one's own /proc. Once it is killed,
// killed is called: a process that is held can't end before it is let go.
func End(pid int, search Search, killed func(pid int)) (ended bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	// Its number can't become another's from here on: it is looked at once more.
	if _, found := search(filepath.Join("/proc", strconv.Itoa(pid))); !found {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return false, nil
		}
		return false, fmt.Errorf("end process %d: %w", pid, err)
	}
	killed(pid)
	return true, await(fd, pid)
}

// await waits for the end of a pidfd's process.
func await(fd, pid int) error {
	until := time.Now().Add(endLimit)
	for {
		left := time.Until(until)
		if left <= 0 {
			return fmt.Errorf("end process %d: %w", pid, os.ErrDeadlineExceeded)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
	}
}
