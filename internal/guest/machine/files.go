package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tree is a file system in memory whose files are rewritten in place: commands see them by
// mounts that a new file would not get into.
type tree struct {
	dir   string
	files map[string]*os.File
}

// treeSize bounds it: what /proc/stat and /proc/cpuinfo of a large machine come to, and more.
const treeSize = "size=16m,nr_inodes=256,mode=0755"

// newTree mounts a tree on a directory, which is made.
func newTree(dir string) (*tree, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, treeSize); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	return &tree{dir: dir, files: map[string]*os.File{}}, nil
}

func (t *tree) at(name string) string { return filepath.Join(t.dir, name) }

// put makes text the content of a file. Who reads it meanwhile may get some of the old one
// after the new one.
func (t *tree) put(name string, text []byte) error {
	f := t.files[name]
	if f == nil {
		if err := os.MkdirAll(filepath.Dir(t.at(name)), 0o755); err != nil {
			return err
		}
		var err error
		if f, err = os.OpenFile(t.at(name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o444); err != nil {
			return err
		}
		t.files[name] = f
	}
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	if before.Size() > int64(len(text)) {
		return f.Truncate(int64(len(text)))
	}
	return nil
}

// line is put for a file of one line.
func (t *tree) line(name, text string) error { return t.put(name, []byte(text+"\n")) }

// close gives up what is open, and the mount.
func (t *tree) close() error {
	var errs []error
	for _, f := range t.files {
		errs = append(errs, f.Close())
	}
	clear(t.files)
	return errors.Join(append(errs, unix.Unmount(t.dir, unix.MNT_DETACH))...)
}
