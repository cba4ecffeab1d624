// Package termmode watches what a program writes to a terminal for the modes that it sets: the
// alternate screen, the mouse, pasting, the keyboard's protocol. Who comes to the terminal later
// needs them, when the output that set them is no longer kept.
//
// It keeps a few numbers, whatever is written, and knows no other sequence. It is not safe
// for use from several goroutines.
package termmode

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// begins are the modes of DEC's that are watched, with whether a terminal begins with them.
var begins = map[int]bool{
	1: false, 7: true, 9: false, 25: true, 47: false, 66: false, 1000: false, 1002: false, 1003: false, 1004: false, 1005: false,
	1006: false, 1015: false, 1016: false, 1047: false, 1049: false, 2004: false, 2031: false,
}

// Bounds of what is kept.
const (
	maxParams    = 32 // bytes of one sequence
	maxKeyboards = 16
)

// Modes are those that output has set. The zero value has seen none.
type Modes struct {
	state     int // of the sequence that is read: 0 none, 1 after ESC, 2 in its parameters
	params    []byte
	set       map[int]bool // that are not as a terminal begins with them
	keyboard  []int
	otherKeys int
}

// Write implements io.Writer. It never fails.
func (m *Modes) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == 0x1b:
			m.state = 1
		case m.state == 1 && c == '[':
			m.state, m.params = 2, m.params[:0]
		case m.state == 1 && c == 'c': // all is as at the beginning
			*m = Modes{}
		case m.state == 2 && c >= 0x20 && c < 0x40 && len(m.params) < maxParams:
			m.params = append(m.params, c)
		case m.state == 2 && c >= 0x40 && c < 0x7f:
			m.take(c)
			m.state = 0
		case m.state != 0 && c >= 0x20:
			m.state = 0
		}
	}
	return len(p), nil
}

// take is a whole sequence that ends with c.
func (m *Modes) take(c byte) {
	if len(m.params) == 0 {
		return
	}
	kind, numbers := m.params[0], parse(m.params[1:])
	first := func(usual int) int {
		if len(numbers) == 0 || numbers[0] < 0 {
			return usual
		}
		return numbers[0]
	}
	switch {
	case kind == '?' && (c == 'h' || c == 'l'):
		for _, n := range numbers {
			m.mode(n, c == 'h')
		}
	case kind == '>' && c == 'u':
		if len(m.keyboard) == maxKeyboards {
			m.keyboard = m.keyboard[1:]
		}
		m.keyboard = append(m.keyboard, first(0))
	case kind == '<' && c == 'u':
		m.keyboard = m.keyboard[:max(0, len(m.keyboard)-first(1))]
	case kind == '>' && c == 'm' && first(0) == 4:
		m.otherKeys = 0
		if len(numbers) > 1 {
			m.otherKeys = max(numbers[1], 0)
		}
	}
}

func (m *Modes) mode(n int, on bool) {
	usual, watched := begins[n]
	switch {
	case !watched:
	case on == usual:
		delete(m.set, n)
	default:
		if m.set == nil {
			m.set = map[int]bool{}
		}
		m.set[n] = on
	}
}

// parse reads numbers with semicolons between them; -1 is none, or one that is too long.
func parse(b []byte) []int {
	var out []int
	for part := range strings.SplitSeq(string(b), ";") {
		n := -1
		for _, c := range []byte(part) {
			if c < '0' || c > '9' || n > 1<<20 {
				n = -1
				break
			}
			n = max(n, 0)*10 + int(c-'0')
		}
		out = append(out, n)
	}
	return out
}

// String is the sequences that set the modes on a terminal that has begun.
func (m *Modes) String() string {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(m.set)) {
		end := 'l'
		if m.set[n] {
			end = 'h'
		}
		fmt.Fprintf(&b, "\x1b[?%d%c", n, end)
	}
	if n := len(m.keyboard); n > 0 {
		fmt.Fprintf(&b, "\x1b[>%du", m.keyboard[n-1])
	}
	if m.otherKeys > 0 {
		fmt.Fprintf(&b, "\x1b[>4;%dm", m.otherKeys)
	}
	return b.String()
}
