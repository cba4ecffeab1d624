package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// isTerminal reports whether rw, a stream of the Env, is a terminal.
func isTerminal(rw any) bool {
	f, ok := rw.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}

// size of a terminal, in characters.
type size struct{ cols, rows uint32 }

// sizeOf returns the size of the first of streams that is a terminal, or 80
// by 24 where none is.
func sizeOf(streams ...any) size {
	for _, s := range streams {
		f, ok := s.(*os.File)
		if !ok || f == nil {
			continue
		}
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return size{uint32(w), uint32(h)}
		}
	}
	return size{80, 24}
}

// rawTerminal is a terminal in raw mode, until restore.
type rawTerminal struct {
	fd  int
	mu  sync.Mutex
	old *term.State // nil once restored
}

// makeRaw puts the terminal f into raw mode. Whatever happens after, restore
// must be called: the caller's shell is unusable otherwise.
func makeRaw(f *os.File) (*rawTerminal, error) {
	fd := int(f.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return &rawTerminal{fd: fd, old: old}, nil
}

// again puts the terminal back into raw mode after the process was stopped
// and continued: the shell has set its own mode in between.
func (t *rawTerminal) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old != nil {
		_, _ = term.MakeRaw(t.fd) // the terminal may be gone; output then fails by itself
	}
}

// restore gives the terminal back as it was. It may be called many times.
func (t *rawTerminal) restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old != nil {
		_ = term.Restore(t.fd, t.old) // it may be gone, and then needs no restoring
		t.old = nil
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
