// Package screen knows what a terminal shows after it was written to: the text with its
// colours, the cursor, and the modes that a program has set. What was kept of a program's
// output becomes one picture, which is painted on another terminal.
//
// What it reads comes from a sandbox and may mean harm. A picture is made of printable text,
// colours, places of the cursor and a list of modes, and of nothing else: no title, link,
// clipboard or question to a terminal is ever part of one. Its size, the lines that it keeps and
// the work that one sequence can cause are bounded; an output that breaks the emulator has
// no picture.
package screen

import (
	"io"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// Bounds of a screen.
const (
	maxCols, maxRows   = 500, 300
	maxLines           = 1000   // that have scrolled off it
	maxCount           = 10_000 // in a sequence that does something that many times
	maxKeyboards       = 16     // that a program has set one above the other
	usualCols, usuRows = 80, 24
)

// Screen is a terminal that nobody sees. It is for one goroutine.
type Screen struct {
	e         *vt.Emulator
	cols      int
	rows      int
	modes     map[int]bool // of DEC's, set or reset, where that is not what a terminal begins with
	keyboard  []int        // flags of the keyboard's protocol, the last one holds
	otherKeys int          // xterm's modifyOtherKeys
	region    [2]int       // rows that scroll, from 1; 0: all
	alt       bool         // when it was looked at last
	broken    bool         // or too much work: it shows nothing more
	begun     time.Time
	spent     time.Duration
}

// Bounds of the work that one screen causes: at first, and of the time that goes by.
const (
	workAtFirst = 4 * time.Second
	workShare   = 4
	piece       = 256 // bytes that are shown at once
)

// New makes an empty screen of that size; 0 is the usual one.
func New(cols, rows int) *Screen {
	s := &Screen{cols: bound(cols, usualCols, maxCols), rows: bound(rows, usuRows, maxRows), modes: map[int]bool{}, begun: time.Now()}
	s.e = vt.NewEmulator(s.cols, s.rows)
	s.e.SetScrollbackSize(maxLines)
	s.e.SetCallbacks(vt.Callbacks{
		EnableMode:  func(m ansi.Mode) { s.setMode(m, true) },
		DisableMode: func(m ansi.Mode) { s.setMode(m, false) },
	})
	s.listen()
	go func() { _, _ = io.Copy(io.Discard, s.e) }() // answers to what a program asks: whom it asked is gone
	return s
}

func bound(n, usual, most int) int {
	if n <= 0 {
		n = usual
	}
	return min(n, most)
}

// Write shows what a program has written. It never fails.
func (s *Screen) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && !s.broken; {
		now := rest[:min(piece, len(rest))]
		rest = rest[len(now):]
		began := time.Now()
		s.guard(func() { _, _ = s.e.Write(now) })
		s.spent += time.Since(began)
		s.broken = s.broken || s.spent > workAtFirst+time.Since(s.begun)/workShare
	}
	return len(p), nil
}

// guard runs what hostile output could break.
func (s *Screen) guard(f func()) {
	if s.broken {
		return
	}
	defer func() {
		if recover() != nil {
			s.broken = true
		}
	}()
	f()
}

// Resize gives the screen another size.
func (s *Screen) Resize(cols, rows int) {
	s.cols, s.rows = bound(cols, usualCols, maxCols), bound(rows, usuRows, maxRows)
	s.region = [2]int{}
	s.guard(func() { s.e.Resize(s.cols, s.rows) })
}

// kept are the modes that are set again on another terminal, each with whether a terminal
// begins with it.
var kept = map[int]bool{
	1: false, 7: true, 9: false, 66: false, // keys of the cursor, wrapping, mouse, keypad
	1000: false, 1002: false, 1003: false, 1004: false, 1005: false, 1006: false, 1015: false, 1016: false, // mouse and focus
	2004: false, 2031: false, // pasting, and what scheme of colours there is
}

func (s *Screen) setMode(m ansi.Mode, on bool) {
	dec, ok := m.(ansi.DECMode)
	if !ok {
		return
	}
	begins, ok := kept[int(dec)]
	switch {
	case !ok:
	case on == begins:
		delete(s.modes, int(dec))
	default:
		s.modes[int(dec)] = on
	}
}

// listen notes what the emulator does not tell of, and keeps from it what would be work
// without an end.
func (s *Screen) listen() {
	for _, cmd := range "@ABCDEFILMPSTXZ`abdejk" {
		s.e.RegisterCsiHandler(int(cmd), func(params ansi.Params) bool { return tooMany(params) })
	}
	s.e.RegisterCsiHandler('r', func(params ansi.Params) bool {
		top, _, _ := params.Param(0, 1)
		bottom, _, ok := params.Param(1, s.rows)
		if s.region = [2]int{}; ok && top >= 1 && top < bottom && bottom <= s.rows && (top > 1 || bottom < s.rows) {
			s.region = [2]int{top, bottom}
		}
		return false // the emulator has it, too
	})
	s.e.RegisterCsiHandler(ansi.Command('>', 0, 'u'), func(params ansi.Params) bool {
		flags, _, _ := params.Param(0, 0)
		if len(s.keyboard) == maxKeyboards {
			s.keyboard = s.keyboard[1:]
		}
		s.keyboard = append(s.keyboard, flags)
		return true
	})
	s.e.RegisterCsiHandler(ansi.Command('<', 0, 'u'), func(params ansi.Params) bool {
		n, _, _ := params.Param(0, 1)
		s.keyboard = s.keyboard[:max(0, len(s.keyboard)-max(n, 0))]
		return true
	})
	s.e.RegisterCsiHandler(ansi.Command('=', 0, 'u'), func(params ansi.Params) bool {
		flags, _, _ := params.Param(0, 0)
		if len(s.keyboard) == 0 {
			s.keyboard = append(s.keyboard, 0)
		}
		last := &s.keyboard[len(s.keyboard)-1]
		switch how, _, _ := params.Param(1, 1); how {
		case 1:
			*last = flags
		case 2:
			*last |= flags
		case 3:
			*last &^= flags
		}
		return true
	})
	s.e.RegisterCsiHandler(ansi.Command('>', 0, 'm'), func(params ansi.Params) bool {
		if which, _, _ := params.Param(0, 0); which == 4 {
			s.otherKeys, _, _ = params.Param(1, 0)
		}
		return true
	})
}

// tooMany reports whether a sequence is to do something more often than any screen can show.
func tooMany(params ansi.Params) bool {
	return slices.ContainsFunc(params, func(p ansi.Param) bool { return p.Param(0) > maxCount })
}
