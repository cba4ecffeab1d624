package gitgate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

// What refs there are, here and upstream.
const (
	branches = "refs/heads/"
	tags     = "refs/tags/"
	notes    = "refs/notes/"
)

const (
	maxRefPart = 240     // bytes of one part of a name, which is a file's
	maxRefName = 1 << 10 // bytes of a whole one
)

// kept reports whether a ref is one that passes here.
func kept(name string) bool { return gitremote.Carried(name) }

// checkRef refuses a name that no ref may have, by git's rules and some more: nothing in it
// may deceive who reads it.
func checkRef(name string) error {
	if !kept(name) {
		return fmt.Errorf("the ref %.80q: only branches, tags and notes pass", name)
	}
	return checkName(name)
}

// checkName is checkRef for refs of any kind.
func checkName(name string) error {
	rest := strings.TrimPrefix(name, "refs/")
	for _, prefix := range []string{branches, tags, notes} {
		if s, ok := strings.CutPrefix(name, prefix); ok {
			rest = s
		}
	}
	bad := func(why string) error { return fmt.Errorf("the ref %.80q: %s", name, why) }
	switch {
	case !strings.HasPrefix(name, "refs/"):
		return bad("it is none that can be pushed")
	case rest == "" || strings.HasSuffix(rest, "/") || strings.Contains(name, "//"):
		return bad("its name has an empty part")
	case strings.HasPrefix(rest, "-") || rest == "HEAD":
		return bad("its name could be taken for something else")
	case strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, "."):
		return bad("its name is none for git")
	case len(name) > maxRefName:
		return bad("its name is too long")
	case !utf8.ValidString(name):
		return bad("its name is no text")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || strings.ContainsRune(" ~^:?*[\\", r) {
			return bad("its name has a character that none may have")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") || len(part) > maxRefPart {
			return bad("its name is none for git")
		}
	}
	return nil
}

// isID reports whether s names an object of that format.
func isID(s string, f pack.Format) bool {
	if len(s) != 2*f.Size() {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// none is the name of no object.
func none(f pack.Format) string { return strings.Repeat("0", 2*f.Size()) }

// short is a ref's name for people.
func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, branches), "refs/")
}
