package archive

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/shell"
)

// Local is a path on this machine, in an open directory: what it leads to was
// found without following a link that a sandbox could have made.
type Local struct {
	dir  *beneath.Dir
	Name string // in dir
	Kind Kind   // what is there now
	mode fs.FileMode
}

// Close gives the directory back.
func (l *Local) Close() { _ = l.dir.Close() } // a directory

// OpenLocal opens the directory that path is in, and looks at path itself: a
// link, unless a slash at its end asks for more.
func OpenLocal(path string) (*Local, error) {
	dir, name, err := beneath.Parent(path)
	if err != nil {
		return nil, usage.Path("cp", path, err)
	}
	l := &Local{dir: dir, Name: name}
	fi, err := dir.Lstat(name)
	switch {
	case err != nil:
		l.Close()
		return nil, usage.Path("cp", path, err)
	case fi.IsDir():
		l.Kind = Directory
	default:
		l.Kind = File
	}
	l.mode = fi.Mode()
	return l, nil
}

// OpenTarget opens where a copy is to be made: the directory path, or the one
// that a file of that name is in, or may be made in.
func OpenTarget(path string) (*Local, error) {
	clean := filepath.Clean(path)
	l, err := OpenLocal(clean)
	if errors.Is(err, fs.ErrNotExist) {
		dir, name, err := beneath.Parent(clean)
		if err != nil {
			return nil, usage.Path("cp", path, err)
		}
		return &Local{dir: dir, Name: name}, nil
	}
	if err == nil && l.mode&fs.ModeSymlink != 0 {
		l.Close()
		l, err = OpenLocal(clean + "/") // it says which link it is, or leads to a directory
	}
	if err != nil {
		return nil, err
	}
	switch {
	case l.Kind == File && !l.mode.IsRegular():
		l.Close()
		return nil, usage.Errorf("cp: %s is neither a file nor a directory", shell.Word(path))
	case l.Kind == File:
		return l, nil
	}
	defer l.Close()
	dir, err := l.dir.OpenDir(l.Name)
	if err != nil {
		return nil, usage.Path("cp", path, err)
	}
	return &Local{dir: dir, Name: ".", Kind: Directory}, nil
}

// Kind of what is at a place.
type Kind int

// What may be at a place. A File may be anything but a directory.
const (
	Nothing Kind = iota
	File
	Directory
)
