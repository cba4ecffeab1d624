// Package console is where the command line reads and writes: its streams, the
// terminal that they may be, and the forms of what is told: notes, errors,
// tables, JSON. Text of unknown origin is escaped. It refuses to ask where no
// terminal is.
package console

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Console is where one run of the command line reads and writes.
type Console struct {
	// Streams that are *os.File are asked whether they are terminals; others
	// never are one.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	Now            func() time.Time
	JSON           bool // --json was given

	Raw atomic.Bool // the terminal is in raw mode
}

// Note writes one line on stderr that is not an error.
func (c *Console) Note(text string) { c.NoteReason("", text) }

// NoteReason is Note with a word that programs can act on.
func (c *Console) NoteReason(reason, text string) {
	if c.JSON {
		_ = WriteJSONLine(c.Stderr, noteJSON{Note: text, Reason: reason}) // nothing is left to tell it to
		return
	}
	end := "\n"
	if c.Raw.Load() {
		end = "\r\n"
	}
	_, _ = io.WriteString(c.Stderr, "carboy: "+Escape(text)+end)
}

// noteJSON is a note as --json shows it.
type noteJSON struct {
	Note   string `json:"note"`
	Reason string `json:"reason,omitempty"` // a word for programs, such as "changes" or "refused"; "" where there is none
}

// Getenv is the value of name, "" where it is unset.
func (c *Console) Getenv(name string) string {
	v, _ := c.LookupEnv(name)
	return v
}

// errorJSON is an error as --json shows it.
type errorJSON struct {
	Error string       `json:"error"`
	Kind  sandbox.Kind `json:"kind"`
	Hint  string       `json:"hint,omitempty"`
}

// PrintError writes err and its hint for a person, or as one JSON object.
func (c *Console) PrintError(err error) {
	if all := joined(err); len(all) > 0 && !c.JSON {
		for _, e := range all {
			c.PrintError(e)
		}
		return
	}
	e := errorJSON{Error: err.Error(), Kind: sandbox.KindOf(err)}
	if se, ok := errors.AsType[*sandbox.Error](err); ok {
		e.Hint = se.Hint
	}
	if c.JSON {
		_ = WriteJSONLine(c.Stderr, e) // nothing is left to tell it to
		return
	}
	_, _ = fmt.Fprintf(c.Stderr, "carboy: %s\n", Escape(e.Error))
	if e.Hint != "" {
		_, _ = fmt.Fprintf(c.Stderr, "hint: %s\n", Escape(e.Hint))
	}
}

// joined are the errors that errors.Join made err of.
func joined(err error) []error {
	j, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // it and no other
	if !ok {
		return nil
	}
	if same := errors.Join(j.Unwrap()...); same == nil || same.Error() != err.Error() {
		return nil // it says more
	}
	return j.Unwrap()
}

// Answer writes the answer of a command: v as JSON, or a line.
func (c *Console) Answer(v any, line string) error {
	if c.JSON {
		return c.WriteJSON(v)
	}
	return c.PrintLine(line)
}

// PrintLine writes s on a line of stdout.
func (c *Console) PrintLine(s string) error {
	_, err := io.WriteString(c.Stdout, Escape(s)+"\n")
	return err
}

// Hint writes what may be done next on a line of stderr.
func (c *Console) Hint(s string) error {
	_, err := io.WriteString(c.Stderr, Escape("hint: "+s)+"\n")
	return err
}

// Colours reports whether text on w may be coloured. No meaning is ever in a
// colour alone.
func (c *Console) Colours(w io.Writer) bool {
	return IsTerminal(w) && c.Getenv("NO_COLOR") == "" && c.Getenv("TERM") != "dumb"
}
