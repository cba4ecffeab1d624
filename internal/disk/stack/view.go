package stack

import (
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
	marks     marks
	unread    int // files that were left out, for they can't be read
	elsewhere int // directories that are another file system's
}

// New is the view of mounts, one of which is at "/". userMarks says that overlays keep their
// marks in attributes named user.overlay, not trusted.overlay.
func New(mounts []Mount, userMarks bool) *View {
	v := &View{
		mounts: map[string]Mount{}, points: map[string]map[string]bool{},
		marks: marks{opaque: "trusted.overlay.opaque", white: "trusted.overlay.whiteout", redirect: "trusted.overlay.redirect"},
	}
	if userMarks {
		v.marks = marks{opaque: "user.overlay.opaque", white: "user.overlay.whiteout"}
	}
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

// marks are the names of attributes that overlays mark files by.
type marks struct {
	opaque, white string
	redirect      string // "": the kernel follows none, for anybody can set such attributes
}

// file is one of the view: a directory, of several layers, or another's node.
type file struct {
	path   string
	mount  string  // where the Mount is whose layers these are of
	node   Node    // nil for a directory
	layers []sheet // of a directory, the topmost first
}

// sheet is what one layer of a Mount has.
type sheet struct {
	Node
	layer  int // its number, from the topmost on
	lowest bool
}

// below is the sheet of what the same layer has below s.
func (s sheet) below(n Node) sheet {
	s.Node = n
	return s
}

func (f file) isDir() bool { return f.node == nil }

func (f file) kind() Type {
	if f.node == nil {
		return Directory
	}
	return f.node.Type()
}

func (v *View) root() file { return file{path: "/", mount: "/", layers: sheets(v.mounts["/"])} }

func sheets(m Mount) (list []sheet) {
	for i, n := range m.Layers {
		list = append(list, sheet{n, i, i == len(m.Layers)-1})
	}
	return list
}

// at is the directory that is mounted at p, or that leads to one that is.
func (v *View) at(p string) (file, bool) {
	if m, ok := v.mounts[p]; ok {
		return file{path: p, mount: p, layers: sheets(m)}, true
	}
	return file{path: p, mount: p}, v.points[p] != nil
}

// child finds a name in a directory of the view.
func (v *View) child(dir file, name string) (file, error) {
	p := path.Join(dir.path, name)
	if _, ok := v.mounts[p]; ok {
		f, _ := v.at(p)
		return f, nil
	}
	s, err := v.look(dir, name)
	if err != nil {
		return file{}, err
	}
	if f, ok := s.file(p, dir.mount); ok {
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
			err = layer.Children(func(name string, node func() (Node, error)) error {
				return v.child1(ctx, slots, name, func() (sheet, error) {
					n, err := node()
					return layer.below(n), err
				}, white)
			})
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
		slots[name] = &slot{layers: f.layers, mount: f.mount}
	}
	list := make([]file, 0, len(slots))
	for name, s := range slots {
		p := path.Join(dir.path, name)
		if s.to != "" {
			found, err := v.look(dir, name)
			if err != nil && !v.pass(err) {
				return nil, err
			}
			s = &found
		}
		mount := dir.mount
		if s.mount != "" {
			mount = s.mount
		}
		if f, ok := s.file(p, mount); ok || v.points[dir.path][name] {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// child1 is children for one name of one layer.
func (v *View) child1(ctx context.Context, slots map[string]*slot, name string, node func() (sheet, error), white bool) error {
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
	if s.to != "" { // what is below lies elsewhere: look finds it
		s.closed = true
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
