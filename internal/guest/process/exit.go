package process

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// Reason is why a command ended.
type Reason int

// The reasons.
const (
	Exited      Reason = iota + 1
	Signalled          // by something inside
	TimedOut           // by its own limit
	OutOfMemory        // by the guest's kernel
	Killed             // by a caller
	NotStarted         // it never ran
)

// Exit is how a command ended.
type Exit struct {
	Code     int // as a shell has it: 128 and the signal
	Reason   Reason
	Signal   syscall.Signal // 0: none
	KilledBy string         // who killed it, where Reason is Killed
	Error    string         // why it was not started, or what else is to be said; fit to be shown
	Limits   []string       // that it ran into: "pids", "disk", "inodes"
	Duration time.Duration
	dir      bool // not started for want of its directory
}

// String has the words of package os: "exit status 3", "signal: killed".
func (e Exit) String() string {
	return jail.Status{Code: e.Code, Signal: e.Signal}.String()
}

func notStarted(code int, format string, args ...any) Exit {
	return Exit{Code: code, Reason: NotStarted, Error: fmt.Sprintf(format, args...)}
}

// A disk with less than this is full to whoever writes to it.
const (
	fullBytes  = 1 << 20
	fullInodes = 16
)

// fullDisks says what the file systems of paths have none of any more.
func fullDisks(paths []string) (limits []string) {
	disk, inodes := false, false
	for _, p := range paths {
		var st unix.Statfs_t
		if unix.Statfs(p, &st) != nil || st.Blocks == 0 {
			continue
		}
		disk = disk || st.Bavail*uint64(st.Bsize) < fullBytes
		inodes = inodes || (st.Files > 0 && st.Ffree < fullInodes)
	}
	if disk {
		limits = append(limits, "disk")
	}
	if inodes {
		limits = append(limits, "inodes")
	}
	return limits
}
