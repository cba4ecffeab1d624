package home

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Dial connects to the unix socket path, which may be of any length, in a
// directory that nobody else can write to. The socket must be the user's own
// or root's. Where none is there the error is fs.ErrNotExist, and where none
// listens ECONNREFUSED.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	path = filepath.Clean(path)
	dir, err := openPrivate(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer dir.Close()
	s, st, err := openSocket(dir, filepath.Base(path), path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, sandbox.Errorf(sandbox.Denied, "dial: the socket %s belongs to another user", path)
	}
	return dialHandle(ctx, s, path)
}

// DialAt connects to the socket name in an open directory, whoever can write
// there and whoever owns it. A symlink is not followed, and name must be a
// single one. It is for sockets that an untrusted party makes in a directory
// that was given to it.
func DialAt(ctx context.Context, dir *os.File, name string) (net.Conn, error) {
	path := filepath.Join(dir.Name(), name)
	if name != filepath.Base(name) || name == ".." || name == "." {
		return nil, &os.PathError{Op: "dial", Path: name, Err: unix.EINVAL}
	}
	s, _, err := openSocket(dir, name, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return dialHandle(ctx, s, path)
}

// openSocket opens the socket itself, so that what is checked is what is
// dialled.
func openSocket(dir *os.File, name, path string) (*os.File, *unix.Stat_t, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, nil, &os.PathError{Op: "dial", Path: path, Err: err}
	}
	s := os.NewFile(uintptr(fd), path)
	st := new(unix.Stat_t)
	if err := unix.Fstat(fd, st); err != nil {
		s.Close()
		return nil, nil, &os.PathError{Op: "dial", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		s.Close()
		return nil, nil, &os.PathError{Op: "dial", Path: path, Err: unix.ENOTSOCK}
	}
	return s, st, nil
}

func dialHandle(ctx context.Context, s *os.File, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", fdPath(s))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, unwrapOp(err))
	}
	return c, nil
}

// unwrapOp drops the handle's number, which tells nobody anything.
func unwrapOp(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
