package content

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// maxPath is how long a path may be, in bytes.
const maxPath = 4000

// cleanPath turns what a client asks for into a path below the root, "." for
// the root itself. It is absolute or not, and ".." goes no higher than the root.
func cleanPath(p string) (string, error) {
	switch {
	case p == "":
		return "", faultf(badRequest, "path: it is missing")
	case len(p) > maxPath:
		return "", faultf(badRequest, "path: longer than %d bytes", maxPath)
	case strings.ContainsRune(p, 0):
		return "", faultf(badRequest, "path: it has a NUL byte")
	}
	if p = path.Clean("/" + p)[1:]; p == "" {
		return ".", nil
	}
	return p, nil
}

// shown is a path below the root as clients see it.
func shown(rel string) string { return path.Join("/", rel) }

// root is a volume's root directory.
type root struct{ fd int }

// open opens what is at rel. Links on the way, and one at its end, are followed
// as long as they stay below the root.
func (r root) open(rel string, flags int) (int, error) {
	if weak.On(weak.VolumeLinksFollowed) {
		return unix.Openat(r.fd, rel, flags|unix.O_CLOEXEC, 0)
	}
	return beneath.Open(r.fd, rel, flags)
}

// parent opens the directory that rel is in, and returns rel's own name there.
func (r root) parent(rel string) (fd int, name string, err error) {
	dir, name := path.Split(rel)
	if dir == "" {
		dir = "."
	}
	fd, err = r.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	return fd, name, err
}

// file opens a regular file for reading.
func (r root) file(rel string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := r.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EACCES) { // a socket, or a device
			return nil, st, errNoFile
		}
		return nil, st, err
	}
	f := os.NewFile(uintptr(fd), rel)
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, errors.Join(err, f.Close())
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return f, st, nil
	case unix.S_IFDIR:
		err = faultf(badRequest, "%s: it is a directory", shown(rel))
	default:
		err = errNoFile
	}
	return nil, st, errors.Join(err, f.Close())
}
