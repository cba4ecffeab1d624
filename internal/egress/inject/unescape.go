package inject

import "unicode/utf8"

// Bounds of HTML's escapes: the longest of those names that are known, and how
// many digits a number may have, with the zeros that lead it.
const (
	longestName   = len("&NewLine;")
	longestNumber = 48
)

// special marks the bytes that begin an escape, and those that are dropped.
var (
	special = [256]byte{'%': 1, '\\': 1, '=': 1, '&': 1, '\r': 1, '\n': 1, 0: 1}
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
	case !isHex(b[1]):
	case len(b) == 2:
		return nil, 0
	case b[1] == '3' && b[2]|0x20 == 'd':
		return append(out, '='), 3
	}
	return append(out, '='), 1
}

// entities are HTML's names of the characters that values have: those of
// ASCII that are no letters and no digits.
var entities = map[string]rune{
	"AMP": '&', "lt": '<', "LT": '<', "gt": '>', "GT": '>', "quot": '"', "QUOT": '"', "apos": '\'',
	"excl": '!', "num": '#', "dollar": '$', "percnt": '%', "lpar": '(', "rpar": ')', "ast": '*', "midast": '*', "plus": '+',
	"comma": ',', "period": '.', "sol": '/', "colon": ':', "semi": ';', "equals": '=', "quest": '?', "commat": '@',
	"lsqb": '[', "lbrack": '[', "bsol": '\\', "rsqb": ']', "rbrack": ']', "Hat": '^', "lowbar": '_', "UnderBar": '_', "grave": '`',
	"lcub": '{', "lbrace": '{', "verbar": '|', "vert": '|', "rcub": '}', "rbrace": '}', "Tab": '\t', "NewLine": '\n',
}

func entity(b, out []byte) ([]byte, int) {
	if len(b) > 1 && b[1] == '#' {
		return numeric(b, out)
	}
	for i := 1; i < longestName; i++ {
		if i == len(b) {
			return nil, 0
		}
		switch c := b[i]; {
		case c == ';':
			if string(b[1:i]) == "amp" {
				return append(out, '&'), i + 1
			}
			if r, ok := entities[string(b[1:i])]; ok {
				return keep(out, r), i + 1
			}
			return append(out, '&'), 1
		case 'a' <= c|0x20 && c|0x20 <= 'z':
		default:
			return append(out, '&'), 1
		}
	}
	return append(out, '&'), 1
}

// numeric reads "&#65;" and "&#x0041;". Readers take one without its semicolon
// too.
func numeric(b, out []byte) ([]byte, int) {
	from, base := 2, rune(10)
	if len(b) > 2 && b[2]|0x20 == 'x' {
		from, base = 3, 16
	}
	r := rune(0)
	for i := from; i < from+longestNumber; i++ {
		switch {
		case i == len(b):
			return nil, 0
		case '0' <= b[i] && b[i] <= '9' || base == 16 && isHex(b[i]):
			r = min(r*base+rune(unhex(b[i])), utf8.MaxRune+1)
		case i == from:
			return append(out, '&'), 1
		case b[i] == ';':
			return keep(out, r), i + 1
		default:
			return keep(out, r), i
		}
	}
	return append(out, '&'), 1
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
		if special[b[i]] == 0 {
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
