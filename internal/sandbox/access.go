package sandbox

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// Access says of a directory of a workspace, and of what is below, whether it is read-only for what runs inside.
type Access struct {
	Path     string `json:"path"` // in the workspace, without a slash before it; "." is all of it
	ReadOnly bool   `json:"read_only"`
}

// AccessList is what of a workspace is locked: ascending, and each says something else than what is around it. What is in none can be written to.
type AccessList []Access

// maxAccess bounds a list: each directory is a mount in every mount namespace inside.
const maxAccess = 64

// ReadOnly is what holds at a path.
func (l AccessList) ReadOnly(p string) bool {
	is := false
	for _, a := range l { // one around another comes before it
		if inAccess(p, a.Path) {
			is = a.ReadOnly
		}
	}
	return is
}

// With is l where a directory and all below is read-only, or can be written to.
func (l AccessList) With(dir string, readOnly bool) AccessList {
	out := slices.DeleteFunc(slices.Clone(l), func(a Access) bool { return inAccess(a.Path, dir) })
	if out.ReadOnly(dir) != readOnly {
		out = append(out, Access{dir, readOnly})
		slices.SortFunc(out, func(a, b Access) int { return strings.Compare(accessKey(a.Path), accessKey(b.Path)) })
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Locks reports whether something is read-only by l that was not by what was before.
func (l AccessList) Locks(was AccessList) bool {
	return slices.ContainsFunc(slices.Concat(l, was, AccessList{{Path: "."}}), func(a Access) bool {
		return l.ReadOnly(a.Path) && !was.ReadOnly(a.Path)
	})
}

// Whole reports whether nothing of the workspace can be written to.
func (l AccessList) Whole() bool { return len(l) == 1 && l[0] == Access{".", true} }

// String is what a person reads: "src, docs, not docs/draft"; "all" for ".".
func (l AccessList) String() string {
	parts := make([]string, len(l))
	for i, a := range l {
		if parts[i] = accessName(a.Path); !a.ReadOnly {
			parts[i] = "not " + parts[i]
		}
	}
	return strings.Join(parts, ", ")
}

func accessName(p string) string {
	if p == "." {
		return "all"
	}
	return p
}

func inAccess(p, dir string) bool { return dir == "." || p == dir || strings.HasPrefix(p, dir+"/") }

// accessKey sorts "." first.
func accessKey(p string) string {
	if p == "." {
		return ""
	}
	return p
}

// accessPath reads what a user calls a directory of the workspace: as it is seen inside, or from the workspace on.
func accessPath(name string) (string, error) {
	p := name
	if rest, ok := strings.CutPrefix(p, WorkspacePath); ok && (rest == "" || rest[0] == '/') {
		p = strings.TrimPrefix(rest, "/")
	}
	clean := path.Clean(p)
	if name == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(p, 0) || len(p) > maxAccessPath {
		return "", Errorf(Invalid, "%.200q is no directory of the workspace", name).
			WithHint("name it from %[1]s on, as src or %[1]s/src", WorkspacePath)
	}
	return clean, nil
}

const maxAccessPath = 4000 // bytes

// UnmarshalJSON reads a list, and what was written before there were parts: whether all is locked.
func (l *AccessList) UnmarshalJSON(b []byte) error {
	var whole bool
	if json.Unmarshal(b, &whole) == nil {
		if *l = nil; whole {
			*l = AccessList{{".", true}}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]Access)(l))
}
