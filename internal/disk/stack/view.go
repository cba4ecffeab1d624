package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// View is what was seen. It belongs to one goroutine.
type View struct {
	mounts map[string]Mount
	// points are the directories on the way to mounts, with the names of those in them that lead on.
	points    map[string]map[string]bool
	opaque    string // the attributes that overlays mark files by
	white     string
	unread    int // files that were left out, for they can't be read
	elsewhere int // directories that are another file system's
}

// New is the view of mounts, one of which is at "/". userMarks says that overlays keep their
// marks in attributes named user.overlay, not trusted.overlay.
func New(mounts []Mount, userMarks bool) *View {
	prefix := "trusted.overlay."
	if userMarks {
		prefix = "user.overlay."
	}
	v := &View{mounts: map[string]Mount{}, points: map[string]map[string]bool{}, opaque: prefix + "opaque", white: prefix + "whiteout"}
	for _, m := range mounts {
		v.mounts[m.Path] = m
		for at := m.Path; at != "/"; at = path.Dir(at) {
			above := path.Dir(at)
			if v.points[above] == nil {
				v.points[above] = map[string]bool{}
			}
			v.points[above][path.Base(at)] = true
		}
	}
	return v
}

// Notes says what was left out of what was listed or read at and below a path.
func (v *View) Notes(at string) []string {
	var notes []string
	for _, m := range v.mounts {
		if m.Note != "" && (within(m.Path, at) || within(at, m.Path)) {
			notes = append(notes, m.Path+": "+m.Note)
		}
	}
	slices.Sort(notes)
	if v.unread > 0 {
		notes = append(notes, fmt.Sprintf("left out, for only others may read it: %d of what lies below what the sandbox wrote", v.unread))
	}
	if v.elsewhere > 0 {
		notes = append(notes, fmt.Sprintf("left out: %d directories of the host on which something is mounted", v.elsewhere))
	}
	return notes
}

// within reports whether p is at or below dir.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// file is one of the view: a directory, of several layers, or another's node.
type file struct {
	path   string
	node   Node   // nil for a directory
	layers []Node // of a directory, the topmost first
}

func (f file) isDir() bool { return f.node == nil }

func (f file) kind() Type {
	if f.node == nil {
		return Directory
	}
	return f.node.Type()
}

func (v *View) root() file { return file{path: "/", layers: v.mounts["/"].Layers} }

// at is the directory that is mounted at p, or that leads to one that is.
func (v *View) at(p string) (file, bool) {
	if m, ok := v.mounts[p]; ok {
		return file{path: p, layers: m.Layers}, true
	}
	return file{path: p}, v.points[p] != nil
}

// slot gathers what the layers have by one name, from the topmost down.
type slot struct {
	node   Node
	layers []Node
	hidden bool // by a whiteout, above all else
	closed bool // what is below does not count
}

// add takes what the next layer has. white: that layer's directory may have whiteouts that are
// files.
func (v *View) add(s *slot, n Node, white bool) error {
	kind := n.Type()
	if white && kind == File && n.Size() == 0 {
		mark, err := n.Attribute(v.white)
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
		mark, err := n.Attribute(v.opaque)
		s.closed = bytes.Equal(mark, []byte("y"))
		return err
	case len(s.layers) > 0: // a directory above hides it
	case kind == Whiteout:
		s.hidden = true
	default:
		s.node = n
	}
	s.closed = true
	return nil
}

// mayHide reports whether a layer's directory may have whiteouts that are files.
func (v *View) mayHide(dir Node) (bool, error) {
	mark, err := dir.Attribute(v.opaque)
	return bytes.Equal(mark, []byte("x")), err
}

func (s *slot) file(p string) (file, bool) {
	return file{path: p, node: s.node, layers: s.layers}, !s.hidden && (s.node != nil || len(s.layers) > 0)
}

// child finds a name in a directory of the view.
func (v *View) child(dir file, name string) (file, error) {
	p := path.Join(dir.path, name)
	if _, ok := v.mounts[p]; ok {
		f, _ := v.at(p)
		return f, nil
	}
	var s slot
	for _, layer := range dir.layers {
		n, err := layer.Child(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var white bool
		if err == nil {
			white, err = v.mayHide(layer)
		}
		if err == nil {
			err = v.add(&s, n, white)
		}
		if err != nil {
			return file{}, err
		}
		if s.closed {
			break
		}
	}
	if f, ok := s.file(p); ok {
		return f, nil
	}
	if f, ok := v.at(p); ok {
		return f, nil
	}
	return file{}, fs.ErrNotExist
}

// children lists a directory of the view, in the order of names.
func (v *View) children(ctx context.Context, dir file) ([]file, error) {
	slots := map[string]*slot{}
	for _, layer := range dir.layers {
		white, err := v.mayHide(layer)
		if err == nil {
			err = layer.Children(func(name string, node func() (Node, error)) error { return v.child1(ctx, slots, name, node, white) })
		}
		if err != nil && !v.pass(err) {
			return nil, err
		}
	}
	for name := range v.points[dir.path] {
		p := path.Join(dir.path, name)
		f, _ := v.at(p)
		if s := slots[name]; s != nil && v.mounts[p].Path == "" && len(s.layers) > 0 {
			continue // it leads to a mount, and is there
		}
		slots[name] = &slot{layers: f.layers}
	}
	list := make([]file, 0, len(slots))
	for name, s := range slots {
		p := path.Join(dir.path, name)
		if f, ok := s.file(p); ok || v.points[dir.path][name] {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// child1 is children for one name of one layer.
func (v *View) child1(ctx context.Context, slots map[string]*slot, name string, node func() (Node, error), white bool) error {
	s := slots[name]
	if s == nil {
		if len(slots) >= maxChildren {
			return errTooMany
		}
		if len(slots)%batch == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s = &slot{}
		slots[name] = s
	}
	if s.closed {
		return nil
	}
	n, err := node()
	if err == nil {
		err = v.add(s, n, white)
	}
	if errors.Is(err, fs.ErrNotExist) || v.pass(err) {
		return nil
	}
	return err
}

// pass notes that something was left out for an error, if that is one for which it is.
func (v *View) pass(err error) bool {
	switch {
	case err == nil || !leftOut(err):
		return false
	case errors.Is(err, errElsewhere):
		v.elsewhere++
	default:
		v.unread++
	}
	return true
}
