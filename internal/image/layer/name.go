package layer

import (
	"path"
	"strings"
)

// The prefixes of whiteouts, and the mark of an opaque directory.
const (
	whiteout   = ".wh."
	aufsMeta   = ".wh..wh."
	opaqueMark = ".wh..wh..opq"
)

// place returns where a name of the layer is: a path relative to its root,
// without a leading slash, "." components and doubled slashes. "." is the root.
func place(name string, longest int) (string, error) {
	switch {
	case name == "":
		return "", refuse("its name is empty")
	case len(name) > longest:
		return "", refuse("its name is %d bytes long, over %d", len(name), longest)
	case strings.IndexByte(name, 0) >= 0:
		return "", refuse("its name holds a NUL byte")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", refuse("its name has a \"..\" component")
		case len(part) > maxComponent:
			return "", refuse("a component of its name is %d bytes long, over %d", len(part), maxComponent)
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > maxDepth {
		return "", refuse("its name has %d components, over %d", depth, maxDepth)
	}
	if depth == 0 {
		return ".", nil
	}
	return path.Clean("/" + name)[1:], nil
}

// marking is what a name that begins like a whiteout stands for.
type marking int

const (
	ordinary  marking = iota
	hides             // hides target in the layers below
	hidesAll          // makes the directory target opaque
	forAufs           // is aufs's own bookkeeping
	forbidden         // no engine writes that
)

// marks tells what rel stands for.
func marks(rel string) (m marking, target string, err error) {
	if !strings.Contains(rel, whiteout) {
		return ordinary, "", nil
	}
	dir, base := path.Split(rel)
	for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		switch {
		case strings.HasPrefix(part, aufsMeta):
			return forAufs, "", nil
		case strings.HasPrefix(part, whiteout):
			return forbidden, "", refuse("it is below %s, the name of a whiteout", quote(part))
		}
	}
	name, isMark := strings.CutPrefix(base, whiteout)
	switch {
	case !isMark:
		return ordinary, "", nil
	case base == opaqueMark:
		return hidesAll, path.Dir(rel), nil
	case strings.HasPrefix(base, aufsMeta):
		return forAufs, "", nil
	case name == "":
		return forbidden, "", refuse("a whiteout of no name")
	case name == "." || name == "..":
		return forbidden, "", refuse("a whiteout of %q", name)
	}
	return hides, dir + name, nil
}
