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

// Guard returns dir with the content of what reader may not read refused: fs.ErrPermission. A
// nil reader may read all.
func Guard(dir Node, reader *rights.Reader) Node {
	if reader == nil {
		return dir
	}
	return guarded{dir, reader}
}

func (g guarded) may() (may bool, err error) {
	uid, gid, mode := g.Owner()
	may = g.reader.May(uid, gid, mode, func() bool {
		var list []byte
		list, err = g.Attribute(rights.ACL)
		return list != nil
	})
	return may, err
}

func (g guarded) Open() (io.ReadCloser, error) {
	may, err := g.may()
	if err == nil && !may {
		err = fs.ErrPermission
	}
	if err != nil {
		return nil, err
	}
	return g.Node.Open()
}

func (g guarded) Child(name string) (Node, error) {
	n, err := g.Node.Child(name)
	if err != nil {
		return nil, err
	}
	return guarded{n, g.reader}, nil
}

func (g guarded) Children(f func(name string, node func() (Node, error)) error) error {
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

// Refused counts the files in and below dir whose content Guard refuses.
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
		switch n.Type() {
		case Directory:
			below, err := refused(n, depth+1)
			count += below
			return err
		case File:
			g, ok := n.(guarded)
			if !ok {
				return nil
			}
			may, err := g.may()
			if err == nil && !may {
				count++
			}
			return err
		}
		return nil
	})
	return count, err
}
