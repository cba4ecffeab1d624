package stack

import (
	"io"
)

// Type is what a file is.
type Type int

// The types of files.
const (
	Other Type = iota // a pipe, a socket or a device
	File
	Directory
	Link
	Whiteout // the character device 0/0: there is nothing here, nor in what lies below
)

// Node is a file of one layer. It belongs to one goroutine.
type Node interface {
	Type() Type
	Size() int64
	// Owner returns whom the file belongs to, as its layer has it, and its permission bits.
	Owner() (uid, gid, mode uint32)
	Readlink() (string, error)
	// Open opens a File's content.
	Open() (io.ReadCloser, error)
	// Attribute returns an extended attribute, by its whole name; nil: it has none. Of one that is longer
	// than those that overlays make, it may be zeros.
	Attribute(name string) ([]byte, error)
	// Child returns what a Directory has by a name, or fs.ErrNotExist.
	Child(name string) (Node, error)
	// Children calls f for what a Directory has. node is to be called in f, or never.
	Children(f func(name string, node func() (Node, error)) error) error
}

// Mount is a place of the view with layers of its own.
type Mount struct {
	Path   string // absolute and clean
	Layers []Node // directories, the topmost first; none: nothing of it is at hand
	// Note says why nothing is shown there; "": nothing was to be seen.
	Note string
}
