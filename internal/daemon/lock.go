package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
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

// Lock takes a home, so that no daemon can, or says who has it. The home must be
// there.
func Lock(ctx context.Context, dirs home.Dirs) (*home.Lock, error) {
	pidPath := filepath.Join(dirs.State, reach.PIDName)
	ending := func(err error) bool {
		pid, ok := reach.PID(pidPath)
		return sandbox.KindOf(err) == sandbox.Conflict && (!ok || isEnding(pid)) // who has it may have yet to say so
	}
	lock, err := insist(ctx, lockPatience, ending, func() (*home.Lock, error) {
		return home.TakeLock(filepath.Join(dirs.State, reach.LockName))
	})
	if sandbox.KindOf(err) == sandbox.Conflict {
		who := ""
		if pid, ok := reach.PID(pidPath); ok {
			who = fmt.Sprintf(", with pid %d", pid)
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "a daemon for %s runs already%s", dirs.State, who).
			WithHint("carboy daemon stop")
	}
	return lock, err
}

// lock takes the home, and writes down by whom.
func (d *daemon) lock(ctx context.Context) (*home.Lock, error) {
	pidPath := filepath.Join(d.cfg.Dirs.State, reach.PIDName)
	lock, err := Lock(ctx, d.cfg.Dirs)
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
	return insist(ctx, listenPatience, held, func() (*home.Listener, error) { return home.Listen(reach.Socket(d.cfg.Dirs)) })
}

// listenTCP opens an address that the daemon before may have had.
func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	inUse := func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
	l, err := insist(ctx, listenPatience, inUse, func() (net.Listener, error) { return net.Listen(tcpNetwork(addr), addr) })
	return l, listenError(addr, err)
}

// tcpNetwork is the network of an address to listen on: that of IPv4 where it is one of those.
// By "tcp", 0.0.0.0 would be every address of IPv6, too.
func tcpNetwork(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// listenError says what a user can do about an address that can't be listened on.
func listenError(addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return sandbox.Errorf(sandbox.Conflict, "listen %s: another program listens there", addr).WithHint("choose another port, or see which it is: ss -ltnp 'sport = :%s'", port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return sandbox.Errorf(sandbox.Invalid, "listen %s: this machine has no such address", addr).WithHint("127.0.0.1:%s, or one that ip address shows", port)
	case errors.Is(err, syscall.EACCES):
		return sandbox.Errorf(sandbox.Denied, "listen %s: ports below 1024 are root's", addr).WithHint("a port from 1024 on")
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "listen %s: %s is no address of this machine", addr, e.Name).WithHint("127.0.0.1:%s", port)
	}
	e := sandbox.Errorf(sandbox.Invalid, "listen %s: %v", addr, errors.Unwrap(err))
	e.Err = err
	return e
}
