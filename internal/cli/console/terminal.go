package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// IsTerminal reports whether rw, one of the streams, is a terminal.
func IsTerminal(rw any) bool {
	f, ok := rw.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}

// Size of a terminal, in characters.
type Size struct{ Cols, Rows uint32 }

// SizeOf returns the size of the first of streams that is a terminal, or 80
// by 24 where none is.
func SizeOf(streams ...any) Size {
	for _, s := range streams {
		f, ok := s.(*os.File)
		if !ok || f == nil {
			continue
		}
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return Size{uint32(w), uint32(h)}
		}
	}
	return Size{80, 24}
}

// CanAsk reports whether there is a person to ask: on a terminal, of one who reads
// text and not JSON.
func (c *Console) CanAsk() bool { return !c.JSON && IsTerminal(c.Stdin) && IsTerminal(c.Stderr) }

// Yes asks a question, and reports whether the answer is yes. The caller has seen that
// it CanAsk.
func (c *Console) Yes(ctx context.Context, question string) (bool, error) {
	answer, err := c.Prompt(ctx, question+" [y/N] ")
	if err != nil {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// Prompt asks one question. A read of a terminal can't be called off: where
// ctx ends first, it is left behind for the process to end.
func (c *Console) Prompt(ctx context.Context, question string) (string, error) {
	type reply struct {
		line string
		err  error
	}
	got := make(chan reply, 1)
	go func() {
		line, err := promptLine(c.Stdin, c.Stderr, question)
		got <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-got:
		if errors.Is(r.err, io.EOF) {
			return "", sandbox.Errorf(sandbox.Denied, "no answer: left without a change")
		}
		return r.line, r.err
	}
}

// promptLine asks on the terminal and returns the answer's first line. The
// caller has checked that there is a terminal.
func promptLine(in io.Reader, out io.Writer, question string) (string, error) {
	if _, err := io.WriteString(out, question); err != nil {
		return "", err
	}
	var line []byte
	buf := make([]byte, 1) // byte by byte, to leave what follows to the next question
	for len(line) < 4096 {
		n, err := in.Read(buf)
		if n == 1 {
			if buf[0] == '\n' {
				break
			}
			line = append(line, buf[0])
		}
		if err == io.EOF && len(line) > 0 {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return string(line), nil
}

// PromptSecret asks for a value on the terminal, which shows nothing of it.
func (c *Console) PromptSecret(ctx context.Context, what, name string) (*api.SecretValue, error) {
	f, ok := c.Stdin.(*os.File)
	if !ok || !IsTerminal(f) {
		return nil, usage.Errorf("%s: nothing says where the value is, and stdin is no terminal", what).
			WithHint("use - to read it from stdin, or --from-env, --from-file or --command")
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's mode: %w", err)
	}
	if _, err := io.WriteString(c.Stderr, "value of "+name+": "); err != nil {
		return nil, err
	}
	type reply struct {
		b   []byte
		err error
	}
	got := make(chan reply, 1)
	go func() {
		b, err := term.ReadPassword(fd)
		got <- reply{b, err}
	}()
	// A read of a terminal can't be called off: it is left for the process to
	// end, and the terminal gets its echo back.
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, before)
		_, _ = io.WriteString(c.Stderr, "\n")
		return nil, context.Cause(ctx)
	case r := <-got:
		_, _ = io.WriteString(c.Stderr, "\n")
		switch {
		case errors.Is(r.err, io.EOF) || r.err == nil && len(r.b) == 0:
			return nil, sandbox.Errorf(sandbox.Denied, "no value was given: nothing was changed")
		case r.err != nil:
			return nil, fmt.Errorf("read the value: %w", r.err)
		}
		v := api.SecretValue(r.b)
		return &v, nil
	}
}
