package action

import (
	"strings"
	"time"
	"unicode/utf8"
)

// cost is how many bytes a character takes in a reply's JSON.
func cost(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// fit makes text of the beginning of raw, as much as takes at most budget bytes in a
// reply's JSON. Each byte that is no UTF-8 becomes U+FFFD. The text is made of the
// first used bytes.
func fit(raw []byte, budget int) (text string, used int) {
	var b strings.Builder
	b.Grow(min(len(raw), budget))
	for used < len(raw) {
		r, n := utf8.DecodeRune(raw[used:])
		if budget -= cost(r); budget < 0 {
			break
		}
		b.WriteRune(r)
		used += n
	}
	return b.String(), used
}

// chars is a piece of a shell's output, made into text.
type chars struct {
	text string
	used int  // bytes that it was made of
	full bool // more would not have fit
}

// decode makes text of at most limit characters. Each byte that is no UTF-8 becomes
// U+FFFD; a character whose end has not come is left, unless final says that it never
// will.
func decode(raw []byte, limit int, final bool) chars {
	var b strings.Builder
	c := chars{}
	for n := 0; c.used < len(raw); n++ {
		rest := raw[c.used:]
		if n == limit {
			c.full = true
			break
		}
		if !final && !utf8.FullRune(rest) {
			break
		}
		r, size := utf8.DecodeRune(rest)
		b.WriteRune(r)
		c.used += size
	}
	c.text = b.String()
	return c
}

// seconds is a time as the protocol has it.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// validName reports whether a caller's name for a shell or a service is 1 to 64 of
// [A-Za-z0-9._-], and neither . nor .., which are no names in a path.
func validName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 64 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}
