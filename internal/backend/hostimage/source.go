package hostimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Bounds of what is copied.
const (
	maxFile  = 8 << 20 // bytes of one file
	maxFiles = 20_000
	maxDepth = 8 // directories inside one entry of the table
)

// source is one thing of the host that goes into the skeleton.
type source struct {
	path   string // relative to the root
	stat   unix.Stat_t
	target string // of a link; read only when a skeleton is built
}

func (s *source) is(format uint32) bool { return s.stat.Mode&unix.S_IFMT == format }

// host is the machine that the image is made of.
type host struct {
	root  *os.File // "/", or a test's imitation of it
	path  string
	notes []Note
}

func (h *host) note(p, format string, args ...any) {
	h.notes = append(h.notes, Note{Path: "/" + p, Text: fmt.Sprintf(format, args...)})
}

// open opens a path below the root without following any link on the way.
func (h *host) open(rel string, flags uint64) (*os.File, error) {
	fd, err := beneath.OpenNoLinks(int(h.root.Fd()), rel, int(flags)|unix.O_NOFOLLOW)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/" + rel, Err: err}
	}
	return os.NewFile(uintptr(fd), "/"+rel), nil
}

// sources lists everything that the table allows and the host has, in order.
// It stats each and reads none.
func (h *host) sources(ctx context.Context) ([]source, error) {
	var out []source
	for _, a := range table {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		dir, err := h.open(path.Dir(a.path), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
				h.note(a.path, "left out: its directory is a link or can't be read")
			}
			continue
		}
		names, err := expand(dir, path.Base(a.path))
		for _, name := range names {
			if out, err = h.collect(dir, path.Join(path.Dir(a.path), name), 0, out); err != nil {
				break
			}
		}
		dir.Close()
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(out, func(a, b source) bool { return a.path == b.path }), nil
}

// expand returns the names in dir that a pattern stands for.
func expand(dir *os.File, pattern string) ([]string, error) {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}, nil
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir.Name(), err)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		ok, err := path.Match(pattern, n)
		return err != nil || !ok
	}), nil
}

// collect adds a file, a link, or a directory with all that is below it. rel
// is in dir, which was reached without following a link.
func (h *host) collect(dir *os.File, rel string, depth int, out []source) ([]source, error) {
	if len(out) >= maxFiles {
		return nil, fmt.Errorf("more than %d files to copy", maxFiles)
	}
	s := source{path: rel}
	err := unix.Fstatat(int(dir.Fd()), path.Base(rel), &s.stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		h.note(rel, "left out: %v", err)
		return out, nil
	}
	isFile, isDir := s.is(unix.S_IFREG), s.is(unix.S_IFDIR)
	switch {
	case isFile && s.stat.Mode&0o004 == 0, isDir && s.stat.Mode&0o005 != 0o005:
		h.note(rel, "left out: not every user may read it")
	case isFile && s.stat.Size > maxFile:
		h.note(rel, "left out: larger than %d bytes", maxFile)
	case isFile, s.is(unix.S_IFLNK):
		return append(out, s), nil
	case isDir && depth < maxDepth:
		return h.collectDir(rel, depth, append(out, s))
	default:
		h.note(rel, "left out: neither file, link nor directory, or too deep")
	}
	return out, nil
}

func (h *host) collectDir(rel string, depth int, out []source) ([]source, error) {
	d, err := h.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		h.note(rel, "left out: %v", err)
		return out, nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list /%s: %w", rel, err)
	}
	for _, n := range names {
		if out, err = h.collect(d, path.Join(rel, n), depth+1, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readLink returns a link's target.
func (h *host) readLink(rel string) (string, error) {
	f, err := h.open(rel, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: "/" + rel, Err: err}
	}
	return string(buf[:n]), nil
}

// stamp appends what changes when a thing does, as far as a stat can tell.
func (s *source) stamp(b []byte) []byte {
	b = append(append(b, s.path...), 0)
	b = binary.AppendUvarint(b, uint64(s.stat.Mode))
	if s.is(unix.S_IFDIR) { // what is in it has stamps of its own
		return b
	}
	b = binary.AppendVarint(b, s.stat.Size)
	b = binary.AppendUvarint(b, s.stat.Ino)
	b = binary.AppendVarint(b, s.stat.Mtim.Nano())
	return binary.AppendVarint(b, s.stat.Ctim.Nano())
}

var errPrivateKey = errors.New("it holds a private key")

// read reads a file that collect accepted, and checks it once more.
func (h *host) read(rel string) ([]byte, error) {
	f, err := h.open(rel, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o004 == 0 {
		return nil, errors.New("it is not a file that every user may read")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	if bytes.Contains(b, []byte("PRIVATE KEY-----")) {
		return nil, errPrivateKey
	}
	return b, nil
}

// readText reads a small file that may be missing.
func (h *host) readText(rel string) (string, error) {
	b, err := h.read(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// targetOf returns where a link leads, as a path inside the image.
func targetOf(link, target string) string {
	if filepath.IsAbs(target) {
		return path.Clean(target)
	}
	return path.Join("/", path.Dir(link), target)
}
