package hostimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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
	mode   fs.FileMode
	target string // of a link
	stamp  string // changes when the thing does
}

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
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(h.root.Fd()), rel, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: "/" + rel, Err: err}
		}
		return os.NewFile(uintptr(fd), "/"+rel), nil
	}
}

// sources lists everything that the table allows and the host has, in order.
func (h *host) sources(ctx context.Context) ([]source, error) {
	var out []source
	for _, a := range table {
		names, err := h.expand(a.path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if out, err = h.collect(name, 0, out); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(out, func(a, b source) bool { return a.path == b.path }), nil
}

// expand returns the paths that an entry of the table stands for. A star is
// understood in the last name only.
func (h *host) expand(pattern string) ([]string, error) {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}, nil
	}
	d, err := h.open(path.Dir(pattern), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list /%s: %w", path.Dir(pattern), err)
	}
	var out []string
	for _, n := range names {
		if ok, err := path.Match(path.Base(pattern), n); err == nil && ok {
			out = append(out, path.Join(path.Dir(pattern), n))
		}
	}
	return out, nil
}

// collect adds a file, a link, or a directory with all that is below it.
func (h *host) collect(rel string, depth int, out []source) ([]source, error) {
	if len(out) >= maxFiles {
		return nil, fmt.Errorf("more than %d files to copy", maxFiles)
	}
	f, err := h.open(rel, unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return out, nil
	}
	if errors.Is(err, unix.ELOOP) {
		h.note(rel, "left out: a directory above it is a link")
		return out, nil
	}
	if err != nil {
		h.note(rel, "left out: %v", err)
		return out, nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s := source{path: rel, mode: fi.Mode(), stamp: stamp(fi)}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		return h.collectLink(rel, f, out)
	case fi.Mode().IsRegular() && fi.Mode().Perm()&0o004 == 0, fi.IsDir() && fi.Mode().Perm()&0o005 != 0o005:
		h.note(rel, "left out: not every user may read it")
		return out, nil
	case fi.Mode().IsRegular() && fi.Size() > maxFile:
		h.note(rel, "left out: larger than %d bytes", maxFile)
		return out, nil
	case fi.Mode().IsRegular():
		return append(out, s), nil
	case fi.IsDir() && depth < maxDepth:
		return h.collectDir(s, depth, append(out, s))
	}
	h.note(rel, "left out: neither file, link nor directory, or too deep")
	return out, nil
}

func (h *host) collectDir(s source, depth int, out []source) ([]source, error) {
	d, err := h.open(s.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		h.note(s.path, "left out: %v", err)
		return out, nil
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, fmt.Errorf("list /%s: %w", s.path, err)
	}
	for _, n := range names {
		if out, err = h.collect(path.Join(s.path, n), depth+1, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// collectLink adds a link, which link is opened by O_PATH.
func (h *host) collectLink(rel string, link *os.File, out []source) ([]source, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(link.Fd()), "", buf)
	if err != nil {
		h.note(rel, "left out: %v", err)
		return out, nil
	}
	target := string(buf[:n])
	return append(out, source{path: rel, mode: fs.ModeSymlink | 0o777, target: target, stamp: target}), nil
}

// stamp names the state of a file as far as a stat can tell.
func stamp(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fi.ModTime().String()
	}
	if fi.IsDir() { // what is in it has stamps of its own
		return fi.Mode().String()
	}
	return fmt.Sprint(fi.Mode(), st.Size, st.Mtim, st.Ctim, st.Ino)
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
