package profile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxOutput is how many bytes of each stream of a command are kept; the rest is
// counted.
const MaxOutput = 1 << 20

// Truncate cuts s to limit characters and reports whether it did. Where there
// is more, the first 60 and the last 40 of a hundred characters stay, with
// "\n\n... [N characters truncated] ...\n\n" between them: the whole is never
// longer than limit. A limit of 0 or less leaves nothing.
func Truncate(s string, limit int) (string, bool) {
	if len(s) <= max(limit, 0) { // bytes, of which there are no fewer than characters
		return s, false
	}
	length := utf8.RuneCountInString(s)
	if length <= limit {
		return s, false
	}
	if limit <= 0 {
		return "", true
	}
	head, tail, notice := 0, 0, ""
	// How many characters are left out decides how long the notice is, and that
	// how many are left out.
	for range 4 {
		notice = fmt.Sprintf("\n\n... [%d characters truncated] ...\n\n", max(length-head-tail, 0))
		room := limit - len(notice)
		if room <= 0 {
			return notice[:limit], true
		}
		h := int(float64(room) * 0.6)
		if h == head && room-h == tail {
			break
		}
		head, tail = h, room-h
	}
	cutAt, tailAt := runeIndex(s, head), runeIndex(s, length-tail)
	return s[:cutAt] + notice + s[tailAt:], true
}

// runeIndex returns where the n-th character of s begins.
func runeIndex(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

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
