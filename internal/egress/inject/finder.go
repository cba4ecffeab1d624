package inject

import (
	"bytes"
)

// Finder finds a value in texts, in each spelling in which the gate looks for one in what a
// server answers. It is safe for use by several goroutines.
type Finder struct{ m *matcher }

// NewFinder makes one. A value that is shorter than 8 bytes it finds nowhere: such ones stand
// anywhere by chance.
func NewFinder(value string) *Finder { return &Finder{matcherOf([]string{value})} }

// Find returns where the line begins on which the value is complete; -1: it is not in the text.
func (f *Finder) Find(text []byte) int {
	if f.m == nil {
		return -1
	}
	s, at := newSearcher(f.m), 0
	for line := range bytes.Lines(text) {
		if s.feed(line) == found {
			return at
		}
		at += len(line)
	}
	if s.end() == found {
		return max(0, len(text)-1)
	}
	return -1
}

// Forget overwrites what it knows of the value: it finds nothing any more. Nobody may use it
// meanwhile.
func (f *Finder) Forget() {
	if f.m != nil {
		clear(f.m.nodes)
		f.m = nil
	}
}
