package procid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process of an ID has ended, whether or not another
// one has its number now.
var ErrGone = errors.New("process is gone")

// ID is the identity of one process, fit to be stored. Two processes have the
// same ID only if a number is used anew within one clock tick (10 ms) of its
// last use, for which the kernel would have to hand out every other number
// in between.
type ID struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks since boot
	BootID    string `json:"boot_id"`
}

// IsZero reports whether id names no process.
func (id ID) IsZero() bool { return id == ID{} }

// String is for logs: "1234@567890".
func (id ID) String() string {
	return strconv.Itoa(id.PID) + "@" + strconv.FormatUint(id.StartTime, 10)
}

// Of returns the identity of the process that has the number pid now. The
// caller must know by other means that it is the one that was meant: a child
// that was not waited for is. It fails with ErrGone where there is none.
func Of(pid int) (ID, error) {
	boot, err := BootID()
	if err != nil {
		return ID{}, err
	}
	s, err := readStat(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, StartTime: s.StartTime, BootID: boot}, nil
}

// Self returns the identity of the calling process.
func Self() (ID, error) { return Of(os.Getpid()) }

// BootID returns the kernel's name for the time since it was started.
func BootID() (string, error) { return bootID() }

var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
})

// readStat reads /proc/PID/stat, with ErrGone where that does not exist.
func readStat(pid int) (Stat, error) {
	if pid <= 0 {
		return Stat{}, fmt.Errorf("process number %d: %w", pid, unix.EINVAL)
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, goneErr(pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStat+1))
	if err != nil {
		return Stat{}, goneErr(pid, err)
	}
	s, err := ParseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return s, nil
}

// goneErr turns what /proc says of a process that is no more into ErrGone.
func goneErr(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return fmt.Errorf("read stat of process %d: %w", pid, err)
}
