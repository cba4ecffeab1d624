package screen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/vt"
)

// Sequences that a picture is made of.
const (
	plainText  = "\x1b[0m"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearAll   = "\x1b[H\x1b[2J"
	altScreen  = "\x1b[?1049h"
	mainScreen = "\x1b[?1049l"
)

// Picture is what puts the screen on a terminal of that size, after whatever that shows,
// which goes into its history. Where the terminal is smaller, the part around the cursor is
// seen.
func (s *Screen) Picture(cols, rows int) (picture string) {
	cols, rows = bound(cols, usualCols, maxCols), bound(rows, usuRows, maxRows)
	s.guard(func() { picture = s.picture(cols, rows) })
	if s.broken {
		return plainText + clearAll
	}
	return picture
}

func (s *Screen) picture(cols, rows int) string {
	var b strings.Builder
	b.WriteString(plainText + hideCursor)
	at := s.e.CursorPosition()
	var lines []string
	if s.alt = s.e.IsAltScreen(); s.alt {
		b.WriteString(altScreen + clearAll)
	} else {
		b.WriteString("\r" + strings.Repeat("\n", rows) + clearAll)
		lines = s.history(cols)
	}
	above := len(lines)
	last := s.rows - 1
	if rows < s.rows { // what is empty below the cursor has no place
		for last > at.Y && s.empty(last) {
			last--
		}
	}
	for y := range last + 1 {
		lines = append(lines, s.line(y, cols))
	}
	if s.e.IsAltScreen() && len(lines) > rows { // it has no history to scroll into
		first := max(0, min(at.Y-rows+1, len(lines)-rows))
		lines, above = lines[first:min(first+rows, len(lines))], -first
	}
	b.WriteString(strings.Join(lines, "\r\n"))
	b.WriteString(plainText)
	s.state(&b, rows)
	scrolled := max(0, len(lines)-rows)
	y := max(0, min(above+at.Y-scrolled, rows-1))
	fmt.Fprintf(&b, "\x1b[%d;%dH", y+1, min(at.X, cols-1)+1)
	if !s.e.CursorHidden() {
		b.WriteString(showCursor)
	}
	return b.String()
}

// state is what a program has set, and a terminal does not begin with.
func (s *Screen) state(b *strings.Builder, rows int) {
	for _, m := range slices.Sorted(maps.Keys(s.modes)) {
		fmt.Fprintf(b, "\x1b[?%d%c", m, setting(s.modes[m]))
	}
	if n := len(s.keyboard); n > 0 {
		fmt.Fprintf(b, "\x1b[>%du", s.keyboard[n-1])
	}
	if s.otherKeys != 0 {
		fmt.Fprintf(b, "\x1b[>4;%dm", s.otherKeys)
	}
	if s.region[0] != 0 && rows == s.rows {
		fmt.Fprintf(b, "\x1b[%d;%dr", s.region[0], s.region[1])
	}
	if style, blinks := s.e.CursorStyle(); style != vt.CursorBlock || !blinks {
		n := int(style)*2 + 1
		if !blinks {
			n++
		}
		fmt.Fprintf(b, "\x1b[%d q", n)
	}
}

func setting(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// Undo is what gives a terminal back that shows the screen: with none of the modes that a
// program has set, at the beginning of a line.
func (s *Screen) Undo() string {
	var b strings.Builder
	b.WriteString(plainText)
	for _, m := range slices.Sorted(maps.Keys(s.modes)) {
		fmt.Fprintf(&b, "\x1b[?%d%c", m, setting(!s.modes[m]))
	}
	if len(s.keyboard) > 0 {
		fmt.Fprintf(&b, "\x1b[<%du", maxKeyboards)
	}
	if s.otherKeys != 0 {
		b.WriteString("\x1b[>4;0m")
	}
	b.WriteString("\x1b[0 q")
	below, begun := 0, true
	s.guard(func() {
		at := s.e.CursorPosition()
		s.alt, below, begun = s.e.IsAltScreen(), s.lowest()-at.Y, at.X > 0
	})
	switch {
	case s.alt:
		b.WriteString("\x1b[r" + mainScreen)
	case s.region[0] != 0:
		fmt.Fprintf(&b, "\x1b[r\x1b[%d;1H", s.rows)
	case below > 0: // what stands below the cursor stays
		fmt.Fprintf(&b, "\x1b[%dB", below)
	}
	b.WriteString(showCursor)
	if !s.alt && (begun || below > 0) {
		b.WriteString("\r\n")
	}
	return b.String()
}

// lowest returns the last row that is not empty.
func (s *Screen) lowest() int {
	y := s.rows - 1
	for y > 0 && s.empty(y) {
		y--
	}
	return y
}

// Text is what a program that has ended left on the screen, line by line, with its colours.
func (s *Screen) Text() (text string) {
	s.guard(func() {
		lines := s.history(maxCols)
		if !s.e.IsAltScreen() {
			for y := range s.lowest() + 1 {
				lines = append(lines, s.line(y, maxCols))
			}
		}
		text = strings.TrimRight(strings.Join(lines, "\r\n"), "\r\n")
	})
	if text == "" || s.broken {
		return ""
	}
	return text + plainText + "\r\n"
}

// history returns the lines that have scrolled off the screen.
func (s *Screen) history(cols int) []string {
	lines := make([]string, s.e.ScrollbackLen())
	for y := range lines {
		lines[y] = line(func(x int) *uv.Cell { return s.e.ScrollbackCellAt(x, y) }, min(s.cols, cols))
	}
	return lines
}

func (s *Screen) line(y, cols int) string {
	return line(func(x int) *uv.Cell { return s.e.CellAt(x, y) }, min(s.cols, cols))
}

func (s *Screen) empty(y int) bool { return s.line(y, s.cols) == "" }

// line is a row of cells as text with colours, without what is empty at its end.
func line(cell func(x int) *uv.Cell, cols int) string {
	var b strings.Builder
	var style, none uv.Style
	whole := 0 // how much of b is no empty end
	for x := 0; x < cols; x++ {
		c := cell(x)
		if c == nil {
			c = &uv.EmptyCell
		}
		if !c.Style.Equal(&style) {
			b.WriteString(uv.StyleDiff(&style, &c.Style))
			style = c.Style
		}
		text := printable(c.Content)
		if c.Width > 1 && x+c.Width > cols || text == "" {
			text = " "
		} else if c.Width > 1 {
			x += c.Width - 1
		}
		b.WriteString(text)
		if text != " " || !c.Style.Equal(&none) {
			whole = b.Len()
		}
	}
	text := b.String()[:whole]
	if strings.Contains(text, "\x1b") {
		text += plainText
	}
	return text
}

// printable is text without what would do something to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}
