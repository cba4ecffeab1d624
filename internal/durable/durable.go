// Package durable is how a record gets to the disk: into a file of another name
// first, with its content on the disk before it gets its own, and that name on
// the disk before the writer goes on. Wherever the process or the machine ends, the
// next one finds the record of before or the new one, whole. A disk that is full
// leaves the one of before.
//
// It refuses to write through what has the name: a link is replaced, not followed.
package durable

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Prefix begins the name of a file that is not whole yet. One that is found when
// nobody writes is of a process that was killed.
const Prefix = ".new-"

// The steps that Options.Step is told of.
const (
	Created = "created" // the temporary file is there, and empty
	Written = "written" // it is whole and on the disk
	Named   = "named"   // the record has it, if the machine does not go down now
)

// Options tune a write. The zero value works.
type Options struct {
	Mode fs.FileMode // whatever the umask; default: 0600
	// Temp is where Write makes its temporary file, on the record's file system;
	// default: beside the record.
	Temp string
	// Keep leaves what has the name: the write is fs.ErrExist then.
	Keep bool
	// Step is told what was just done; the write fails with its error.
	Step func(step string) error
}

// Write puts data at path, whose directory nobody untrusted can change. After an
// error the record of before is there; after one of syncing the directory, the
// new one may be.
func Write(path string, data []byte, o Options) error {
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	temp := dir
	if o.Temp != "" {
		if temp, err = openDir(o.Temp); err != nil {
			return err
		}
		defer temp.Close()
	}
	return write(temp, dir, filepath.Base(path), data, o)
}

// WriteIn is Write for a directory that is open: a guest may change what is in it,
// and other names may lead to it meanwhile. The name has one part. Temp is not looked at.
func WriteIn(dir *beneath.Dir, name string, data []byte, o Options) error {
	return write(dir, dir, name, data, o)
}

func write(temp, dir *beneath.Dir, name string, data []byte, o Options) error {
	f, err := Create(temp, o)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit(dir, name)
}

// File is a record in the making. It is open for reading and writing.
type File struct {
	*os.File
	temp *beneath.Dir
	name string // in temp; "" once it has another, or is gone
	o    Options
}

// Create makes the temporary file of a record in temp, which must stay open until
// it is committed or discarded.
func Create(temp *beneath.Dir, o Options) (*File, error) {
	name := Prefix + rand.Text()
	shown := filepath.Join(temp.Name(), name)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(temp.Fd(), name, flags, 0o600)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(temp.Fd(), name, flags, 0o600)
	}
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: shown, Err: err}
	}
	f := &File{os.NewFile(uintptr(fd), shown), temp, name, o}
	if err := f.step(Created); err != nil {
		f.Discard()
		return nil, err
	}
	return f, nil
}

// Commit closes the file and gives it a name of one part in dir, which is on the
// file system of its temporary directory. Where it fails, Discard is still to be called.
func (f *File) Commit(dir *beneath.Dir, name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return &os.PathError{Op: "write", Path: name, Err: unix.EINVAL}
	}
	if err := errors.Join(f.Chmod(cmp.Or(f.o.Mode, 0o600)), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := f.step(Written); err != nil {
		return err
	}
	if err := f.give(dir, name); err != nil {
		return &os.PathError{Op: "write", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	if err := f.step(Named); err != nil {
		return err
	}
	f.Discard()
	return Sync(dir)
}

func (f *File) give(dir *beneath.Dir, name string) error {
	if f.o.Keep {
		return unix.Linkat(f.temp.Fd(), f.name, dir.Fd(), name, 0)
	}
	err := unix.Renameat(f.temp.Fd(), f.name, dir.Fd(), name)
	if err == nil {
		f.name = ""
	}
	return err
}

// Discard closes the file and removes it, unless it was committed.
func (f *File) Discard() {
	_ = f.Close() // its content counts no more, or is on the disk
	if f.name != "" {
		_ = unix.Unlinkat(f.temp.Fd(), f.name, 0) // best effort: Sweep removes what stays
		f.name = ""
	}
}

func (f *File) step(what string) error {
	if f.o.Step == nil {
		return nil
	}
	return f.o.Step(what)
}

// Rename gives a file or directory of ours, whose content is on the disk, another name
// there, with the flags of renameat2.
func Rename(from, to string, flags uint) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	if above := filepath.Dir(from); above != filepath.Dir(to) {
		if err := SyncDir(above); err != nil {
			return err
		}
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir has the names in a directory on the disk.
func SyncDir(path string) error {
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return Sync(dir)
}

// Sync is SyncDir for a directory that is open.
func Sync(dir *beneath.Dir) error {
	// Open once more: by the handle that names begin at, it can't be synced.
	fd, err := unix.Openat(dir.Fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "sync", Path: dir.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // a file system without a way to
		return err
	}
	return nil
}

// Sweep removes what writers left in a directory that were killed. None may be at
// work there. A directory that is not there is no error.
func Sweep(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Prefix) && !e.IsDir() {
			err = errors.Join(err, os.Remove(filepath.Join(path, e.Name())))
		}
	}
	return err
}

// openDir opens a directory wherever its path leads.
func openDir(path string) (*beneath.Dir, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return beneath.In(f), nil
}
