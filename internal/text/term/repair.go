package term

import (
	"strings"
	"unicode/utf8"
)

// Repair makes text of bytes: what is no UTF-8 becomes U+FFFD, one for each
// longest run of bytes that could have begun a character. What was text before
// is unchanged.
func Repair(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			n = broken(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// broken returns how many bytes at the head of b belong to one character that
// never ends.
func broken(b []byte) int {
	first := b[0]
	need, low, high := 0, byte(0x80), byte(0xbf)
	switch {
	case first >= 0xc2 && first <= 0xdf:
		need = 1
	case first >= 0xe0 && first <= 0xef:
		need = 2
		switch first {
		case 0xe0:
			low = 0xa0
		case 0xed:
			high = 0x9f
		}
	case first >= 0xf0 && first <= 0xf4:
		need = 3
		switch first {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= low && b[n] <= high {
		n++
		low, high = 0x80, 0xbf
	}
	return n
}
