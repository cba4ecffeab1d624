package console

import (
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxPad is the longest cell, in characters, that widens its column. Names,
// paths and labels may come from a guest: a longer one pushes what follows it in
// its own row aside, and no other.
const maxPad = 80

// MaxInline is how much of a name is shown in a sentence.
const MaxInline = 256

// Elide shortens s to at most n characters by taking out its middle.
func Elide(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// Table writes aligned columns. Every cell is escaped. A text/tabwriter would
// have one long cell widen all rows.
type Table struct {
	rows [][]string
}

// Row adds a row; an empty cell is a dash.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		cells[i] = Escape(c)
	}
	t.rows = append(t.rows, cells)
}

// Write writes the rows, two spaces between columns, nothing after the last.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if n := utf8.RuneCountInString(c); n <= maxPad {
				widths[i] = max(widths[i], n)
			}
		}
	}
	var b strings.Builder
	for _, r := range t.rows {
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(c))+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Words writes a duration as people say it, in its largest whole unit.
func Words(d time.Duration) string {
	for _, u := range [...]struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int64(d / u.size); n >= 2 || n == 1 && u.size <= d {
			if n == 1 {
				return "1 " + u.name
			}
			return strconv.FormatInt(n, 10) + " " + u.name + "s"
		}
	}
	return "less than a second"
}

// Ago says when t was, seen from now; "" for a zero t.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Words(max(0, now.Sub(t))) + " ago"
}

// In says when t will be, seen from now; "" for a zero t.
func In(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(now):
		return "now"
	}
	return "in " + Words(t.Sub(now))
}

// Count writes n with its noun: "1 file", "2 files", "2 sandboxes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	plural := "s"
	if strings.HasSuffix(noun, "x") {
		plural = "es"
	}
	return strconv.Itoa(n) + " " + noun + plural
}
