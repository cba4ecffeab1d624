package trust

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// maxFile bounds a file that is read, in bytes, and spare is for what is added
// to it.
const (
	maxFile = 8 << 20
	spare   = 4 << 10
)

// scratch is the name under which a file is written before it takes its place.
const scratch = ".carboy-new"

var errKind = errors.New("it is no ordinary file")

// rootFS is the sandbox's own file system. Links are followed inside it to find
// what they stand for, and never written through: a file is replaced in the
// directory where it really is, and that must be on the root's own mount or on
// that of /usr, which nobody but the wall mounts. What a user shares with the
// host, and what the kernel shows as files, are out of reach.
type rootFS struct {
	root   int
	prefix string // of the root in the agent's own names; empty for "/"
}

func openRootFS(root string) (*rootFS, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	t := &rootFS{root: fd}
	if t.prefix, err = nameOf(fd); err != nil {
		t.close()
		return nil, fmt.Errorf("name the root: %w", err)
	}
	t.prefix = strings.TrimSuffix(t.prefix, "/")
	return t, nil
}

func (t *rootFS) close() { unix.Close(t.root) }

// nameOf is where the kernel says that an open file is.
func nameOf(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// final is the name, without links, of what p leads to.
func (t *rootFS) final(p string) (string, error) {
	fd, err := beneath.OpenInRoot(t.root, p, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	name, err := nameOf(fd)
	if err != nil {
		return "", err
	}
	inside, ok := strings.CutPrefix(name, t.prefix)
	if !ok || !path.IsAbs(inside) || path.Clean(inside) != inside {
		return "", unix.EXDEV
	}
	return inside, nil
}

// dir opens a directory by a name without links. What is missing of it is made
// where create is set.
func (t *rootFS) dir(name string, create bool) (int, error) {
	rel := strings.TrimPrefix(name, "/")
	at, err := t.base(&rel)
	if err != nil || rel == "" {
		return at, err
	}
	defer unix.Close(at)
	fd, err := beneath.OpenHere(at, rel, unix.O_PATH|unix.O_DIRECTORY)
	if !create || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	for i := range len(rel) + 1 {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if fd, err = makeDir(at, rel[:i]); err != nil {
			return -1, err
		}
		if i < len(rel) {
			unix.Close(fd)
		}
	}
	return fd, nil
}

// base opens the directory from which no other mount is entered: the root, or
// /usr, whose name it takes off rel.
func (t *rootFS) base(rel *string) (int, error) {
	rest, ok := strings.CutPrefix(*rel, "usr")
	if ok && (rest == "" || rest[0] == '/') {
		fd, err := beneath.OpenNoLinks(t.root, "usr", unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			*rel = strings.TrimPrefix(rest, "/")
			return fd, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			return -1, err
		}
	}
	return beneath.OpenHere(t.root, ".", unix.O_PATH|unix.O_DIRECTORY)
}

// makeDir makes rel, whose parents are there, and opens it.
func makeDir(at int, rel string) (int, error) {
	parent, err := beneath.OpenHere(at, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, path.Base(rel), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return beneath.OpenHere(parent, path.Base(rel), unix.O_PATH|unix.O_DIRECTORY)
}

// file is what a file holds, and whose it is.
type file struct {
	data []byte
	mode uint32
	uid  int
	gid  int
}

// ordinary is what a file that was not there is made like.
func ordinary(data []byte) file { return file{data: data, mode: 0o644} }

// read reads a regular file of at most maxFile bytes by a name without links.
func (t *rootFS) read(name string) (file, error) {
	dir, err := t.dir(path.Dir(name), false)
	if err != nil {
		return file{}, err
	}
	defer unix.Close(dir)
	fd, err := beneath.OpenHere(dir, path.Base(name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return file{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return file{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return file{}, errKind
	}
	if st.Size > maxFile {
		return file{}, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	data := make([]byte, st.Size, st.Size+spare)
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return file{}, err
	}
	return file{data: data[:n], mode: st.Mode & 0o777, uid: int(st.Uid), gid: int(st.Gid)}, nil
}

// write puts a file, by a name without links, in the place of whatever has
// that name, all at once. A directory is an error.
func (t *rootFS) write(name string, f file) error {
	return t.put(name, func(dir int) error {
		fd, err := unix.Openat(dir, scratch, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		w := os.NewFile(uintptr(fd), name)
		defer w.Close()
		if _, err := w.Write(f.data); err != nil {
			return err
		}
		if f.uid != 0 || f.gid != 0 {
			if err := unix.Fchown(fd, f.uid, f.gid); err != nil {
				return err
			}
		}
		return unix.Fchmod(fd, f.mode)
	})
}

// link puts a symbolic link in the place of whatever has that name, unless it
// is that link.
func (t *rootFS) link(name, target string) error {
	if t.readLink(name) == target {
		return nil
	}
	return t.put(name, func(dir int) error { return unix.Symlinkat(target, dir, scratch) })
}

// put has something made under another name and then renamed.
func (t *rootFS) put(name string, scratched func(dir int) error) error {
	dir, err := t.dir(path.Dir(name), true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Unlinkat(dir, scratch, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err = scratched(dir); err == nil {
		err = unix.Renameat(dir, scratch, dir, path.Base(name))
	}
	if err != nil {
		_ = unix.Unlinkat(dir, scratch, 0)
	}
	return err
}

// readLink is where a link leads; empty for anything else.
func (t *rootFS) readLink(name string) string {
	dir, err := t.dir(path.Dir(name), false)
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, path.Base(name), buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// remove removes a link.
func (t *rootFS) remove(name string) error {
	dir, err := t.dir(path.Dir(name), false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Unlinkat(dir, path.Base(name), 0)
}

// exists reports whether p leads to something.
func (t *rootFS) exists(p string) bool {
	_, err := t.final(p)
	return err == nil
}

// names lists a directory, at most limit of it.
func (t *rootFS) names(p string, limit int) []string {
	name, err := t.final(p)
	if err != nil {
		return nil
	}
	at, err := t.dir(name, false)
	if err != nil {
		return nil
	}
	defer unix.Close(at)
	fd, err := beneath.OpenHere(at, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, _ := f.Readdirnames(limit) // as many as can be read will do
	return names
}
