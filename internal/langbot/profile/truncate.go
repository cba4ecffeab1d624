package profile

import (
	"fmt"
	"unicode/utf8"
)

// Truncate cuts s to limit characters and reports whether it did. Where there
// is more, the first 60 and the last 40 of a hundred characters stay, with
// "\n\n... [N characters truncated] ...\n\n" between them: the whole is never
// longer than limit. A limit of 0 or less leaves nothing.
func Truncate(s string, limit int) (string, bool) { return truncate(s, limit, 0) }

// truncate is Truncate of a text in which so many more are left out already.
func truncate(s string, limit, more int) (string, bool) {
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
		notice = fmt.Sprintf("\n\n... [%d characters truncated] ...\n\n", max(length-head-tail, 0)+more)
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
