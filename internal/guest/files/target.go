package files

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// target is a file that is being written. Its methods run on a worker.
type target struct {
	path     string
	fd       int
	file     inode // what fd is
	turn     bool  // no other upload writes to it
	created  bool
	provided provided // by root, where t's user may not make it
	size     int64    // of it before
	n        int64    // bytes written
	metadata map[string]string
}

func (t *target) fail(op string, err error) error {
	return &os.PathError{Op: op, Path: t.path, Err: err}
}

// open opens or creates the file, and the directories above it. It never
// waits for another, as the opening of a fifo would.
func (t *target) open() error {
	const flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if err := os.MkdirAll(path.Dir(t.path), dirMode); err != nil {
		return err
	}
	fd, err := unix.Open(t.path, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = unix.Open(t.path, flags|unix.O_CREAT|unix.O_EXCL, fileMode)
		t.created = err == nil
		if errors.Is(err, unix.EEXIST) { // a link to nothing: what it names is made
			fd, err = unix.Open(t.path, flags|unix.O_CREAT, fileMode)
		}
	}
	switch {
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EACCES) && isDir(t.path):
		return faultf(connect.CodeInvalidArgument, "path is a directory: %s", t.path)
	case errors.Is(err, unix.ENXIO):
		return t.irregular()
	case err != nil:
		return t.fail("open", err)
	}
	t.fd = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return t.fail("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return t.irregular()
	}
	t.file = inode{st.Dev, st.Ino}
	return nil
}

// begin empties the file, unless another has its name by now: then it is
// closed. A file that has content was another upload's before it was t's.
func (t *target) begin() (same bool, err error) {
	if virtual(t.fd) { // what the kernel makes up has no inode that stays
		return true, nil
	}
	var st, now unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return false, t.fail("stat", err)
	}
	if unix.Stat(t.path, &now) != nil || now.Dev != st.Dev || now.Ino != st.Ino {
		unix.Close(t.fd)
		t.fd, t.created = -1, false
		return false, nil
	}
	if st.Size > 0 {
		if err := unix.Ftruncate(t.fd, 0); err != nil {
			return false, t.fail("truncate", err)
		}
		t.size, t.created = st.Size, false
	}
	return true, nil
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

func (t *target) irregular() error {
	return faultf(connect.CodeInvalidArgument, "path is not a regular file: %s", t.path)
}

func (t *target) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(t.fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return t.fail("write", err)
		}
		b = b[n:]
		t.n += int64(n)
	}
	return nil
}

// finish sets the metadata and closes the file. A file system without
// attributes keeps the content alone, and the answer shows that.
func (t *target) finish(md map[string]string, s *Service) error {
	err := writeMetadata(t.fd, md)
	if errors.Is(err, unix.EOPNOTSUPP) {
		s.log.Warn("metadata is not kept: the file system has no attributes", "path", t.path)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	t.metadata = readMetadataFrom(t.fd)
	fd := t.fd
	t.fd = -1
	if err := unix.Close(fd); err != nil {
		return t.fail("close", err)
	}
	return nil
}

// giveUp removes what a failed upload made, and says what it left of a file
// that was there before.
func (t *target) giveUp() error {
	var mine, now unix.Stat_t
	known := t.fd >= 0 && unix.Fstat(t.fd, &mine) == nil
	if t.fd >= 0 {
		unix.Close(t.fd)
		t.fd = -1
	}
	if t.created && !t.turn {
		return nil // it is another's by now
	}
	if t.created && known {
		if unix.Lstat(t.path, &now) == nil && now.Dev == mine.Dev && now.Ino == mine.Ino {
			return unix.Unlink(t.path)
		}
		return nil
	}
	if t.n > 0 || t.size > 0 {
		return fmt.Errorf("%s is incomplete: it had %d bytes and has %d of the new ones", t.path, t.size, t.n)
	}
	return nil
}

// maxPath is the kernel's limit, with the NUL that it counts.
const maxPath = 4096

var (
	errNUL       = errors.New("a path can't hold a NUL byte")
	errLong      = fmt.Errorf("the path is longer than %d bytes", maxPath-1)
	errOtherHome = errors.New("the home of another user can't be named by ~; give its path")
)

// Resolve returns the absolute, clean path that p means for a user with the
// given home, starting in dir; an empty dir means home. home and dir must be
// absolute. It looks at nothing but the text.
func Resolve(p, home, dir string) (string, error) {
	if dir == "" {
		dir = home
	}
	switch {
	case p == "~":
		p = home
	case strings.HasPrefix(p, "~/"):
		p = path.Join(home, p[1:])
	case strings.HasPrefix(p, "~"):
		return "", errOtherHome
	case !path.IsAbs(p):
		p = path.Join(dir, p)
	}
	switch p = path.Clean(p); {
	case strings.IndexByte(p, 0) >= 0:
		return "", errNUL
	case len(p) >= maxPath:
		return "", errLong
	}
	return p, nil
}
