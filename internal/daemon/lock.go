package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A daemon that is killed has its lock and its addresses until the kernel has
// ended the last of its threads, which it may be a while about when the machine
// is busy: whoever starts the next one at once sees the first one's. So these
// are waited for.
const (
	lockPatience   = 10 * time.Second // as long as its holder is ending
	listenPatience = time.Second      // the lock is free by then, and the rest follows
	patienceStep   = 5 * time.Millisecond
)

// insist tries again, for at most limit, what fails by something that is about
// to end.
func insist[T any](ctx context.Context, limit time.Duration, passing func(error) bool, try func() (T, error)) (T, error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	step := time.NewTicker(patienceStep)
	defer step.Stop()
	for {
		got, err := try()
		if err == nil || !passing(err) {
			return got, err
		}
		select {
		case <-step.C:
		case <-end.C:
			return got, err
		case <-ctx.Done():
			return got, err
		}
	}
}

// lock takes the home, or says who has it.
func (d *daemon) lock(ctx context.Context) (*home.Lock, error) {
	pidPath := filepath.Join(d.cfg.Dirs.State, pidName)
	ending := func(err error) bool {
		pid, ok := readPID(pidPath)
		return sandbox.KindOf(err) == sandbox.Conflict && ok && isEnding(pid)
	}
	lock, err := insist(ctx, lockPatience, ending, func() (*home.Lock, error) {
		return home.TakeLock(filepath.Join(d.cfg.Dirs.State, lockName))
	})
	if sandbox.KindOf(err) == sandbox.Conflict {
		who := ""
		if pid, ok := readPID(pidPath); ok {
			who = fmt.Sprintf(", with pid %d", pid)
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "a daemon for %s runs already%s", d.cfg.Dirs.State, who).
			WithHint("carboy daemon stop")
	}
	if err != nil {
		return nil, err
	}
	if err := d.writePID(pidPath); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// writePID says who has the home. On a full disk nothing does, which is not what
// a daemon fails for: by it, room can be made.
func (d *daemon) writePID(path string) error {
	// The lock's directory is nobody else's; a link in it is none of ours.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
		err = errors.Join(err, f.Close())
	}
	if sandbox.IsDiskFull(err) {
		d.log.Warn("the disk is full: the daemon's pid is not written down", "path", path)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	return nil
}

// readPID reads who has, or had, the home.
func readPID(path string) (int, bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil || len(b) >= 32 {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid, err == nil && pid > 0
}

// isEnding reports whether a process is gone, but for what the kernel has yet
// to close, or will be as soon as it gets to run.
func isEnding(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&(1<<(syscall.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// listenUnix opens the socket of the home, which is this daemon's.
func (d *daemon) listenUnix(ctx context.Context) (*home.Listener, error) {
	held := func(err error) bool { return sandbox.KindOf(err) == sandbox.Conflict }
	return insist(ctx, listenPatience, held, func() (*home.Listener, error) { return home.Listen(Socket(d.cfg.Dirs)) })
}

// listenTCP opens an address that the daemon before may have had.
func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	inUse := func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
	return insist(ctx, listenPatience, inUse, func() (net.Listener, error) { return net.Listen("tcp", addr) })
}

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
