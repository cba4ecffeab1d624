package workspace

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
