package cli

import (
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// escape makes text of unknown origin fit for one line of a terminal.
func escape(s string) string {
	if weak.On(weak.EscapesRaw) {
		return s
	}
	return term.Escape(s)
}

// writeJSON writes v, indented, as the answer of a command.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// output is where a command's bytes go that has no terminal: as they are into
// files and pipes, and escaped onto a terminal, which must not obey them.
func output(w io.Writer) io.Writer {
	if isTerminal(w) {
		return &escapeWriter{w: w}
	}
	return w
}

// flush writes what output held back of the last character.
func flush(w io.Writer) {
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
// it. Bytes that begin none are nobody's to wait for.
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

// printLine writes s on a line of stdout.
func (a *app) printLine(s string) error {
	_, err := io.WriteString(a.env.Stdout, escape(s)+"\n")
	return err
}

// hint writes what may be done next on a line of stderr.
func (a *app) hint(s string) error {
	_, err := io.WriteString(a.env.Stderr, escape("hint: "+s)+"\n")
	return err
}

// addJSON adds --json.
func (a *app) addJSON(fs *pflag.FlagSet) {
	fs.BoolVar(&a.json, "json", false, "write JSON, also of errors and notes")
}
