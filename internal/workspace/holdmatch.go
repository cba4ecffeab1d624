package workspace

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// holdTable is HoldRules arranged for speed.
type holdTable struct {
	exact map[string]string     // folded name → reason
	globs []HoldRule            // one name
	paths map[string][]pathRule // of several names, by the last one
	tails []pathRule            // those whose last name is a pattern
	short map[string]string     // first six letters of an 8.3 name → reason
}

// pathRule is a rule of several names.
type pathRule struct {
	parents []string // all but the last
	last    string
	reason  string
}

// holds is made when it is first asked: most calls of carboy hold nothing back.
var holds = sync.OnceValue(func() *holdTable { return newHoldTable(HoldRules()) })

func newHoldTable(rules []HoldRule) *holdTable {
	t := &holdTable{exact: map[string]string{}, paths: map[string][]pathRule{}, short: map[string]string{}}
	for _, r := range rules {
		if names := strings.Split(r.Pattern, "/"); len(names) > 1 {
			p := pathRule{names[:len(names)-1], names[len(names)-1], r.Reason}
			if strings.Contains(p.last, "*") {
				t.tails = append(t.tails, p)
			} else {
				t.paths[p.last] = append(t.paths[p.last], p)
			}
			continue
		}
		if strings.Contains(r.Pattern, "*") {
			t.globs = append(t.globs, r)
		} else if t.exact[r.Pattern] == "" {
			t.exact[r.Pattern] = r.Reason
		}
		if stem := shortStem(r.Pattern); stem != "" && t.short[stem] == "" {
			t.short[stem] = r.Reason
		}
	}
	// The names that Windows gives to later ones of the same six letters.
	for _, hashed := range []string{"gi7eba", "gi7d29"} {
		t.short[hashed] = reasonGit
	}
	return t
}

// HeldByName returns why a path is held back for the names in it, or "".
func HeldByName(p string) string {
	var above []string // the names before, folded
	reason := ""
	for name := range strings.SplitSeq(p, "/") {
		// Where backslash separates, one name may be several.
		for part := range strings.SplitSeq(name, `\`) {
			folded := foldName(part)
			if r := holds().path(above, folded); r != "" {
				return r // it says more than a rule for one name
			}
			if reason == "" {
				reason = holds().match(folded)
			}
			above = append(above, folded)
		}
	}
	return reason
}

// path returns the reason of a rule for name below the names above it.
func (t *holdTable) path(above []string, name string) string {
	for _, r := range t.paths[name] {
		if r.below(above) {
			return r.reason
		}
	}
	for _, r := range t.tails {
		if ok, _ := path.Match(r.last, name); ok && r.below(above) {
			return r.reason
		}
	}
	return ""
}

// below reports whether the last of the names above are the rule's own.
func (r *pathRule) below(above []string) bool {
	n := len(above) - len(r.parents)
	return n >= 0 && slices.Equal(above[n:], r.parents)
}

func (t *holdTable) match(name string) string {
	if notHeld[name] {
		return ""
	}
	if reason := t.exact[name]; reason != "" {
		return reason
	}
	for _, r := range t.globs {
		if ok, _ := path.Match(r.Pattern, name); ok {
			return r.Reason
		}
	}
	if stem, ok := cutShort(name); ok {
		return t.short[stem]
	}
	return ""
}

// foldName returns what a file system that ignores case may take a name for:
// in lower case, without code points that compare as nothing, without an NTFS
// stream's name and without the dots and spaces that Windows drops at the end.
func foldName(name string) string {
	if i := strings.IndexByte(name, ':'); i > 0 {
		name = name[:i]
	}
	name = strings.TrimRight(name, ". ")
	plain := true
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if ignored(r) {
			continue
		}
		if s, ok := fullFold[r]; ok {
			b.WriteString(s)
			continue
		}
		b.WriteRune(foldRune(r))
	}
	return strings.TrimRight(b.String(), ". ")
}

// foldRune returns the smallest rune that differs from r in case alone, in
// lower case if that is ASCII.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}

// fullFold has the runes that fold to several ASCII letters.
var fullFold = map[rune]string{
	'ß': "ss", 'ẞ': "ss",
	'\ufb00': "ff", '\ufb01': "fi", '\ufb02': "fl", '\ufb03': "ffi", '\ufb04': "ffl", '\ufb05': "st", '\ufb06': "st",
}

// ignored reports whether HFS+, or ext4 and f2fs with case folding, compare
// names as if r were not there.
func ignored(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// shortStem returns the letters that an 8.3 name for name begins with, or ""
// where no short name would be made or its letters are uncertain.
func shortStem(name string) string {
	base := strings.TrimLeft(name, ".")
	if base == name && len(base) <= 8 {
		return "" // it may be its own short name
	}
	base, _, _ = strings.Cut(base, ".")
	if base == "" || strings.Contains(base[:min(6, len(base))], "*") {
		return ""
	}
	return base[:min(6, len(base))]
}

// cutShort splits an 8.3 name such as git~1 and returns what is before the
// tilde.
func cutShort(name string) (string, bool) {
	base, _, _ := strings.Cut(name, ".")
	stem, num, ok := strings.Cut(base, "~")
	if !ok || stem == "" || len(stem) > 6 || num == "" || len(num) > 6 || strings.Trim(num, "0123456789") != "" {
		return "", false
	}
	return stem, true
}

// linkReason returns why a symlink at p with this target is held back, or "".
// A target is taken to stay inside only if it climbs first and descends then:
// after a name that may itself be a link, ".." leads anywhere.
func linkReason(p, target string) string {
	if strings.HasPrefix(target, "/") {
		return reasonLinkOut
	}
	dir, _ := splitPath(p)
	names := strings.Split(target, "/")
	for len(names) > 0 && (names[0] == ".." || names[0] == "." || names[0] == "") {
		if names[0] == ".." {
			if dir == "." {
				return reasonLinkOut
			}
			dir, _ = splitPath(dir)
		}
		names = names[1:]
	}
	for _, n := range names {
		if n == ".." {
			return reasonLinkMay
		}
		if n != "" && n != "." {
			dir = joinPath(dir, n)
		}
	}
	if reason := HeldByName(dir); reason != "" {
		return reasonLinkHeld
	}
	return ""
}

// drivers reports whether the text of a .gitattributes names a filter, diff
// or merge driver.
func drivers(text []byte) bool {
	for line := range bytes.Lines(text) {
		for word := range bytes.FieldsSeq(line) {
			for _, attr := range []string{"filter=", "diff=", "merge="} {
				if bytes.HasPrefix(word, []byte(attr)) {
					return true
				}
			}
		}
	}
	return false
}

// hasTempName reports whether any name in p looks like one of Apply's own
// temporary files.
func hasTempName(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if strings.HasPrefix(name, tempPrefix) {
			return true
		}
	}
	return false
}
