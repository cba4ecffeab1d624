package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// A LinkError says that a path leads through a link, or to one, where none is
// followed. It is ELOOP.
type LinkError struct{ Path string }

// Error names the link.
func (e *LinkError) Error() string {
	return e.Path + " is a link, which is not followed: a sandbox may have made it"
}

// Unwrap returns ELOOP.
func (e *LinkError) Unwrap() error { return unix.ELOOP }

// maxLinks bounds the links that one path may lead through, as the kernel does.
const maxLinks = 40

// Parent opens the directory that a path of a user's is in, and returns the
// path's own name there, "." where the path ends in a slash or in "/.". On the
// way it follows no link but those in the machine's own directories, which no
// sandbox is given: below any other, a sandbox may have put it there, or one
// that is long gone. The first other one is a *LinkError.
//
// The path is cleaned by its text before anything is opened, so that ".." takes
// away the name before it, wherever that leads.
func Parent(path string) (*Dir, string, error) {
	clean, name := filepath.Clean(path), "."
	if !strings.HasSuffix(path, "/") && !strings.HasSuffix(path, "/.") {
		clean, name = filepath.Split(clean)
		if name == ".." || name == "." {
			clean, name = filepath.Join(clean, name), "."
		}
	}
	f, err := walk(filepath.Clean(clean))
	if err == nil && !isDir(f) {
		err = &os.PathError{Op: "open", Path: f.Name(), Err: unix.ENOTDIR}
		f.Close()
	}
	if err != nil {
		return nil, "", err
	}
	return In(f), name, nil
}

// OpenPath opens what a user's path names, by the rules of Parent. It waits for
// a pipe's other end.
func OpenPath(path string, flags int) (*os.File, error) {
	at, err := walk(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return reopen(at, path, flags)
}

// reopen opens what is open with O_PATH.
func reopen(at *os.File, path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(Path(at), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// OpenInput opens a file that a user names for reading, by the rules of Parent,
// and waits for nobody: what is no regular file is ErrNotRegular, for a sandbox
// may have put a pipe there. A file that is open already goes by any kind, as
// /dev/stdin does, and so does a device of the machine's own directories.
func OpenInput(path string) (*os.File, error) {
	w, err := walkTo(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer w.at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(w.at.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	device := kind == unix.S_IFCHR && machines(filepath.Dir(w.real))
	if kind != unix.S_IFREG && (!w.jumped || kind == unix.S_IFDIR) && !device && !weak.On(weak.LinksFollowed) {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	return reopen(w.at, path, unix.O_RDONLY)
}

func isDir(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// walk opens what a clean path names, with O_PATH.
func walk(path string) (*os.File, error) {
	w, err := walkTo(path)
	if err != nil {
		return nil, err
	}
	return w.at, nil
}

// walkTo goes along a clean path to its end.
func walkTo(path string) (*walker, error) {
	w := &walker{shown: "."}
	if filepath.IsAbs(path) {
		w.shown = "/"
	}
	var err error
	if w.at, err = openPath(unix.AT_FDCWD, w.shown, w.shown); err != nil {
		return nil, err
	}
	if w.real = w.shown; w.shown == "." {
		w.real, _ = unix.Getwd() // without it, no link is followed
	}
	if err := w.steps(path); err != nil {
		w.at.Close()
		return nil, err
	}
	return w, nil
}

// walker is on its way along a path.
type walker struct {
	at    *os.File
	real  string // where it is, by a path without links
	shown string // and as the user would call it
	links int
	// jumped says that at was reached by a link of the kernel's alone.
	jumped bool
}

func (w *walker) steps(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." {
			continue
		}
		if err := w.step(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) step(name string) error {
	shown := filepath.Join(w.shown, name)
	f, err := openPath(int(w.at.Fd()), name, shown)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return &os.PathError{Op: "stat", Path: shown, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		defer f.Close()
		return w.follow(f, name)
	}
	w.at.Close()
	w.at, w.real, w.shown, w.jumped = f, filepath.Join(w.real, name), shown, false
	return nil
}

// follow goes where a link leads that is in a directory of the machine's own.
func (w *walker) follow(link *os.File, name string) error {
	switch w.links++; {
	case !machines(w.real) && !weak.On(weak.LinksFollowed):
		return &LinkError{link.Name()}
	case w.links > maxLinks:
		return &os.PathError{Op: "open", Path: link.Name(), Err: unix.ELOOP}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(w.at.Fd()), &st); err == nil && st.Type == unix.PROC_SUPER_MAGIC && w.real != "/proc" {
		return w.jump(link, name)
	}
	target, err := readlink(link)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		root, err := openPath(unix.AT_FDCWD, "/", "/")
		if err != nil {
			return err
		}
		w.at.Close()
		w.at, w.real, w.shown = root, "/", "/"
	}
	return w.steps(filepath.Clean(target))
}

// jump follows a link that the kernel makes, to what no path may name: a file
// that a process has open.
func (w *walker) jump(link *os.File, name string) error {
	fd, err := unix.Openat(int(w.at.Fd()), name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: link.Name(), Err: err}
	}
	w.at.Close()
	w.at, w.real, w.shown, w.jumped = os.NewFile(uintptr(fd), link.Name()), "", link.Name(), true
	return nil
}

// openPath opens name itself, a link too.
func openPath(dir int, name, shown string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: shown, Err: err}
	}
	return os.NewFile(uintptr(fd), shown), nil
}

// readlink reads an open link.
func readlink(link *os.File) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(link.Fd()), "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: link.Name(), Err: err}
	}
	return string(buf[:n]), nil
}

var (
	// machineTrees are directories of the machine's own, with all below them.
	machineTrees = []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32",
		"/proc", "/run", "/sbin", "/sys", "/usr", "/var/log", "/var/run",
	}
	// machineDirs are so themselves: what lies below may be somebody's work.
	machineDirs = []string{"/", "/home", "/var", "/var/lib"}
	// sourceTrees are where some keep work below a tree of the machine's.
	sourceTrees = []string{"/usr/src", "/usr/local/src"}
)

// machines reports whether dir, a path without links, is a directory that no
// sandbox is given by server/hostdir, nor one that holds it.
func machines(dir string) bool {
	below := func(d string) bool { return strings.HasPrefix(dir, d+"/") }
	return slices.Contains(machineDirs, dir) ||
		!slices.ContainsFunc(sourceTrees, below) &&
			slices.ContainsFunc(machineTrees, func(d string) bool { return dir == d || below(d) })
}

// MachineDirs returns the directories whose links Parent follows: for the test
// that no sandbox is given one of them.
func MachineDirs() []string { return slices.Concat(machineDirs, machineTrees) }
