// Package hybrid serves each running sandbox at a unix socket of its own, as
// Firecracker's vsock device does: a program says CONNECT and a port, reads OK and
// a number, and then has a connection to that port inside.
//
// A socket is for the sandbox's owner, for root and for the daemon's own user, as the
// kernel names who is at the other end. It refuses everybody else, a first line that
// is not one to the byte, one that does not come in time, the port of the guest agent
// itself, and more connections at once than it was told: each is answered with a line
// that says why, and closed. It looks at no byte that it passes on.
package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/loopback"
)

// MaxConns is how many connections there may be through the socket of one sandbox
// at once.
const MaxConns = 256

// suffix ends the names of sockets: what is before it is the sandbox's ID.
const suffix = ".sock"

// Options are what Sockets work with. Dir and Dial are required.
type Options struct {
	// Dir is where the sockets lie. It is this process's alone, and made with mode 0700
	// where it is missing; what is above it is there.
	Dir string
	// Dial reaches a port of a sandbox; ctx bounds the dialling alone. Its error is told
	// to who connects.
	Dial func(ctx context.Context, id string, port int) (net.Conn, error)
	// MaxConns is how many connections there may be through all sockets at once;
	// default: MaxConns.
	MaxConns int
	Log      *slog.Logger // default: none
}

// Sockets are the sockets of all sandboxes of one daemon.
type Sockets struct {
	o     Options
	dir   *os.File
	all   loopback.Slots
	conns sync.WaitGroup

	mu sync.Mutex // guards of
	of map[string]*socket
}

// socket is that of one sandbox.
type socket struct {
	id     string
	users  []uint32 // whose connections are taken
	slots  loopback.Slots
	ctx    context.Context
	cancel context.CancelFunc
	l      *net.UnixListener
	number atomic.Uint32 // of the last connection
}

// New makes Dir where it is missing, and removes the sockets that a daemon before left
// there. It fails where Dir is another user's or open to others.
func New(o Options) (*Sockets, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	dir, err := openDir(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Sockets{o: o, dir: dir, all: loopback.NewSlots(cmp.Or(o.MaxConns, MaxConns)), of: make(map[string]*socket)}
	if err := s.clean(); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return s, nil
}

// openDir opens the directory of sockets.
func openDir(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	if err := private(dir); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// private fails where others than this process's user can reach what is in a directory.
func private(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is another user's, or open to others: chmod 700 %[1]s, or move it away", dir.Name())
	}
	return nil
}

// clean removes sockets that nobody listens on any more.
func (s *Sockets) clean() error {
	names, err := s.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			if err := s.unlink(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Sockets) unlink(name string) error {
	if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: s.o.Dir + "/" + name, Err: err}
	}
	return nil
}

// Open serves the socket of a sandbox that runs, and replaces the one that there was.
// owner is as the domain has it: only uid:N is a user of this machine.
func (s *Sockets) Open(id, owner string) error {
	s.Close(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	name := id + suffix
	if strings.Contains(name, "/") {
		return &os.PathError{Op: "listen", Path: name, Err: unix.EINVAL}
	}
	if err := s.unlink(name); err != nil {
		return err
	}
	// By the directory's handle its path may be of any length, and nobody can lead it
	// elsewhere. The mode does not matter before it is set: the directory is ours alone.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", s.dir.Fd(), name)})
	if err != nil {
		return fmt.Errorf("listen on %s/%s: %w", s.o.Dir, name, errors.Unwrap(err))
	}
	l.SetUnlinkOnClose(false) // by the handle's number, which may be another's by then
	if err := unix.Fchmodat(int(s.dir.Fd()), name, 0o600, 0); err != nil {
		_ = l.Close()
		return errors.Join(&os.PathError{Op: "chmod", Path: s.o.Dir + "/" + name, Err: err}, s.unlink(name))
	}
	one := &socket{id: id, users: usersOf(owner), slots: loopback.NewSlots(MaxConns), l: l}
	one.number.Store(firstNumber - 1)
	one.ctx, one.cancel = context.WithCancel(context.Background())
	s.of[id] = one
	s.conns.Go(func() { s.serve(one) })
	return nil
}

// usersOf returns who may connect to the socket of an owner's sandbox.
func usersOf(owner string) []uint32 {
	users := []uint32{0, uint32(os.Geteuid())}
	if id, ok := strings.CutPrefix(owner, "uid:"); ok {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			users = append(users, uint32(n))
		}
	}
	return users
}

// Path returns where the socket of a sandbox is; "" where it has none.
func (s *Sockets) Path(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[id] == nil {
		return ""
	}
	return s.o.Dir + "/" + id + suffix
}

// Close removes the socket of a sandbox, and ends what goes through it. One without
// any is no error. It does not wait for connections: one of them may be what found
// the sandbox ended.
func (s *Sockets) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[id]
	if one == nil {
		return
	}
	delete(s.of, id)
	if err := s.unlink(id + suffix); err != nil {
		s.o.Log.Warn("remove the socket of a sandbox", "id", id, "error", err)
	}
	one.cancel()
	_ = one.l.Close()
}

// CloseAll closes every socket, and returns once what went through them has ended.
// The next daemon opens them again. No socket can be opened afterwards.
func (s *Sockets) CloseAll() {
	s.mu.Lock()
	var ids []string
	for id := range s.of {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.Close(id)
	}
	s.conns.Wait()
}
