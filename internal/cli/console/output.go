package console

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Escape makes text of unknown origin fit for one line of a terminal.
func Escape(s string) string {
	if weak.On(weak.EscapesRaw) {
		return s
	}
	return term.Escape(s)
}

// WriteJSON writes v, indented, as the answer of a command.
func (c *Console) WriteJSON(v any) error {
	return writeJSON(c.Stdout, v, "  ")
}

// WriteJSONLine writes v on one line.
func WriteJSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

// writeJSON writes v in characters that no terminal obeys: json by itself escapes those of ASCII
// alone.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := b.Bytes()
	if !weak.On(weak.EscapesRaw) {
		out = term.EscapeJSON(out)
	}
	_, err := w.Write(out)
	return err
}

// Output is where a command's bytes go that has no terminal: as they are into
// files and pipes, and escaped onto a terminal, which must not obey them.
func Output(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return Escaped(w)
	}
	return w
}

// Escaped is a writer to w that escapes wherever that leads.
func Escaped(w io.Writer) io.Writer { return &escapeWriter{w: w} }

// Flush writes what output held back of the last character.
func Flush(w io.Writer) {
	if e, ok := w.(*escapeWriter); ok && len(e.tail) > 0 {
		_, _ = e.w.Write(term.EscapeText(e.tail)) // a failed write has been told by Write already
		e.tail = nil
	}
}

// escapeWriter escapes text that comes in pieces of any size.
type escapeWriter struct {
	w    io.Writer
	tail []byte // the start of a character whose end has not come
}

// Write writes all of p that is whole characters, and keeps the rest.
func (e *escapeWriter) Write(p []byte) (int, error) {
	buf := append(e.tail, p...)
	whole := len(buf) - partial(buf)
	e.tail = append([]byte(nil), buf[whole:]...)
	if _, err := e.w.Write(term.EscapeText(buf[:whole])); err != nil {
		return 0, err
	}
	return len(p), nil
}

// partial returns how many bytes at p's end begin a character without ending
// it. Bytes that begin no character are not waited for.
func partial(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
