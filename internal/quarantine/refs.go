package quarantine

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	maxListed  = 16 << 20 // bytes of a list of refs
	maxRefLine = 1 << 10
	maxRefs    = 100_000
	maxTaken   = 256 // refs at once
	maxName    = 240 // bytes of one part of a ref's name, which is a file's
)

// What refs are called here.
const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
	headRef      = "HEAD"

	tagsHere = "tags/"
)

// inside is a ref as the sandbox says it.
type inside struct {
	name string // HEAD, refs/heads/… or refs/tags/…
	id   string
}

// short is its name for people.
func (i inside) short() string {
	return strings.TrimPrefix(strings.TrimPrefix(i.name, branchPrefix), "refs/")
}

// parseRefs reads a list of refs as git show-ref writes it. isID says what names an object.
func parseRefs(b []byte, isID func(string) bool) ([]inside, error) {
	var refs []inside
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxRefLine)
	for lines.Scan() {
		id, name, ok := strings.Cut(lines.Text(), " ")
		switch {
		case !ok || !isID(id) || name != headRef && !strings.HasPrefix(name, branchPrefix) && !strings.HasPrefix(name, tagPrefix):
			return nil, refused("a list of branches with a line that is none: %q", clip(lines.Text()))
		case seen[name]:
			return nil, refused("the branch %q twice", clip(name))
		case len(refs) == maxRefs:
			return nil, refused("more than %d branches and tags", maxRefs)
		}
		seen[name] = true
		refs = append(refs, inside{name, id})
	}
	if lines.Err() != nil {
		return nil, refused("a branch whose name is longer than %d bytes", maxRefLine)
	}
	return refs, nil
}

// refused is the error of what a sandbox says, which is not taken.
func refused(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Denied, "the sandbox has "+format, args...)
}

// clip shortens a text for an error.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// here is the name of a sandbox's ref in the user's repository, below prefix.
func (i inside) here(prefix string) (string, error) {
	rest := headRef
	switch {
	case strings.HasPrefix(i.name, branchPrefix):
		rest = strings.TrimPrefix(i.name, branchPrefix)
		if rest == headRef || rest+"/" == tagsHere || strings.HasPrefix(rest, tagsHere) {
			return "", refused("a branch %q, whose name is not a branch's here", clip(rest)).
				WithHint("rename it inside: git branch -m")
		}
	case strings.HasPrefix(i.name, tagPrefix):
		rest = tagsHere + strings.TrimPrefix(i.name, tagPrefix)
	}
	if why := badName(rest); why != "" {
		return "", refused("a branch or tag %q: %s", clip(i.short()), why)
	}
	return prefix + rest, nil
}

// badName says why a name is none that a ref may have, by git's rules and some more:
// nothing in it may deceive who reads it. It is "" for a good one.
func badName(name string) string {
	switch {
	case name == "" || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//"):
		return "its name has an empty part"
	case strings.HasPrefix(name, "-"):
		return "its name begins like an option"
	case strings.Contains(name, "..") || strings.Contains(name, "@{") || name == "@" || strings.HasSuffix(name, "."):
		return "its name is none for git"
	case !utf8.ValidString(name):
		return "its name is no text"
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || strings.ContainsRune(" ~^:?*[\\", r) {
			return "its name has a character that none may have"
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock"):
			return "its name is none for git"
		case len(part) > maxName:
			return "its name is too long for a file's"
		}
	}
	return ""
}

// matches reports whether a user means this ref by what they typed.
func (i inside) matches(typed string) bool {
	return typed == i.name || branchPrefix+typed == i.name || "refs/"+typed == i.name || tagPrefix+typed == i.name
}

// choose returns the refs that a user named, or all where none was.
func choose(refs []inside, named []string) ([]inside, error) {
	if len(named) == 0 {
		return refs, nil
	}
	var chosen []inside
	for _, typed := range named {
		i := slices.IndexFunc(refs, func(r inside) bool { return r.matches(typed) })
		if i < 0 {
			return nil, sandbox.Errorf(sandbox.NotFound, "the sandbox has no branch or tag %q", clip(typed)).WithHint("%s", hintRefs(refs))
		}
		if !slices.Contains(chosen, refs[i]) {
			chosen = append(chosen, refs[i])
		}
	}
	return chosen, nil
}

// hintRefs names some of what there is.
func hintRefs(refs []inside) string {
	const most = 5
	var names []string
	for _, r := range refs {
		if strings.HasPrefix(r.name, branchPrefix) && badName(r.short()) == "" {
			if names = append(names, r.short()); len(names) == most {
				break
			}
		}
	}
	if len(names) == 0 {
		return "it has no branch"
	}
	return "its branches: " + strings.Join(names, ", ")
}
