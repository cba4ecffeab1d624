package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	// maxLinks bounds the links on one path, as the kernel does.
	maxLinks = 40
	// ownDirectory is the hint where a directory is another user's.
	ownDirectory = "use a directory of your own or of root's: set the XDG variables, or the path in config.json"
)

// Make makes a directory to write to and what is missing above it, each in the
// open directory that was looked at. It refuses one that is another user's, that
// others may write to, or to which somebody else, root apart, could lead another
// way: by a directory of theirs, one that they may write to, or a link that they
// made. The process's umask leaves of the mode what it does.
func Make(path string, mode uint32) error { return end(walk(path, mode)) }

// end judges the end of a way as what is on it, and closes it.
func end(h *os.File, err error) error {
	if err != nil {
		return err
	}
	defer h.Close()
	if fi, err := h.Stat(); err != nil || !fi.IsDir() {
		return errors.Join(err, &os.PathError{Op: "open", Path: h.Name(), Err: unix.ENOTDIR})
	}
	w := &walker{path: h.Name()}
	return w.judge(int(h.Fd()), h.Name())
}

// walker is on its way along a path. Each part is opened in the directory before,
// so that what was found good is what is gone on from.
type walker struct {
	path  string   // as it was asked for
	at    int      // an open file
	name  string   // and its path, without links
	rest  []string // of the way
	links int
	last  bool   // the path's own last part was a link
	mode  uint32 // of directories that are made; 0: none is
}

// walk opens what a path of any length leads to, with O_PATH. Each part of the
// way, and each link on it, must be the user's or root's, and nobody else's to
// replace; what it leads to is the caller's to judge. With a mode, directories
// that are missing are made.
func walk(path string, mode uint32) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	w := &walker{path: path, at: -1, rest: strings.Split(abs, "/"), mode: mode}
	if err := w.top(); err != nil {
		return nil, err
	}
	for len(w.rest) > 0 {
		part := w.rest[0]
		w.rest = w.rest[1:]
		if part == "" || part == "." {
			continue
		}
		if err := w.step(part); err != nil {
			unix.Close(w.at)
			return nil, err
		}
	}
	return os.NewFile(uintptr(w.at), path), nil
}

// top goes to the root directory.
func (w *walker) top() error {
	fd, err := openPart(unix.AT_FDCWD, "/")
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	w.enter(fd, "/")
	return nil
}

func (w *walker) enter(fd int, name string) {
	if w.at >= 0 {
		unix.Close(w.at)
	}
	w.at, w.name = fd, name
}

// step goes from a directory to a part of it.
func (w *walker) step(part string) error {
	name := filepath.Join(w.name, part)
	if err := w.judge(w.at, w.name); err != nil {
		return err
	}
	fd, err := openPart(w.at, part)
	if errors.Is(err, unix.ENOENT) && w.mode != 0 {
		if err = unix.Mkdirat(w.at, part, w.mode); err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		fd, err = openPart(w.at, part)
	}
	if errors.Is(err, unix.ENOENT) && w.last {
		return sandbox.Errorf(sandbox.Invalid, "%s: a link that leads nowhere: there is no %s", w.path, name)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	to, err := linkTarget(fd)
	switch {
	case errors.Is(err, unix.EINVAL): // it is no link
		w.enter(fd, name)
		return nil
	case err == nil:
		err = w.judge(fd, name)
	default:
		err = &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	unix.Close(fd)
	if err != nil {
		return err
	}
	if w.links++; w.links > maxLinks {
		return &os.PathError{Op: "open", Path: w.path, Err: unix.ELOOP}
	}
	w.last = w.last || len(w.rest) == 0
	w.rest = append(strings.Split(to, "/"), w.rest...)
	if filepath.IsAbs(to) {
		return w.top()
	}
	return nil
}

// judge refuses what somebody else could change, on the way.
func (w *walker) judge(fd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}
	switch {
	case weak.On(weak.WaysOfOthers):
	case !ours(st.Uid) && !unmapped(st.Uid):
		return sandbox.Errorf(sandbox.Denied, "%s: %s, which is on its way, belongs to another user", w.path, name).
			WithHint(ownDirectory)
	case st.Mode&unix.S_IFMT != unix.S_IFLNK && openToOthers(&st) && st.Mode&unix.S_ISVTX == 0:
		return sandbox.Errorf(sandbox.Denied, "%s: %s, which is on its way, can be written by other users", w.path, name).
			WithHint("chmod go-w %s", name)
	}
	return nil
}

// openPart opens a name itself, a link too.
func openPart(dir int, name string) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// linkTarget reads an open link. What is none is EINVAL.
func linkTarget(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", unix.EINVAL
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	return string(buf[:n]), err
}
