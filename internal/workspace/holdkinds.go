package workspace

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxLinkSteps bounds how many names are looked at for one link.
const maxLinkSteps = 512

// linkWalk follows a link of the sandbox's over names that may be links
// themselves.
type linkWalk struct {
	targets func(p string) (targets []string, reason string) // where p leads, if it is a link
	left    int                                              // names to look at
}

// throughLinks returns why a symlink at p is held back for the links that its
// target leads through, or "".
func (c *comparer) throughLinks(p, target string) string {
	dir, _ := splitPath(p)
	w := &linkWalk{c.targets, maxLinkSteps}
	return w.along(dir, strings.Split(target, "/"))
}

// along goes from dir, which is reached by no link, along names.
func (w *linkWalk) along(dir string, names []string) string {
	for i, name := range names {
		if w.left--; w.left < 0 {
			return reasonLinkMay
		}
		switch name {
		case "", ".":
			continue
		case "..":
			if dir == "." {
				return reasonLinkOut
			}
			dir, _ = splitPath(dir)
			continue
		}
		dir = joinPath(dir, name)
		if HeldByName(dir) != "" {
			return reasonLinkHeld
		}
		targets, reason := w.targets(dir)
		if reason != "" {
			return reason
		}
		for _, target := range targets {
			if strings.HasPrefix(target, "/") {
				return reasonLinkOut + ", by " + term.Escape(dir)
			}
			up, _ := splitPath(dir)
			rest := append(strings.Split(target, "/"), names[i+1:]...)
			if reason := w.along(up, rest); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// targets returns where p leads, if it is a link: here, and in the sandbox. Both are
// followed: which of them it will be depends on what else is applied.
func (c *comparer) targets(p string) (targets []string, reason string) {
	st, err := c.base.stat(p)
	if err == nil && st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		var target string
		target, err = c.base.readlink(p)
		targets = append(targets, target)
	}
	if err != nil {
		return nil, reasonLinkMay + ": " + reasonFor(err)
	}
	if e := c.set.find(p); e != nil && e.Kind == Symlink {
		targets = append(targets, e.Target)
	}
	return targets, ""
}

// git takes any directory with a HEAD and either objects and refs or a
// commondir file for a repository, reads its config and runs its hooks, .git
// or not. Names that make one, as bits.
const (
	bareHead = 1 << iota
	bareObjects
	bareRefs
	bareCommon
)

var bareNames = []struct {
	name string
	bit  int
}{{"HEAD", bareHead}, {"objects", bareObjects}, {"refs", bareRefs}, {"commondir", bareCommon}}

func isBare(bits int) bool {
	return bits&bareHead != 0 && (bits&bareCommon != 0 || bits&(bareObjects|bareRefs) == bareObjects|bareRefs)
}

// bareFinder finds bare repositories among the directories as they would be if
// every change were applied, deletions apart.
type bareFinder struct {
	base  *Base
	set   map[string]int  // directory → bits of the names that the stream has in it
	known map[string]bool // directory → whether it is one
}

func newBareFinder(base *Base, set *Set) *bareFinder {
	f := &bareFinder{base: base, set: map[string]int{}, known: map[string]bool{}}
	for i := range set.entries {
		if set.entries[i].Kind == Deleted {
			continue
		}
		dir, name := splitPath(set.entries[i].Path)
		if bit := bareBit(foldName(name)); bit != 0 {
			f.set[dir] |= bit
		}
	}
	return f
}

func bareBit(folded string) int {
	switch folded {
	case "head":
		return bareHead
	case "objects":
		return bareObjects
	case "refs":
		return bareRefs
	case "commondir", "common~1", "common~2":
		return bareCommon
	case "object~1", "object~2":
		return bareObjects
	}
	return 0
}

// around reports whether p lies in a bare repository, or is one.
func (f *bareFinder) around(p string, isDir bool) bool {
	dir := p
	if !isDir {
		dir, _ = splitPath(p)
	}
	for ; ; dir, _ = splitPath(dir) {
		if f.is(dir) {
			return true
		}
		if dir == "." {
			return false
		}
	}
}

func (f *bareFinder) is(dir string) bool {
	if known, ok := f.known[dir]; ok {
		return known
	}
	bits := f.set[dir]
	for _, n := range bareNames {
		if bits&n.bit != 0 {
			continue
		}
		if st, err := f.base.stat(joinPath(dir, n.name)); err == nil && st != nil {
			bits |= n.bit
		}
		if bits&bareHead == 0 {
			break // HEAD comes first, and without it there is none
		}
	}
	f.known[dir] = isBare(bits)
	return f.known[dir]
}
