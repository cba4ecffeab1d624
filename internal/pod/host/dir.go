package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/home"
)

const (
	ownPrefix  = ".pod-" // begins the name of a directory of ours, and of the mark in one
	logName    = "stderr.log"
	socketName = "sock"
)

// Dir is the runtime directory of a pod: one with its name below the base. One that was there is
// somebody else's, and stays as it is: what is ours lies beside it then.
type Dir struct {
	base, name, token string
}

// DirOf is the directory of a pod by the token by which it was made, or is to be.
func DirOf(base, name, token string) *Dir { return &Dir{base: base, name: name, token: token} }

// Path is the pod's directory.
func (d *Dir) Path() string { return filepath.Join(d.base, d.name) }

// Socket is the path of the pod's socket.
func (d *Dir) Socket() string { return filepath.Join(d.Path(), socketName) }

// own is where what is ours lies beside somebody else's directory.
func (d *Dir) own() string { return filepath.Join(d.base, ownPrefix+d.token) }

// made reports whether the pod's directory is ours: it has had the mark from its first moment on.
func (d *Dir) made() bool {
	_, err := os.Lstat(filepath.Join(d.Path(), ownPrefix+d.token))
	return err == nil
}

// Make makes the directory, or finds one. Its marked self gets the name only where
// nothing has it.
func (d *Dir) Make() error {
	if err := home.Make(d.base, 0o700); err != nil {
		return err
	}
	base, err := beneath.OpenDir(d.base)
	if err != nil {
		return err
	}
	defer base.Close()
	own := ownPrefix + d.token
	if err := base.Mkdir(own, 0o700); err != nil {
		return err
	}
	mark, err := base.Create(own+"/"+own, 0o600)
	if err != nil {
		return err
	}
	mark.Close()
	if err := base.Rename(own, d.name, unix.RENAME_NOREPLACE); err != nil && !errors.Is(err, fs.ErrExist) {
		return errors.Join(err, d.Remove())
	}
	return nil
}

// LogPath is where what the pod writes to its standard error is kept.
func (d *Dir) LogPath() string {
	if d.made() {
		return filepath.Join(d.Path(), logName)
	}
	return filepath.Join(d.own(), logName)
}

// Remove removes what Make made, with all that is in it. Where that is nothing it does nothing.
func (d *Dir) Remove() error {
	if err := os.RemoveAll(d.own()); err != nil {
		return err
	}
	if !d.made() {
		return nil
	}
	// Under the other name first: half of it would have no mark.
	base, err := beneath.OpenDir(d.base)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := base.Rename(d.name, ownPrefix+d.token, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return os.RemoveAll(d.own())
}
