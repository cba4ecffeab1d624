package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/home"
)

// Gone returns once the process of the home's daemon has ended, or the cause of
// ctx; at once where there is none. A daemon that leaves has its home for some
// time after it has stopped to answer.
func Gone(ctx context.Context, dirs home.Dirs) error {
	pid, ok := readPID(filepath.Join(dirs.State, pidName))
	if !ok {
		return nil
	}
	h, err := procid.OpenPID(pid)
	if err != nil {
		return nil
	}
	defer h.Close()
	// The number may be another process's by now.
	if !hasOpen(pid, filepath.Join(dirs.State, lockName)) {
		return nil
	}
	return h.Done(ctx)
}

// hasOpen reports whether a process has a file open, as far as can be seen.
func hasOpen(pid int, path string) bool {
	var want, got unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if unix.Stat(filepath.Join(dir, fd.Name()), &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino {
			return true
		}
	}
	return false
}
