package beneath

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// FS returns the directory as a file system to walk in. A link is looked at
// itself, and its name can't be opened.
func (d *Dir) FS() fs.FS { return tree{d} }

type tree struct{ d *Dir }

// Open opens for reading.
func (t tree) Open(name string) (fs.File, error) {
	f, err := t.d.Open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return f, nil
}

// Stat is Lstat.
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.d.Lstat(name) }

// Lstat looks at a name itself.
func (t tree) Lstat(name string) (fs.FileInfo, error) { return t.d.Lstat(name) }

// ReadLink reads a link.
func (t tree) ReadLink(name string) (string, error) { return t.d.Readlink(name) }
