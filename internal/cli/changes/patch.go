package changes

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// lineCounter counts the lines that a patch adds and takes.
type lineCounter struct {
	line           []byte // the start of a line whose end has not come, cut
	oldLeft        int    // lines of the current hunk that are still to come
	newLeft        int
	added, removed int
	hunks          int
}

// maxCounted is how much of a line is looked at: enough for a hunk's header.
const maxCounted = 128

// Write never fails.
func (c *lineCounter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}
		c.line = append(c.line, piece[:min(len(piece), maxCounted-len(c.line))]...)
		if i < 0 {
			break
		}
		c.count()
		c.line, p = c.line[:0], p[i+1:]
	}
	return n, nil
}

// count takes one whole line.
func (c *lineCounter) count() {
	if c.oldLeft <= 0 && c.newLeft <= 0 {
		c.oldLeft, c.newLeft = hunkLengths(string(c.line))
		if c.oldLeft+c.newLeft > 0 {
			c.hunks++
		}
		return
	}
	if len(c.line) == 0 {
		return
	}
	switch c.line[0] {
	case '+':
		c.added++
		c.newLeft--
	case '-':
		c.removed++
		c.oldLeft--
	case ' ':
		c.oldLeft--
		c.newLeft--
	}
}

// hunkLengths returns the two lengths in a hunk's header, and zeros for any
// other line.
func hunkLengths(line string) (before, after int) {
	var at int
	for _, form := range [...]string{"@@ -%d,%d +%d,%d @@", "@@ -%d,%d +%d @@", "@@ -%d +%d,%d @@", "@@ -%d +%d @@"} {
		before, after = 1, 1
		var err error
		switch form {
		case "@@ -%d,%d +%d,%d @@":
			_, err = fmt.Sscanf(line, form, &at, &before, &at, &after)
		case "@@ -%d,%d +%d @@":
			_, err = fmt.Sscanf(line, form, &at, &before, &at)
		case "@@ -%d +%d,%d @@":
			_, err = fmt.Sscanf(line, form, &at, &at, &after)
		default:
			_, err = fmt.Sscanf(line, form, &at, &at)
		}
		if err == nil {
			return before, after
		}
	}
	return 0, 0
}

func (c *lineCounter) String() string {
	if c.hunks == 0 {
		return "not text"
	}
	return fmt.Sprintf("+%d -%d", c.added, c.removed)
}

// patchWriter returns where a patch for w is to be written, in colours where w
// is a terminal that wants them. done must be called after.
func (r *Reviewer) patchWriter(w io.Writer, raw bool) (_ io.Writer, done func() error) {
	if raw || !r.Colours(w) {
		return w, func() error { return nil }
	}
	p := &painter{w: bufio.NewWriter(w)}
	return p, p.end
}

// painter colours the lines of a patch by their first character. It gets text
// that is escaped already.
type painter struct {
	w     *bufio.Writer
	start bool // the first byte of the current line was written
	reset bool // and a colour was set before it
}

// Write colours p. Errors are bufio's, and stay until end.
func (c *painter) Write(p []byte) (int, error) {
	for _, b := range p {
		if !c.start && b != '\n' {
			c.start = true
			if code := colourOf(b); code != "" {
				c.reset = true
				_, _ = c.w.WriteString(code) // the error stays in w until end
			}
		}
		if b == '\n' {
			c.stop()
		}
		_ = c.w.WriteByte(b) // as above
	}
	return len(p), nil
}

func (c *painter) stop() {
	if c.reset {
		_, _ = c.w.WriteString("\x1b[0m") // the error stays in w until end
	}
	c.start, c.reset = false, false
}

func (c *painter) end() error {
	c.stop()
	return c.w.Flush()
}

func colourOf(first byte) string {
	switch first {
	case '+':
		return "\x1b[32m"
	case '-':
		return "\x1b[31m"
	case '@':
		return "\x1b[36m"
	case 'd':
		return "\x1b[1m"
	}
	return ""
}
