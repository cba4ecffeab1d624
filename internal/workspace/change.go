package workspace

import (
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Kind says what a Change put at its path.
type Kind string

// The kinds. The stream carries their text, so one is never renamed.
const (
	File    Kind = "file"
	Dir     Kind = "dir"
	Symlink Kind = "symlink"
	Deleted Kind = "deleted" // nothing: what the base has there is gone
	Special Kind = "special" // something that is named and never copied; Detail says what
)

// Bounds of a stream. What lies beyond is an error for the reader and a
// Special change for the writer.
const (
	maxPath    = 4095    // bytes of a path, and of a link's target
	maxName    = 255     // bytes of one component
	MaxDepth   = 512     // components
	maxEntries = 4 << 20 // changes in a stream
	maxExtents = 4096    // pieces of data in a sparse file

	maxFileSize = 1 << 60
)

// Change is one path of a workspace that is not as the base has it, or may
// not be: an overlay names what was copied up, changed or not. Compare tells.
type Change struct {
	Path    string    `json:"path"` // relative, slash-separated, clean, never "."
	Kind    Kind      `json:"kind"`
	Mode    uint32    `json:"mode,omitempty"`   // permission, set-id and sticky bits: 07777
	Size    int64     `json:"size,omitempty"`   // of a file, in bytes, holes included
	ModTime time.Time `json:"mtime,omitzero"`   // as the agent left it
	Digest  Digest    `json:"digest,omitzero"`  // of a file's content
	Target  string    `json:"target,omitempty"` // of a symlink
	Detail  string    `json:"detail,omitempty"` // of a Special: "fifo", "socket", "device", "too deep", "too fragmented", "file or directory that its directory's owner may not read"
	// Opaque says of a directory that nothing of the base's shows through:
	// what the stream does not name in it is gone.
	Opaque bool `json:"opaque,omitempty"`
	// Copied says that what is here began as the base's: at this path or, if
	// the agent renamed it, at another.
	Copied bool `json:"copied,omitempty"`
	// Origin is what of the base it began as, where the stream was asked for that. An apply goes by it to
	// leave in the base what is taken nowhere else.
	Origin Origin `json:"-"`
	// Self identifies it in the workspace, by whatever path: what an apply made of it is known by that later.
	Self Origin `json:"-"`
	// Shown says of a directory that the sandbox, which runs, has the directory of the base that it began as
	// open: where that is removed, the sandbox can't list this one until it is started again.
	Shown bool `json:"-"`

	// Extents are the pieces of a file that hold data, ascending; the rest
	// reads as zeros. Nil means one piece: the whole file.
	Extents []Extent `json:"-"`
	// Body is the data of the extents, one after the other. It is nil where
	// the stream has no content, and valid until the next change is read.
	Body io.Reader `json:"-"`
}

// Extent is a piece of a file, in bytes.
type Extent struct{ Offset, Length int64 }

// extents returns the pieces of c that hold data, never nil for a file that
// has any.
func (c *Change) extents() []Extent {
	if c.Extents == nil && c.Size > 0 {
		return []Extent{{0, c.Size}}
	}
	return c.Extents
}

// dataSize is the number of bytes that extents cover.
func dataSize(ext []Extent) int64 {
	var n int64
	for _, e := range ext {
		n += e.Length
	}
	return n
}

// Digest identifies a file's content. It is a SHA-256, not of the bytes alone
// but of the size and of those 64 KiB blocks that are not all zeros, each with
// its number: a hole costs nothing, however large the agent made it.
type Digest [32]byte

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns d in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes d in hexadecimal.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (d *Digest) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(d) {
		return fmt.Errorf("digest: %d characters, want %d", len(b), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// checkPath returns why p is no path of a Change, or nil.
func checkPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("empty path")
	case len(p) > maxPath:
		return fmt.Errorf("path of %d bytes, at most %d", len(p), maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("path with a NUL byte")
	}
	depth := 0
	for name := range strings.SplitSeq(p, "/") {
		depth++
		switch {
		case name == "":
			return fmt.Errorf("path with an empty component")
		case name == "." || name == "..":
			return fmt.Errorf("path with a %q component", name)
		case len(name) > maxName:
			return fmt.Errorf("name of %d bytes, at most %d", len(name), maxName)
		case depth > MaxDepth:
			return fmt.Errorf("path of more than %d components", MaxDepth)
		}
	}
	return nil
}

// comparePaths orders paths as a walk with sorted directories meets them: a
// directory, all that is below it, then its next sibling.
func comparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		case a[i] < b[i]:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// below reports whether p is dir or lies below it. Everything is below ".".
func below(p, dir string) bool {
	if dir == "." || p == dir {
		return true
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && strings.HasPrefix(p, dir)
}

// splitPath returns p's parent, "." for none, and its last component.
func splitPath(p string) (parent, name string) {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return ".", p
}

// joinPath is the path of name in dir.
func joinPath(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// selection is a set of paths with all that is below them. The empty one
// holds everything.
type selection []string

// CheckPaths refuses paths that are not below a workspace, or can't be anywhere.
func CheckPaths(paths []string) error {
	_, err := newSelection(paths)
	return err
}

// newSelection cleans what a user typed: relative paths, "." and "dir/".
func newSelection(paths []string) (selection, error) {
	var s selection
	all := false
	for _, p := range paths {
		c := path.Clean(p)
		if p == "" || c == ".." || strings.HasPrefix(c, "../") || path.IsAbs(c) {
			return nil, sandbox.Errorf(sandbox.Invalid, "path %q: not inside the workspace", term.Escape(p)).
				WithHint("paths are relative to the workspace: src/main.go")
		}
		if c == "." {
			all = true
			continue
		}
		if err := checkPath(c); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "path %q: %w", term.Escape(p), err)
		}
		s = append(s, c)
	}
	if all {
		return nil, nil
	}
	slices.SortFunc(s, comparePaths)
	kept := s[:0]
	for _, p := range s { // what is below another path adds nothing
		if len(kept) == 0 || !below(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// has reports whether p is selected.
func (s selection) has(p string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(sel string) bool { return below(p, sel) })
}

// leads reports whether p is a parent of something selected.
func (s selection) leads(p string) bool {
	return slices.ContainsFunc(s, func(sel string) bool { return sel != p && below(sel, p) })
}

// under returns the selected paths that lie below p.
func (s selection) under(p string) []string {
	var out []string
	for _, sel := range s {
		if sel != p && below(sel, p) {
			out = append(out, sel)
		}
	}
	return out
}

func sortMarks(marks []Mark) {
	slices.SortFunc(marks, func(a, b Mark) int {
		if c := comparePaths(a.Path, b.Path); c != 0 || a.Others == b.Others {
			return c
		}
		if a.Others {
			return 1
		}
		return -1
	})
}

func entriesText(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
