package e2e

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
)

// screen is what a terminal showed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) has(want string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), want)
}

func (s *screen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	cmd := h.command(t.Context(), "exec", "-it", name, "--", "bash", "--norc")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 91})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	var seen screen
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%q", seen.text.String())
		}
	})
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(&seen, tty)
	}()
	// As a person does: type when there is a prompt, and wait for the answer.
	prompted := 0
	typed := func(text, want string) {
		t.Helper()
		until(t, func() bool { return seen.count("$ ") > prompted })
		prompted = seen.count("$ ")
		if _, err := io.WriteString(tty, text); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return seen.has(want) })
	}
	typed("stty size; echo size-$((1+1))\n", "size-2")
	if !seen.has("33 91") {
		t.Errorf("the size inside is not the terminal's:\n%s", seen.text.String())
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	typed("until [ \"$(stty size)\" = '40 120' ]; do :; done; echo resized-$((3*3))\n", "resized-9")
	// Ctrl-C ends the command, not the shell.
	typed("echo go-$((1+2)); sleep 1000\n", "go-3")
	until(t, func() bool { return h.run(nil, "exec", name, "--", "pgrep", "-x", "sleep").code == 0 })
	io.WriteString(tty, "\x03")
	typed("echo back-$((40+2))\n", "back-42")
	typed("sleep 1000 & jobs; kill %1; wait; echo jobs-$((2*3))\n", "jobs-6")
	if !seen.has("Running") {
		t.Errorf("no job control:\n%s", seen.text.String())
	}
	until(t, func() bool { return seen.count("$ ") > prompted })
	io.WriteString(tty, "exit 5\n")
	err = cmd.Wait()
	tty.Close()
	<-copied
	if cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code %d (%v), want the shell's own 5\n%s", cmd.ProcessState.ExitCode(), err, seen.text.String())
	}
}
