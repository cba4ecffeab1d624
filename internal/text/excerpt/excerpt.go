// Package excerpt keeps both ends of what may be long: how it began, how it ended, and how
// much lies between. What matters most of a command's output is often its last line.
//
// It is what every bound on a command's output goes by, but for those that an outside
// dialect has words of its own for.
package excerpt

import (
	"fmt"
	"unicode/utf8"
)

// Keeper keeps the two ends of a stream that is written to it. The zero value keeps nothing,
// and counts.
type Keeper struct {
	mostHead, mostTail int
	head, tail         []byte // tail is cut to mostTail when it is asked for
	all                int64
	gap                bool // what comes next is not what follows head
}

// New makes a Keeper of at most so many bytes of each end.
func New(head, tail int) *Keeper { return &Keeper{mostHead: head, mostTail: tail} }

// Write implements io.Writer. It never fails.
func (k *Keeper) Write(p []byte) (int, error) {
	n := len(p)
	k.all += int64(n)
	if !k.gap {
		first := min(n, k.mostHead-len(k.head))
		k.head = append(k.head, p[:first]...)
		p = p[first:]
	}
	if len(p) >= k.mostTail {
		k.tail = append(k.tail[:0], p[len(p)-k.mostTail:]...)
		return n, nil
	}
	if len(k.tail)+len(p) > 2*k.mostTail {
		k.tail = append(k.tail[:0], k.tail[len(k.tail)-k.mostTail:]...)
	}
	k.tail = append(k.tail, p...)
	return n, nil
}

// Skip counts bytes of the stream that are lost.
func (k *Keeper) Skip(n int64) {
	if n > 0 {
		k.all += n
		k.gap, k.tail = true, k.tail[:0]
	}
}

// All returns how many bytes there were.
func (k *Keeper) All() int64 { return k.all }

// Excerpt returns what is kept. It shares the Keeper's memory.
func (k *Keeper) Excerpt() Excerpt {
	tail := k.tail[max(0, len(k.tail)-k.mostTail):]
	return Excerpt{Head: k.head, Tail: tail, Between: k.all - int64(len(k.head)) - int64(len(tail))}
}

// Excerpt is what is kept of a stream. Where nothing lies between, Tail goes on where Head
// ends.
type Excerpt struct {
	Head, Tail []byte
	Between    int64 // bytes that are left out
}

// All returns how many bytes there were.
func (e Excerpt) All() int64 { return int64(len(e.Head)) + int64(len(e.Tail)) + max(e.Between, 0) }

// Whole returns both ends with a note between them of what is left out, and how much that is: of
// a character that was cut, all.
func (e Excerpt) Whole() (text []byte, leftOut int64) {
	head, tail := e.Head, e.Tail
	if leftOut = max(e.Between, 0); leftOut == 0 {
		return append(head[:len(head):len(head)], tail...), 0
	}
	head, tail = head[:wholeEnd(head)], tail[wholeStart(tail):]
	leftOut = e.All() - int64(len(head)) - int64(len(tail))
	return fmt.Appendf(head[:len(head):len(head)], "%s%s", Note(leftOut), tail), leftOut
}

// Note says how much is left out, between what was before and what came after.
func Note(bytes int64) string { return fmt.Sprintf("\n\n... [%d bytes left out] ...\n\n", bytes) }

// Share is how much of a bound the head has, of a hundred.
const Share = 60

// Cut returns what of a text fits into limit bytes, whole characters only, and whether that is
// less than all: then it is its two ends, with a note between them.
func Cut(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	room := limit - len(Note(int64(len(text))))
	if room <= 0 {
		b := []byte(text[:max(limit, 0)])
		return string(b[:wholeEnd(b)]), true
	}
	head := room * Share / 100
	tail := len(text) - (room - head)
	for !utf8.RuneStart(text[head]) && head > 0 {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + Note(int64(tail-head)) + text[tail:], true
}

// wholeEnd returns where what is whole of b ends.
func wholeEnd(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// wholeStart returns where the first character of b begins.
func wholeStart(b []byte) int {
	i := 0
	for i < min(len(b), utf8.UTFMax-1) && !utf8.RuneStart(b[i]) {
		i++
	}
	return i
}
