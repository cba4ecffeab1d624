package cli_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A terminal that is attached to a shell is the shell's: its keys, its size and its history;
// detached, the shell goes on, and its end is the command's.
func TestShellAttach(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	if code, out := onTerminal(t, d, nil, "shell", "open", "web", "--shell-id", "s").wait(); code != 0 {
		t.Fatalf("open: %d, %q", code, out)
	}
	s := onTerminal(t, d, nil, "shell", "attach", "web", "s")
	s.expect("$ ")
	if m := s.mode(); m.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Errorf("the terminal is not in raw mode: %x", m.Lflag)
	}
	s.send("stty size\r")
	s.expect("\n30 100\r\n")
	if err := pty.Setsize(s.tty, &pty.Winsize{Cols: 50, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(s.expect(askSize(s)), "20 50") { // it takes its time to arrive
	}
	s.send("sh -c 'echo up; exec sleep 1000'\r") // before that runs, Ctrl-C would be the shell's
	s.expect("up\r\n")
	s.send("\x03")
	s.expect("$ ")
	s.send("printf 'kept: \\377 \\303\\274\\n'\r")
	s.expect("kept: \xff ü\r\n")
	s.send("\x10\x11")
	if code, out := s.wait(); code != 0 || !strings.Contains(out, "carboy: detached: carboy shell attach web s comes back\r\n") {
		t.Errorf("detached with %d, %q", code, out)
	}
	s = onTerminal(t, d, nil, "shell", "attach", "web", "s")
	s.expect("30 100\r\n") // its history
	s.expect("kept: \xff ü\r\n")
	s.send("exit 3\r")
	if code, out := s.wait(); code != 3 {
		t.Errorf("the shell's end: %d, %q, want 3", code, out)
	}
	s = onTerminal(t, d, nil, "shell", "attach", "web", "s", "--cursor", "1")
	if code, out := s.wait(); code != 3 || !strings.Contains(out, "kept: ") {
		t.Errorf("attached after its end: %d, %q, want 3 and its history", code, out)
	}
}

// The terminal is given back as it was, however attaching ends.
func TestShellAttachRestored(t *testing.T) {
	for name, end := range map[string]func(s *terminal){
		"detached":   func(s *terminal) { s.send("\x10\x11") },
		"in-two":     func(s *terminal) { s.send("\x10"); s.send("\x11") },
		"ended":      func(s *terminal) { s.send("exit\r") },
		"terminated": func(s *terminal) { s.signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			d := startFake(t)
			create(t, d, "web")
			s := onTerminalBy(t, d, `carboy shell open web --shell-id s; stty -a > "$0/before"; carboy shell attach web s; c=$?; stty -a > "$0/after"; echo "over $c"`, "")
			s.expect("$ ")
			end(s)
			s.expect("over ")
			s.wait()
			if before, after := readFile(t, s.dir(), "before"), readFile(t, s.dir(), "after"); before != after {
				t.Errorf("the terminal was %q, and is %q", before, after)
			}
		})
	}
}
