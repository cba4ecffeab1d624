package relay

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/term"
)

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
