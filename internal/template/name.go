package template

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// defaultTag is the tag that stands where none is named.
	defaultTag = "default"

	maxName = 128
	maxTags = 64 // of one request, and of one template
)

// Ref is the name of a template as users write it: NAMESPACE/NAME:TAG, of
// which only NAME need be there.
type Ref struct {
	Namespace, Name, Tag string
}

// ParseRef takes a name apart. The tag stays empty where none is named; capital
// letters become small ones.
func ParseRef(s string) (Ref, error) {
	var r Ref
	bad := func() (Ref, error) {
		return Ref{}, sandbox.Errorf(sandbox.Invalid, "template %.80q: not a template's name", s).
			WithHint("NAME, NAME:TAG or OWNER/NAME, of a-z, 0-9, - and _")
	}
	if len(s) > 3*maxName {
		return bad()
	}
	name := strings.ToLower(strings.TrimSpace(s))
	name, tag, tagged := strings.Cut(name, ":")
	space, rest, spaced := strings.Cut(name, "/")
	if !spaced {
		rest, space = space, ""
	}
	r = Ref{Namespace: space, Name: rest, Tag: tag}
	if !word(r.Name, false) || spaced && !word(space, false) || tagged && !word(tag, true) {
		return bad()
	}
	return r, nil
}

// word reports whether s is a name, or a tag, which may have dots.
func word(s string, dots bool) bool {
	if s == "" || len(s) > maxName || s[0] == '-' || s[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && (!dots || c != '.')
	})
}

// checkTags returns tags in small letters, each once.
func checkTags(tags []string) ([]string, error) {
	out := []string{}
	for _, t := range tags {
		t = strings.ToLower(strings.TrimSpace(t))
		if !word(t, true) {
			return nil, sandbox.Errorf(sandbox.Invalid, "tag %.80q: not a tag", t).WithHint("a-z, 0-9, -, _ and .")
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > maxTags {
		return nil, sandbox.Errorf(sandbox.Invalid, "tags: %d are too many", len(out)).WithHint("at most %d", maxTags)
	}
	return out, nil
}

// Namespace is what an owner's templates are called by others; no two owners
// have the same. "uid:1000" is "uid-1000", and "key:NAME" is NAME, unless that
// has anything but small letters, digits, - and _, or begins like another's:
// then, as of every other kind, it is "of-NAME-" and a digest of the owner.
func Namespace(owner string) string {
	kind, name, _ := strings.Cut(owner, ":")
	own := word(name, false) && !strings.HasPrefix(name, ofUser) && !strings.HasPrefix(name, ofOther)
	switch {
	case kind == "key" && own:
		return name
	case kind == "uid" && word(name, false):
		return ofUser + name
	}
	readable := strings.Map(func(r rune) rune {
		if word(string(r), false) {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	sum := sha256.Sum256([]byte(owner))
	return ofOther + readable[:min(len(readable), maxName/2)] + "-" + hex.EncodeToString(sum[:12])
}

const (
	ofUser  = "uid-"
	ofOther = "of-"
)

// isBase reports whether a name stands for the machine's own programs.
func isBase(name string) bool {
	switch name {
	case "", Base, Base + ":" + defaultTag, "e2bdev/" + Base, "e2bdev/" + Base + ":latest":
		return true
	}
	return false
}

// sandboxOwner owns the sandboxes and the snapshots of owner's builds: nobody's
// own, so that nobody sees them, counts them or removes what others build on.
func sandboxOwner(owner string) string { return ownerPrefix + owner }

// BuiltBy returns whose builds a sandbox is for whose owner that is, and false
// for one that is no build's.
func BuiltBy(owner string) (string, bool) { return strings.CutPrefix(owner, ownerPrefix) }

const ownerPrefix = "template:"
