package field

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Fold returns what a header field's name, or one of a parameter that is
// decoded, has in common with all that servers take for the same: lower case,
// and a hyphen for each character of ASCII that is no letter and no digit.
func Fold(name string) string {
	for i := range len(name) {
		if c := name[i]; folds[c] != c {
			return fold(name)
		}
	}
	return name
}

// folds is what a byte of ASCII becomes, and 0 for others.
var folds = func() (t [256]byte) {
	for c := range utf8.RuneSelf {
		switch b := byte(c); {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9':
			t[c] = b
		case 'A' <= b && b <= 'Z':
			t[c] = b | 0x20
		default:
			t[c] = '-'
		}
	}
	return t
}()

func fold(name string) string {
	if weak.On(weak.NetNamesAsWritten) {
		return strings.ToLower(name)
	}
	var b strings.Builder
	b.Grow(len(name))
	for _, r := range name {
		if r < utf8.RuneSelf {
			b.WriteByte(folds[r])
		} else {
			b.WriteRune(unicode.ToLower(unicode.ToUpper(r))) // the Kelvin sign is a k to some
		}
	}
	return b.String()
}

// Same reports whether a header field's name folds to one that is folded.
func Same(name, folded string) bool {
	if len(name) != len(folded) {
		return false
	}
	for i := range len(name) {
		if folds[name[i]] != folded[i] {
			return false
		}
	}
	return !weak.On(weak.NetNamesAsWritten) || strings.EqualFold(name, folded)
}

// Readings returns the folded names that servers may read in a parameter's,
// which is as it came: without what leads and trails, as far as a NUL, without
// a list's brackets, and with what is in them as a part of it.
func Readings(raw string) []string {
	if weak.On(weak.NetNamesAsWritten) {
		return []string{strings.ToLower(Decode(raw))}
	}
	name := strings.TrimLeft(Decode(raw), blank)
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimRight(name, blank)
	all := Fold(name)
	i := strings.IndexByte(name, '[')
	if i <= 0 {
		return []string{all}
	}
	return []string{Fold(strings.TrimRight(name[:i], blank)), strings.TrimRight(all, "-")}
}

// blank is what some servers take from a name's ends.
const blank = "\x00\t\n\v\f\r +\u0085\u00a0"

// Is reports whether some server may read the parameter called raw, as it
// came, as the one called name, folded.
func Is(raw, name string) bool {
	for _, r := range Readings(raw) {
		if r == name {
			return true
		}
	}
	return false
}

// Parameters parts a query or a form: names and values as they came. Some
// servers part at semicolons too.
func Parameters(text string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for text != "" {
			one := text
			if i := strings.IndexAny(text, "&;"); i >= 0 {
				one, text = text[:i], text[i+1:]
			} else {
				text = ""
			}
			name, value, _ := strings.Cut(one, "=")
			if one != "" && !yield(name, value) {
				return
			}
		}
	}
}

// Decode decodes a name or a value of a query or a form. An escape that is
// none stands for itself, and %u0041 for an A, as IIS has it.
func Decode(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+':
			b.WriteByte(' ')
		case c != '%':
			b.WriteByte(c)
		default:
			if r, ok := hex(s[i+1:], 2); ok {
				b.WriteByte(byte(r))
				i += 2
			} else if r, ok := unicodeEscape(s[i+1:]); ok {
				b.WriteRune(r)
				i += 5
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

func unicodeEscape(s string) (rune, bool) {
	if s == "" || s[0]|0x20 != 'u' {
		return 0, false
	}
	return hex(s[1:], 4)
}

// hex reads the first n digits of s.
func hex(s string, n int) (r rune, ok bool) {
	if len(s) < n {
		return 0, false
	}
	for i := range n {
		c := s[i]
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
