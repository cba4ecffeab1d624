package stack

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// guarded is a file of a layer of which not all may be read.
type guarded struct {
	Node
	reader *rights.Reader
}

// Guard returns dir with the content of what reader may not read refused: fs.ErrPermission. So is what is in a
// directory that reader may not list, where an overlay copied that from the layer below. A nil reader may read all.
func Guard(dir Node, reader *rights.Reader) Node {
	if reader == nil {
		return dir
	}
	return guarded{dir, reader}
}

// origin is on what an overlay copied up.
const origin = "trusted.overlay.origin"

func (g guarded) may() (may bool, err error) {
	uid, gid, mode := g.Owner()
	acl := func() bool {
		var list []byte
		list, err = g.Attribute(rights.ACL)
		return list != nil
	}
	if g.Type() != Directory {
		may = g.reader.May(uid, gid, mode, acl)
		return may, err
	}
	if may = g.reader.MayList(uid, gid, mode, acl); may || err != nil {
		return may, err
	}
	copied, err := g.Attribute(origin)
	return copied == nil, err
}

func (g guarded) check() error {
	may, err := g.may()
	if err == nil && !may {
		err = fs.ErrPermission
	}
	return err
}

func (g guarded) Open() (io.ReadCloser, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Node.Open()
}

func (g guarded) Child(name string) (Node, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	n, err := g.Node.Child(name)
	if err != nil {
		return nil, err
	}
	return guarded{n, g.reader}, nil
}

func (g guarded) Children(f func(name string, node func() (Node, error)) error) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Node.Children(func(name string, node func() (Node, error)) error {
		return f(name, func() (Node, error) {
			n, err := node()
			if err != nil {
				return nil, err
			}
			return guarded{n, g.reader}, nil
		})
	})
}

// maxDepth bounds how deep Refused looks: a directory of a damaged image may lie in itself.
const maxDepth = 4096

// Refused counts the files and directories in and below dir whose content Guard refuses.
func Refused(dir Node) (int, error) { return refused(dir, 0) }

func refused(dir Node, depth int) (count int, err error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("directories deeper than %d", maxDepth)
	}
	err = dir.Children(func(_ string, node func() (Node, error)) error {
		n, err := node()
		if err != nil {
			return err
		}
		kind := n.Type()
		if g, ok := n.(guarded); ok && (kind == File || kind == Directory) {
			if may, err := g.may(); err != nil || !may {
				count++
				return err
			}
		}
		if kind != Directory {
			return nil
		}
		below, err := refused(n, depth+1)
		count += below
		return err
	})
	return count, err
}
