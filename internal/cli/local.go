package cli

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// local is a path on this machine, in an open directory: what it leads to was
// found without following a link that a sandbox could have made.
type local struct {
	dir  *beneath.Dir
	name string // in dir
	kind kind   // what is there now
	mode fs.FileMode
}

func (l *local) close() { _ = l.dir.Close() } // a directory

// openLocal opens the directory that path is in, and looks at path itself: a
// link, unless a slash at its end asks for more.
func openLocal(path string) (*local, error) {
	dir, name, err := beneath.Parent(path)
	if err != nil {
		return nil, localError(path, err)
	}
	l := &local{dir: dir, name: name}
	fi, err := dir.Lstat(name)
	switch {
	case err != nil:
		l.close()
		return nil, localError(path, err)
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
			return nil, localError(path, err)
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
		return nil, usagef("cp: %s is neither a file nor a directory", quoteArg(path))
	case l.kind == file:
		return l, nil
	}
	defer l.close()
	dir, err := l.dir.OpenDir(l.name)
	if err != nil {
		return nil, localError(path, err)
	}
	return &local{dir: dir, name: ".", kind: directory}, nil
}

// localError is what cp says of a path of this machine.
func localError(path string, err error) error {
	if link := linkError("cp", err); link != nil {
		return link
	}
	return usagef("cp: %s: %w", quoteArg(path), pathless(err))
}

// linkError is the error for a path that leads through a link, nil for others.
func linkError(what string, err error) error {
	link, ok := errors.AsType[*beneath.LinkError](err)
	if !ok {
		return nil
	}
	return usagef("%s: %w", what, link).WithHint("if it is yours, name what it leads to: readlink -f %s", quoteArg(link.Path))
}
