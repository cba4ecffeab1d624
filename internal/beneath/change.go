package beneath

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// newPrefix begins the name of a file that WriteFile has not finished.
const newPrefix = ".new-"

// Mkdir makes a directory, with what the process's umask leaves of the mode.
// What has the name already is EEXIST.
func (d *Dir) Mkdir(rel string, mode uint32) error {
	return d.parent("mkdir", rel, func(dir int, name string) error { return unix.Mkdirat(dir, name, mode) })
}

// MkdirAll makes a directory and those above it that are missing.
func (d *Dir) MkdirAll(rel string, mode uint32) error {
	rel = path.Clean(rel)
	for end := 0; end < len(rel); {
		if i := strings.IndexByte(rel[end+1:], '/'); i >= 0 {
			end += 1 + i
		} else {
			end = len(rel)
		}
		sub, err := d.OpenDir(rel[:end])
		if errors.Is(err, unix.ENOENT) {
			if err = d.Mkdir(rel[:end], mode); errors.Is(err, unix.EEXIST) {
				err = nil
			}
			if err == nil {
				sub, err = d.OpenDir(rel[:end])
			}
		}
		if err != nil {
			return err
		}
		sub.Close()
	}
	return nil
}

// Create makes a new file for writing. What has the name already, a link too,
// is EEXIST.
func (d *Dir) Create(rel string, mode uint32) (f *os.File, err error) {
	err = d.parent("create", rel, func(dir int, name string) error {
		f, err = create(dir, name, mode, filepath.Join(d.f.Name(), rel))
		return err
	})
	return f, err
}

func create(dir int, name string, mode uint32, shown string) (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), shown), nil
	}
}

// WriteFile makes a new file with that mode and gives it the name when all is
// in it, in place of what had the name. A directory is not replaced. It is for
// what an instance is started with and ends with the machine, and waits for no disk:
// records are package durable's.
func (d *Dir) WriteFile(rel string, data []byte, mode uint32) error {
	return d.parent("write", rel, func(dir int, name string) error {
		if weak.On(weak.NamesFollowed) {
			return overwrite(dir, name, data, mode)
		}
		fresh := newPrefix + rand.Text()
		f, err := create(dir, fresh, 0o600, fresh)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		err = errors.Join(err, unix.Fchmod(int(f.Fd()), mode), f.Close())
		if err == nil {
			err = unix.Renameat(dir, fresh, dir, name)
		}
		if err != nil {
			return errors.Join(err, unix.Unlinkat(dir, fresh, 0))
		}
		return nil
	})
}

// overwrite is what a write by path does.
func overwrite(dir int, name string, data []byte, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Rename renames, with the flags of renameat2: RENAME_NOREPLACE, for one. A
// link is renamed itself.
func (d *Dir) Rename(from, to string, flags uint) error {
	return d.parent("rename", from, func(fromDir int, fromName string) error {
		return d.parent("rename", to, func(toDir int, toName string) error {
			return unix.Renameat2(fromDir, fromName, toDir, toName, flags)
		})
	})
}

// Chmod sets the mode, set-id bits included, of what is no link.
func (d *Dir) Chmod(rel string, mode uint32) error {
	f, err := d.Open(rel, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Chmod(Path(f), mode); err != nil { // fchmod takes no O_PATH
		return d.fault("chmod", rel, err)
	}
	return nil
}

// Chown gives what is no link to others.
func (d *Dir) Chown(rel string, uid, gid int) error {
	f, err := d.Open(rel, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fchownat(int(f.Fd()), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return d.fault("chown", rel, err)
	}
	return nil
}

// Symlink makes a link. What has the name already is EEXIST.
func (d *Dir) Symlink(target, rel string) error {
	return d.parent("symlink", rel, func(dir int, name string) error { return unix.Symlinkat(target, dir, name) })
}

// Link gives a regular file a further name. Anything else is ErrNotRegular.
func (d *Dir) Link(from, to string) error {
	f, err := d.Open(from, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return d.fault("stat", from, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return d.fault("link", from, ErrNotRegular)
	}
	return d.parent("link", to, func(dir int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, Path(f), dir, name, unix.AT_SYMLINK_FOLLOW)
	})
}

// Unlink deletes what has the name and is no directory.
func (d *Dir) Unlink(rel string) error {
	return d.parent("unlink", rel, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) })
}
