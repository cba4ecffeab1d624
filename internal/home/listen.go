package home

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Lock is a file that is locked until Close, or until the process ends.
type Lock struct{ f *os.File }

// Close gives the lock up. The file stays: to delete it would let two
// processes hold two files of one name.
func (l *Lock) Close() error { return l.f.Close() }

// TakeLock locks the file path, and makes it where there is none, in a
// directory that only the user can write to. Where another process has it,
// the error is a Conflict.
func TakeLock(path string) (*Lock, error) {
	dir, name := filepath.Split(path)
	h, err := openPrivate(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	defer h.Close()
	return lockAt(h, name, path)
}

func lockAt(dir *os.File, name, path string) (*Lock, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &Lock{f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, sandbox.Errorf(sandbox.Conflict, "%s is in use by another process", path).
			WithHint("carboy daemon status")
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

// retireTime bounds how long a listener that was retired accepts who waits.
const retireTime = 20 * time.Millisecond

// lockSuffix is added to the path of a socket for that of its lock.
const lockSuffix = ".lock"

// Listener accepts connections to a unix socket at a path of any length.
type Listener struct {
	*net.UnixListener
	path string
	name string
	dir  *os.File
	lock *Lock
	ino  uint64 // of the socket

	woken atomic.Bool // the Accept that waited when it was retired
	once  sync.Once
	err   error
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on the unix socket path, which gets mode 0600, in a directory
// that is there and that only the user can write to. As long as it listens it
// holds a lock beside the socket. A socket there that nobody holds the lock
// of was left by a process that died, and is replaced; where another process
// has the lock, the error is a Conflict; what is no socket stays.
func Listen(path string) (_ *Listener, err error) {
	l := &Listener{path: filepath.Clean(path)}
	l.name = filepath.Base(l.path)
	if l.dir, err = openPrivate(filepath.Dir(l.path)); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	if l.lock, err = lockAt(l.dir, l.name+lockSuffix, l.path+lockSuffix); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := l.socket(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := l.bind(); err != nil {
		return nil, &os.PathError{Op: "listen", Path: l.path, Err: err}
	}
	return l, nil
}

// socket returns the inode of the socket at the path.
func (l *Listener) socket() (ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(l.dir.Fd()), l.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, &os.PathError{Op: "stat", Path: l.path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0, sandbox.Errorf(sandbox.Conflict, "%s is there and is no socket", l.path).WithHint("move it away")
	}
	return st.Ino, nil
}

// bind binds a socket to a short name, narrows it and moves it to its place:
// so it appears at once as it is to be, over a stale one if need be, and its
// own name may be as long as any. It ends with the machine: no disk is waited for.
func (l *Listener) bind() (err error) {
	// The lock is held, so nobody else uses this name.
	hash := fnv.New64a()
	hash.Write([]byte(l.name))
	short := fmt.Sprintf(".%016x", hash.Sum64())
	dir := int(l.dir.Fd())
	if err := unlinkat(dir, short); err != nil {
		return err
	}
	addr := &net.UnixAddr{Net: "unix", Name: fdPath(l.dir) + "/" + short}
	if l.UnixListener, err = net.ListenUnix("unix", addr); err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // by its handle's number, which may be another's by then
	defer func() {
		if err != nil {
			l.UnixListener.Close()
			_ = unlinkat(dir, short)
		}
	}()
	if err := unix.Fchmodat(dir, short, 0o600, 0); err != nil {
		return err
	}
	if err := unix.Renameat(dir, short, dir, l.name); err != nil {
		return err
	}
	l.ino, err = l.socket()
	return err
}

func unlinkat(dir int, name string) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// fdPath names an open file by its number. The file must stay open meanwhile.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// Addr returns the path that Listen was given.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Retire removes the socket unless it was replaced, and lets nobody connect any
// more. Who has connected is still accepted; then Accept fails. The lock stays until
// Close, which must still be called.
func (l *Listener) Retire() error {
	c, err := l.SyscallConn()
	if err != nil {
		return err
	}
	err = l.unlink()
	var shut error
	// On a socket that listens it refuses further connections and keeps those that wait.
	if cerr := c.Control(func(fd uintptr) { shut = unix.Shutdown(int(fd), unix.SHUT_RD) }); cerr != nil {
		shut = cerr
	}
	if shut == nil {
		shut = l.SetDeadline(time.Now()) // a shutdown need not wake an Accept
	}
	if shut != nil {
		shut = errors.Join(&os.PathError{Op: "retire", Path: l.path, Err: shut}, l.UnixListener.Close())
	}
	return errors.Join(err, shut)
}

// Accept waits for the next connection. After Retire it returns those that wait, and
// then an error.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.UnixListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) && l.woken.CompareAndSwap(false, true) {
		if err := l.SetDeadline(time.Now().Add(retireTime)); err != nil {
			return nil, err
		}
		conn, err = l.UnixListener.Accept()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed // not an error that passes, which a server would wait for
	}
	return conn, err
}

// unlink removes the socket unless it was replaced.
func (l *Listener) unlink() error {
	if ino, err := l.socket(); err == nil && ino == l.ino {
		return unlinkat(int(l.dir.Fd()), l.name)
	}
	return nil
}

// Close stops listening, removes the socket unless it was replaced, and gives
// up the lock. Connections that were accepted go on.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.err = errors.Join(l.UnixListener.Close(), l.unlink())
		l.release()
	})
	return l.err
}

func (l *Listener) release() {
	if l.lock != nil {
		l.lock.Close()
	}
	if l.dir != nil {
		l.dir.Close()
	}
}
