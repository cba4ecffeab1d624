package inject

import (
	"strconv"
	"unicode/utf8"
)

// longestEscape bounds an escape: "&#x10ffff;".
const longestEscape = 10

// special marks the bytes that begin an escape, and those that are dropped.
var (
	special = [256]bool{'%': true, '\\': true, '=': true, '&': true, '\r': true, '\n': true, 0: true}
	dropped = [256]bool{'\r': true, '\n': true, 0: true}
)

// escape reads the escape that b begins with, b[0] being special: those of
// URLs, JSON and like languages, HTML, and quoted-printable text. Ends of
// lines and NULs stand for nothing, which joins wrapped base64 and turns
// UTF-16 into ASCII. It returns what the escape stands for, if that is
// anything, and how long it is; 0 means that more of b must be seen. What is
// no escape is a byte that stands for itself.
func escape(b []byte, out []byte) (stands []byte, length int) {
	switch b[0] {
	case '%':
		return hexEscape(b, out, 1)
	case '\\':
		return backslash(b, out)
	case '=':
		return quotedPrintable(b, out)
	case '&':
		return entity(b, out)
	default:
		return nil, 1
	}
}

// keep is what an escape stands for, where that is not nothing.
func keep(out []byte, r rune) []byte {
	if r == 0 || r == '\r' || r == '\n' {
		return nil
	}
	return utf8.AppendRune(out, r)
}

// hexEscape reads two hexadecimal digits at b[from:].
func hexEscape(b, out []byte, from int) ([]byte, int) {
	for i := from; i < from+2; i++ {
		if i == len(b) {
			return nil, 0
		}
		if !isHex(b[i]) {
			return append(out, b[0]), 1
		}
	}
	c := unhex(b[from])<<4 | unhex(b[from+1])
	if c == 0 || c == '\r' || c == '\n' {
		return nil, from + 2
	}
	return append(out, c), from + 2
}

func backslash(b, out []byte) ([]byte, int) {
	if len(b) == 1 {
		return nil, 0
	}
	switch c := b[1]; c {
	case 'x':
		return hexEscape(b, out, 2)
	case 'u':
		r := rune(0)
		for i := 2; i < 6; i++ {
			if i == len(b) {
				return nil, 0
			}
			if !isHex(b[i]) {
				return append(out, '\\'), 1
			}
			r = r<<4 | rune(unhex(b[i]))
		}
		return keep(out, r), 6
	case 'n', 'r', '\r', '\n':
		return nil, 2
	case '"', '\'', '\\', '/':
		return append(out, c), 2
	default:
		return append(out, '\\'), 1
	}
}

func quotedPrintable(b, out []byte) ([]byte, int) {
	if len(b) == 1 {
		return nil, 0
	}
	switch {
	case b[1] == '\n' || b[1] == '\r':
		return nil, 2
	case b[1] != '3':
	case len(b) == 2:
		return nil, 0
	case b[2]|0x20 == 'd':
		return append(out, '='), 3
	}
	return append(out, '='), 1
}

var entities = map[string]rune{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''}

func entity(b, out []byte) ([]byte, int) {
	for i := 1; i < longestEscape; i++ {
		if i == len(b) {
			return nil, 0
		}
		c := b[i]
		switch {
		case c == ';':
			if r, ok := entityRune(string(b[1:i])); ok {
				return keep(out, r), i + 1
			}
			return append(out, '&'), 1
		case c == '#' && i == 1, '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'z':
		default:
			return append(out, '&'), 1
		}
	}
	return append(out, '&'), 1
}

func entityRune(name string) (rune, bool) {
	if len(name) < 2 || name[0] != '#' {
		r, ok := entities[name]
		return r, ok
	}
	digits, base := name[1:], 10
	if digits[0]|0x20 == 'x' {
		digits, base = digits[1:], 16
	}
	n, err := strconv.ParseUint(digits, base, 31)
	return rune(n), err == nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// unescaped returns text with its escapes read, as the search sees it.
func unescaped(text string) string {
	b := []byte(text)
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if !special[b[i]] {
			out = append(out, b[i])
			i++
			continue
		}
		var room [utf8.UTFMax]byte
		stands, n := escape(b[i:], room[:0])
		if n == 0 { // cut short: no escape
			stands, n = b[i:i+1], 1
		}
		out = append(out, stands...)
		i += n
	}
	return string(out)
}
