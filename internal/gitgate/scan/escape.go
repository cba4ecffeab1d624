package scan

import (
	"bytes"
	"unicode/utf8"
)

// minDeep is how many of them a word has at least that is looked into in what was encoded itself: what is no text at
// all has some.
const minDeep = 3

// escapesName is how they are called.
const escapesName = "escapes"

// escaped looks through words that are written in escapes, as URLs and programs have them:
// %67, \x67, \u0067 and \147.
func (s *search) escaped(text []byte, by string, depth int, where place) {
	if bytes.IndexByte(text, '%') < 0 && bytes.IndexByte(text, '\\') < 0 || !s.spend(len(text)) {
		return
	}
	var p parts
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && text[end] > ' ' {
			end++
		}
		if bytes.IndexByte(text[at:end], '%') >= 0 || bytes.IndexByte(text[at:end], '\\') >= 0 {
			was := p
			p.begin(at)
			switch n := p.unescape(text[at:end]); {
			case n == 0 || n < minDeep && depth > 0:
				p = was
			case depth >= maxDepth:
				s.opaque = "it is encoded more often than can be looked at"
				return
			}
		}
		at = end + 1
	}
	s.text(p.text, join(by, escapesName), depth+1, p.place(where))
}

// unescape appends a word as it is meant, and returns how many escapes it had.
func (p *parts) unescape(word []byte) (n int) {
	for len(word) > 0 {
		r, size := escape(word)
		if size == 0 {
			p.text = append(p.text, word[0])
			word = word[1:]
			continue
		}
		if r < 0x100 {
			p.text = append(p.text, byte(r))
		} else {
			p.text = utf8.AppendRune(p.text, r)
		}
		word = word[size:]
		n++
	}
	return n
}

// escape reads the escape at the beginning of a word; without one, size is 0.
func escape(word []byte) (r rune, size int) {
	read := func(from, digits int, base int) (rune, int) {
		if len(word) < from+digits {
			return 0, 0
		}
		r := rune(0)
		for _, c := range word[from : from+digits] {
			v := hexValue(c)
			if v < 0 || v >= base {
				return 0, 0
			}
			r = r*rune(base) + rune(v)
		}
		return r, from + digits
	}
	if word[0] == '%' {
		return read(1, 2, 16)
	}
	if word[0] != '\\' || len(word) < 2 {
		return 0, 0
	}
	switch word[1] {
	case 'x':
		return read(2, 2, 16)
	case 'u':
		return read(2, 4, 16)
	case '0', '1':
		return read(1, 3, 8)
	}
	return 0, 0
}

// hexValue is a digit's; -1 for what is none.
func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
