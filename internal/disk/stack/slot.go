package stack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// slot gathers what the layers have by one name, from the topmost down.
type slot struct {
	node   Node
	mount  string // where another Mount is whose layers these are; "": they are the directory's own
	layers []sheet
	hidden bool // by a whiteout, above all else
	closed bool // what is below does not count
	// to is where what is below lies, if that was renamed: a name in the same directory, or a
	// path from the top of its layers with a slash before it.
	to string
}

// add takes what the next layer has. white: that layer's directory may have whiteouts that are
// files.
func (v *View) add(s *slot, n sheet, white bool) error {
	kind := n.Type()
	if white && kind == File && n.Size() == 0 {
		mark, err := n.Attribute(v.marks.white)
		if err != nil {
			return err
		}
		if mark != nil {
			kind = Whiteout
		}
	}
	switch {
	case kind == Directory:
		s.layers = append(s.layers, n)
		if n.lowest {
			return nil // the kernel heeds no marks there, whoever set them
		}
		var err error
		s.closed, s.to, err = v.marksOf(n)
		return err
	case len(s.layers) > 0: // a directory above hides it
	case kind == Whiteout:
		s.hidden = true
	default:
		s.node = n.Node
	}
	s.closed = true
	return nil
}

// marksOf reads what a directory of a layer says of what is below it: that none counts, or where
// that lies; "": at the directory's own path.
func (v *View) marksOf(dir Node) (opaque bool, to string, err error) {
	mark, err := dir.Attribute(v.marks.opaque)
	if opaque = bytes.Equal(mark, []byte("y")); opaque || err != nil {
		return opaque, "", err
	}
	if v.marks.redirect == "" {
		return false, "", nil
	}
	if mark, err = dir.Attribute(v.marks.redirect); mark == nil || err != nil {
		return false, "", err
	}
	to = string(mark)
	names := strings.Split(strings.TrimPrefix(to, "/"), "/")
	for _, name := range names {
		if name == "" || name == "." || name == ".." || len(names) > 1 && to[0] != '/' {
			return false, "", fmt.Errorf("%w: a redirect that no overlay makes: %.300q", fs.ErrInvalid, to)
		}
	}
	return false, to, nil
}

// mayHide reports whether a layer's directory may have whiteouts that are files.
func (v *View) mayHide(dir Node) (bool, error) {
	mark, err := dir.Attribute(v.marks.opaque)
	return bytes.Equal(mark, []byte("x")), err
}

func (s *slot) file(p, mount string) (file, bool) {
	return file{path: p, mount: mount, node: s.node, layers: s.layers}, !s.hidden && (s.node != nil || len(s.layers) > 0)
}

// look finds what the layers of a directory have by a name. As the kernel does it: each
// directory says where the layers below have what goes on in it, and a path from the top is
// walked layer by layer.
func (v *View) look(dir file, name string) (slot, error) {
	var s slot
	way := name
	todo := dir.layers
	for len(todo) > 0 && !s.closed {
		from := todo[0]
		todo = todo[1:]
		s.to = ""
		if err := v.lookIn(&s, from, way, dir.mount); err != nil {
			return s, err
		}
		if s.to == "" {
			continue
		}
		if way = s.to; strings.HasPrefix(way, "/") {
			todo = sheets(v.mounts[dir.mount])[from.layer+1:]
		}
	}
	return s, nil
}

// lookIn takes what one layer has by a name in a directory of its, or, where that begins with a slash, by a
// path from its top. s.to is set as slot.to is, for the layers below.
func (v *View) lookIn(s *slot, dir sheet, way, mount string) error {
	if !strings.HasPrefix(way, "/") {
		return v.addChild(s, dir, way)
	}
	dir = sheets(v.mounts[mount])[dir.layer]
	names := strings.Split(way[1:], "/")
	above := "" // the way to dir, for the layers below
	for i, name := range names {
		var here slot
		if i == len(names)-1 {
			here = *s
		}
		count := len(here.layers)
		if err := v.addChild(&here, dir, name); err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(here.to, "/"):
			above = here.to
		case here.to != "":
			above += "/" + here.to
		default:
			above += "/" + name
		}
		if i == len(names)-1 {
			*s = here
			break
		}
		s.closed = s.closed || here.closed
		if len(here.layers) == count { // this layer has no such directory
			above += "/" + strings.Join(names[i+1:], "/")
			break
		}
		dir = here.layers[count]
	}
	s.to = above
	return nil
}

// addChild takes what a directory of a layer has by a name, if it has that.
func (v *View) addChild(s *slot, dir sheet, name string) error {
	n, err := dir.Child(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	white, err := v.mayHide(dir)
	if err != nil {
		return err
	}
	return v.add(s, dir.below(n), white)
}
