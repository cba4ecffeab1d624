package archive

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// local is a path on this machine, in an open directory: what it leads to was
// found without following a link that a sandbox could have made.
type local struct {
	dir  *beneath.Dir
	name string // in dir
	kind kind   // what is there now
	mode fs.FileMode
}

// close gives the directory back.
func (l *local) close() { _ = l.dir.Close() } // a directory

// openLocal opens the directory that path is in, and looks at path itself: a
// link, unless a slash at its end asks for more.
func openLocal(path string) (*local, error) {
	dir, name, err := beneath.Parent(path)
	if err != nil {
		return nil, usage.Path("cp", path, err)
	}
	l := &local{dir: dir, name: name}
	fi, err := dir.Lstat(name)
	switch {
	case err != nil:
		l.close()
		return nil, usage.Path("cp", path, err)
	case fi.IsDir():
		l.kind = directory
	default:
		l.kind = file
	}
	l.mode = fi.Mode()
	return l, nil
}

// openTarget opens where a copy is to be made: the directory path, or the one
// that a file of that name is in, or may be made in.
func openTarget(path string) (*local, error) {
	clean := filepath.Clean(path)
	l, err := openLocal(clean)
	if errors.Is(err, fs.ErrNotExist) {
		dir, name, err := beneath.Parent(clean)
		if err != nil {
			return nil, usage.Path("cp", path, err)
		}
		return &local{dir: dir, name: name}, nil
	}
	if err == nil && l.mode&fs.ModeSymlink != 0 {
		l.close()
		l, err = openLocal(clean + "/") // it says which link it is, or leads to a directory
	}
	if err != nil {
		return nil, err
	}
	switch {
	case l.kind == file && !l.mode.IsRegular():
		l.close()
		return nil, usage.Errorf("cp: %s is neither a file nor a directory", shell.Word(path))
	case l.kind == file:
		return l, nil
	}
	defer l.close()
	dir, err := l.dir.OpenDir(l.name)
	if err != nil {
		return nil, usage.Path("cp", path, err)
	}
	return &local{dir: dir, name: ".", kind: directory}, nil
}

// kind of what is at a place.
type kind int

// What may be at a place. A File may be anything but a directory.
const (
	nothing kind = iota
	file
	directory
)
