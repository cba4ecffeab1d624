package jail

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What the host counts for a user, and so for all instances of one daemon
// together, of which an instance gets a part.
const (
	userParts  = 16
	minSignals = 1024      // queued ones, and timers: each keeps one ready
	queueBytes = 256 << 10 // of POSIX message queues: three of the usual size
)

// limitResources bounds what the agent hands down to commands, who can't
// raise it again. The agent needs none of it.
func limitResources() error {
	limits := map[int]func(now uint64) uint64{
		// One byte: a kernel gives a program that collects dumps on the host's
		// side the dumps of all but those whose limit is exactly that.
		unix.RLIMIT_CORE:       func(uint64) uint64 { return 1 },
		unix.RLIMIT_RTPRIO:     func(uint64) uint64 { return 0 },
		unix.RLIMIT_NICE:       func(uint64) uint64 { return 0 },
		unix.RLIMIT_MEMLOCK:    func(uint64) uint64 { return 64 << 20 },
		unix.RLIMIT_SIGPENDING: func(now uint64) uint64 { return max(now/userParts, minSignals) },
		unix.RLIMIT_MSGQUEUE:   func(uint64) uint64 { return queueBytes },
	}
	for which, most := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(which, &now); err != nil {
			return fmt.Errorf("read resource limit %d: %w", which, err)
		}
		now.Max = min(now.Max, most(now.Max))
		now.Cur = min(now.Cur, now.Max)
		if which == unix.RLIMIT_CORE {
			now.Cur = now.Max
		}
		if err := unix.Setrlimit(which, &now); err != nil {
			return fmt.Errorf("set resource limit %d: %w", which, err)
		}
	}
	return nil
}

// limitFiles lowers the limit of one process. Its own one stays: the agent
// holds the streams of all commands.
func limitFiles(pid int, most uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &now); err != nil {
		return fmt.Errorf("read a command's limit of open files: %w", err)
	}
	now.Max = min(now.Max, most)
	now.Cur = min(now.Cur, now.Max)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &now, nil); err != nil {
		return fmt.Errorf("limit a command's open files: %w", err)
	}
	return nil
}
