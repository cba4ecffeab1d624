package action

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxSequence bounds a control sequence, in bytes. Of one that is longer the
	// beginning is left out and the rest is text.
	maxSequence = 64 << 10
	maxColumn   = 4096 // that the cursor can be moved to
)

// Control characters, and those that begin or end sequences.
const (
	esc = 0x1b
	bel = 0x07
	can = 0x18
	sub = 0x1a
	del = 0x7f
)

// plain makes text of at most limit characters of what a terminal was sent: without
// colours and the like, and with what carriage returns, backspaces and movements
// within a line make of the line. A sequence or character whose end has not come is
// left, unless final says that it never will: so text that is read in pieces is the
// same. What a line became is settled with the read that it is in.
func plain(raw []byte, limit int, final bool) chars {
	p := &screen{limit: limit}
	used := 0
	for used < len(raw) {
		n, whole := p.step(raw[used:])
		if n == 0 && whole {
			return chars{text: p.text(), used: used, full: true}
		}
		if !whole {
			if !final {
				break
			}
			n = len(raw) - used // it has no end, and nothing to show
			if rest := raw[used:]; rest[0] >= utf8.RuneSelf && !begins(rest) {
				if !p.put(utf8.RuneError) {
					return chars{text: p.text(), used: used, full: true}
				}
				n = 1
			}
		}
		used += n
	}
	return chars{text: p.text(), used: used}
}

// screen is the text so far, and the line that is being written.
type screen struct {
	done  strings.Builder // lines that are settled
	count int             // characters in it
	line  []rune
	col   int // where the next character goes
	limit int
}

func (p *screen) text() string { return p.done.String() + string(p.line) }

// step takes the first character or sequence of b. It takes nothing where the
// character has no room; whole is false where b ends in its middle.
func (p *screen) step(b []byte) (n int, whole bool) {
	if b[0] == esc || begins(b) {
		n, ok := sequence(b)
		if ok {
			p.control(b[:n])
		}
		return n, ok
	}
	if !utf8.FullRune(b) {
		return 0, false
	}
	r, n := utf8.DecodeRune(b)
	switch {
	case r == '\r':
		p.col = 0
	case r == '\b':
		p.col = max(0, p.col-1)
	case r == '\n' || r == '\t' || r >= ' ' && r != del && (r < 0x80 || r > 0x9f):
		if !p.put(r) {
			return 0, true
		}
	}
	return n, true
}

// put shows a character, where there is room for it.
func (p *screen) put(r rune) bool {
	grows := r == '\n' || p.col == len(p.line)
	if grows && p.count+len(p.line) >= p.limit {
		return false
	}
	switch {
	case r == '\n':
		p.done.WriteString(string(p.line))
		p.done.WriteByte('\n')
		p.count += len(p.line) + 1
		p.line, p.col = p.line[:0], 0
		return true
	case grows:
		p.line = append(p.line, r)
	default:
		p.line[p.col] = r
	}
	p.col++
	return true
}

// control does what a whole sequence does within a line, and ignores the others.
func (p *screen) control(b []byte) {
	body, ok := strings.CutPrefix(string(b), "\x1b[")
	if !ok {
		body, ok = strings.CutPrefix(string(b), "\u009b")
	}
	if !ok || body == "" {
		return
	}
	final, params := body[len(body)-1], body[:len(body)-1]
	n, err := strconv.Atoi(params)
	if params == "" {
		n, err = 0, nil
	}
	if err != nil || n < 0 {
		return
	}
	switch final {
	case 'K':
		p.erase(n)
	case 'C':
		p.move(p.col + max(1, min(n, maxColumn)))
	case 'D':
		p.move(p.col - max(1, min(n, maxColumn)))
	case 'G':
		p.move(max(1, n) - 1)
	case 'P':
		end := min(len(p.line), p.col+max(1, min(n, maxColumn)))
		p.line = append(p.line[:min(p.col, end)], p.line[end:]...)
	}
}

// erase clears from the cursor on, up to it, or the whole line. Blanks at the end are
// none.
func (p *screen) erase(how int) {
	switch how {
	case 0:
		p.line = p.line[:p.col]
	case 1:
		for i := range min(p.col+1, len(p.line)) {
			p.line[i] = ' '
		}
	case 2:
		at := p.col
		p.line, p.col = p.line[:0], 0
		p.move(at)
	}
}

// move puts the cursor into a column. Behind the line's end are blanks, as many as
// there is room for.
func (p *screen) move(col int) {
	col = min(max(0, col), maxColumn)
	for len(p.line) < col && p.count+len(p.line) < p.limit {
		p.line = append(p.line, ' ')
	}
	p.col = min(col, len(p.line))
}

// begins reports whether b begins with the second half of the control characters, in
// the two bytes that UTF-8 has for them, that begins a sequence.
func begins(b []byte) bool {
	return len(b) > 1 && b[0] == 0xc2 && strings.IndexByte("\x90\x98\x9b\x9d\x9e\x9f", b[1]) >= 0
}

// sequence returns the length of the sequence that b begins with, and whether it is
// whole. One that is broken off by another character ends before that.
func sequence(b []byte) (n int, whole bool) {
	b = b[:min(len(b), maxSequence)]
	kind, at := byte(0), 2
	switch {
	case b[0] != esc:
		kind = b[1] - 0x40 // as after an escape
	case len(b) == 1:
		return 0, false
	default:
		kind = b[1]
	}
	switch {
	case kind == '[':
		return after(b, at, func(c byte) bool { return c >= 0x20 && c < 0x40 }, 0x40)
	case strings.IndexByte("PX]^_", kind) >= 0:
		return text(b, at)
	case kind >= 0x20 && kind < 0x30:
		return after(b, at, func(c byte) bool { return c >= 0x20 && c < 0x30 }, 0x30)
	case kind >= 0x30 && kind < del:
		return 2, true
	}
	return 1, true // the escape alone: what follows is no part of it
}

// after ends a sequence with the first character behind those in between, which is part
// of it if it is one that ends sequences.
func after(b []byte, at int, between func(byte) bool, ends byte) (n int, whole bool) {
	for ; at < len(b); at++ {
		if between(b[at]) {
			continue
		}
		if b[at] >= ends && b[at] < del {
			at++
		}
		return at, true
	}
	return at, at == maxSequence
}

// text ends a sequence that carries text: a title, a link, a picture.
func text(b []byte, at int) (n int, whole bool) {
	for ; at < len(b); at++ {
		switch c := b[at]; {
		case c == bel, c == can, c == sub:
			return at + 1, true
		case c == 0xc2 && at+1 < len(b) && b[at+1] == 0x9c:
			return at + 2, true
		case c == esc && at+1 < len(b) && b[at+1] == '\\':
			return at + 2, true
		case c == esc && at+1 < len(b):
			return at, true // another sequence
		}
	}
	return at, at == maxSequence
}
