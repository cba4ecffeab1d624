// Package term makes text that came from a sandbox safe to print.
//
// A name, a target, a line of a diff or an error's text from inside may hold
// sequences that move the cursor, retitle the window, answer queries, reorder
// what is read or hide parts of it. Escape and EscapeText turn everything but
// visible text into visible escapes. They refuse nothing: every input has a
// printable form. The form is for eyes only; since a backslash is left as it
// is, it can't be turned back. EscapeJSON does the same to JSON, which says the
// same after it.
package term

import (
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns s fit for a table, a log line or an error message: one line,
// every rune visible. Control characters become \n, \t, \r or \xNN, bytes that
// are no UTF-8 become \xNN, and runes that are invisible or reorder their
// neighbours become \uNNNN or \UNNNNNNNN. Escaping twice changes nothing more.
func Escape(s string) string {
	i := clean(s, false)
	if i == len(s) {
		return s
	}
	return string(appendEscaped(append(make([]byte, 0, len(s)+16), s[:i]...), s[i:], false))
}

// EscapeText is Escape for text of many lines: newlines and tabs stay. The
// result is b itself where nothing needed an escape.
func EscapeText(b []byte) []byte {
	i := clean(b, true)
	if i == len(b) {
		return b
	}
	return appendEscaped(append(make([]byte, 0, len(b)+len(b)/8+16), b[:i]...), b[i:], true)
}

// EscapeJSON is JSON that says the same as the JSON b and shows all of it: what EscapeText would
// escape is \uNNNN, in pairs of surrogates above U+FFFF. The result is b itself where nothing needed
// an escape.
func EscapeJSON(b []byte) []byte {
	i := clean(b, true)
	if i == len(b) {
		return b
	}
	out := append(make([]byte, 0, len(b)+len(b)/8+16), b[:i]...)
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		switch one, two := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf && plain(byte(r), true), r >= utf8.RuneSelf && visible(r, n):
			out = append(out, b[i:i+n]...)
		case one != utf8.RuneError:
			out = appendHex(append(appendHex(append(out, `\u`...), uint64(one), 4), `\u`...), uint64(two), 4)
		default:
			out = appendHex(append(out, `\u`...), uint64(r), 4)
		}
		i += n
	}
	return out
}

// Safe reports whether s would be printed as it is, so that a caller with
// another way of quoting can tell when to use it.
func Safe(s string) bool { return clean(s, false) == len(s) }

// clean returns the length of the longest prefix of s that needs no escape.
func clean[T string | []byte](s T, text bool) int {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if !plain(c, text) {
				return i
			}
			i++
			continue
		}
		r, n := decode(s[i:])
		if !visible(r, n) {
			return i
		}
		i += n
	}
	return len(s)
}

func appendEscaped[T string | []byte](out []byte, s T, text bool) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain(c, text) {
				out = append(out, c)
			} else {
				out = appendControl(out, c)
			}
			i++
			continue
		}
		r, n := decode(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			out = appendHex(append(out, `\x`...), uint64(c), 2)
		case visible(r, n):
			out = append(out, s[i:i+n]...)
		case r > 0xffff:
			out = appendHex(append(out, `\U`...), uint64(r), 8)
		default:
			out = appendHex(append(out, `\u`...), uint64(r), 4)
		}
		i += n
	}
	return out
}

// decode is utf8.DecodeRune for both kinds of text, without a copy of more
// than one rune.
func decode[T string | []byte](s T) (rune, int) {
	var b [utf8.UTFMax]byte
	return utf8.DecodeRune(b[:copy(b[:], s[:min(len(s), len(b))])])
}

// plain reports whether an ASCII byte is printed as it is.
func plain(c byte, text bool) bool {
	return c >= ' ' && c != 0x7f || text && (c == '\n' || c == '\t')
}

// visible reports whether a rune that took n bytes shows itself, and nothing
// else, where it stands.
func visible(r rune, n int) bool {
	if r == utf8.RuneError && n <= 1 {
		return false
	}
	// IsGraphic leaves out C0, C1, all format characters (bidi controls,
	// zero-width characters, the byte order mark, tags), line and paragraph
	// separators, surrogates, private use and what is not assigned.
	return unicode.IsGraphic(r) && !unicode.Is(blank, r)
}

// blank holds the runes that Unicode calls letters or marks and that show
// nothing. The two variation selectors that emoji need are not among them.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian selectors
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // empty Braille pattern
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfe00, Hi: 0xfe0d, Stride: 1}, // variation selectors
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // halfwidth Hangul filler
	},
	R32: []unicode.Range32{
		{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}, // more variation selectors
	},
}

func appendControl(out []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(out, `\n`...)
	case '\t':
		return append(out, `\t`...)
	case '\r':
		return append(out, `\r`...)
	}
	return appendHex(append(out, `\x`...), uint64(c), 2)
}

// appendHex appends v in lower case with at least width digits.
func appendHex(out []byte, v uint64, width int) []byte {
	var b [16]byte
	digits := strconv.AppendUint(b[:0], v, 16)
	for range width - len(digits) {
		out = append(out, '0')
	}
	return append(out, digits...)
}
