package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// seat is a terminal with somebody at it, and what it shows.
type seat struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd

	mu   sync.Mutex
	e    *vt.Emulator
	raw  strings.Builder
	done chan struct{} // closed when the terminal shows no more
}

// sit starts carboy on a terminal of that size.
func (h *home) sit(t *testing.T, cols, rows int, args ...string) *seat {
	t.Helper()
	s := &seat{t: t, cmd: h.command(t.Context(), args...), e: vt.NewEmulator(cols, rows), done: make(chan struct{})}
	s.cmd.Env = append(s.cmd.Env, "TERM=xterm-256color")
	tty, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(tty, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	start := func(c *exec.Cmd) error {
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		return c.Start()
	}
	if owner, err := os.Stat(h.dir); err != nil {
		t.Fatal(err)
	} else if owner.Sys().(*syscall.Stat_t).Uid != 0 { // an ordinary user's is no controlling terminal
		start = h.start
	}
	if err := errors.Join(start(s.cmd), slave.Close()); err != nil {
		t.Fatal(err)
	}
	// One whose reads end when it is closed: else it would not hang up.
	fd, err := unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, unix.SetNonblock(fd, true), tty.Close()); err != nil {
		t.Fatal(err)
	}
	s.tty = os.NewFile(uintptr(fd), "terminal")
	go func() { _, _ = io.Copy(io.Discard, s.e) }() // what the emulator answers
	go func() {
		defer close(s.done)
		_, _ = io.Copy(s, s.tty)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%q shows:\n%s\n%q", args, s.text(), s.raw.String())
		}
		s.tty.Close()
	})
	return s
}

// Write implements io.Writer.
func (s *seat) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Write(p)
	return s.e.Write(p)
}

func (s *seat) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.e.String()
}

func (s *seat) alt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.e.IsAltScreen()
}

// shows waits until all of want are on the screen.
func (s *seat) shows(want ...string) {
	s.t.Helper()
	until(s.t, func() bool {
		text := s.text()
		for _, w := range want {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

func (s *seat) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.tty, text); err != nil {
		s.t.Fatal(err)
	}
}

// code waits for carboy, and returns its exit code.
func (s *seat) code() int {
	_ = s.cmd.Wait() // the code says it
	<-s.done
	return s.cmd.ProcessState.ExitCode()
}

// turn is a full-screen program: it draws once, counts in a corner as it is told to, and ends
// with what is typed last.
const turn = `printf '\033[?1049h\033[2J\033[3;5H\033[1;32mthe turn\033[0m\033[?2004h\033]52;c;ZXZpbA==\007\033[6;1H'
n=0
while read -r word; do
  n=$((n+1))
  printf '\033[8;5Hcount-%d-%s\033[K\033[6;1H\033[K' $n "$word"
  [ "$word" = end ] && { printf '\033[?1049l\033[?2004lbye\r\n'; exit 7; }
done`

// TestAttach: a terminal is closed, its client killed, the daemon too: the command goes on, and
// another terminal shows what the first did, and goes on with it, to its exit code.
func TestAttach(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		h.ok("run", "-d", "-t", "--name", "web", "--isolation", wall, "--", "bash", "-c", turn)
		first := h.sit(t, 91, 33, "attach", "web")
		first.shows("the turn")
		first.types("one\n")
		first.shows("count-1-one")
		first.tty.Close() // as a window that is closed: SIGHUP
		_ = first.cmd.Wait()

		second := h.sit(t, 80, 24, "attach", "web")
		second.shows("the turn", "count-1-one")
		if !second.alt() || !strings.Contains(second.raw.String(), "\x1b[?2004h") || !strings.Contains(second.raw.String(), "32;1m") {
			t.Errorf("screen, modes or colours are lost: %q", second.raw.String())
		}
		if strings.Contains(second.raw.String(), "\x1b]52") {
			t.Error("what was kept writes to the clipboard")
		}
		h.killDaemon()
		second.types("two\n")
		second.shows("count-2-two")
		_ = second.cmd.Process.Signal(syscall.SIGKILL)
		_ = second.cmd.Wait()
		h.killDaemon()

		third := h.sit(t, 40, 10, "attach", "web")
		third.shows("the turn", "count-2-two")
		fourth := h.sit(t, 91, 33, "attach", "web")
		fourth.shows("count-2-two")
		fourth.types("three\n")
		third.shows("count-3-three") // two at once
		third.types("four\n")
		fourth.shows("count-4-four")
		third.types("\x10\x11") // Ctrl-P Ctrl-Q
		if code := third.code(); code != 0 || third.alt() {
			t.Errorf("detached: %d, %q", code, third.raw.String())
		}
		fourth.types("end\n")
		if code := fourth.code(); code != 7 {
			t.Errorf("the command's end: %d", code)
		}
		if r := h.run(nil, "attach", "web"); r.code != 7 || !strings.Contains(r.stderr, "has ended before (7)") {
			t.Errorf("of a command that has ended: %d, %q", r.code, r.stderr)
		}
		h.ok("rm", "-f", "web")
	})
}

// TestAttachSlowly: who takes a while between Ctrl-P and Ctrl-Q leaves all the same, and the
// command has had Ctrl-P by then, as one that is typed for the command alone.
func TestAttachSlowly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.ok("run", "-d", "-t", "--name", "web", "--isolation", "process", "--", "sh", "-c", "stty raw -echo; printf ready; dd bs=1 count=1 2>/dev/null | od -An -to1; exec sleep 1000")
	s := h.sit(t, 80, 24, "attach", "web")
	s.shows("ready")
	s.types("\x10")
	s.shows("020")
	s.types("\x11")
	if code := s.code(); code != 0 {
		t.Errorf("detached: %d, %q", code, s.raw.String())
	}
	if r := h.run(nil, "exec", "web", "--", "pgrep", "sleep"); r.code != 0 {
		t.Errorf("the command is gone: %q", r.stderr)
	}
}

// TestAttachWho: without a name of a command it is the main one, or the only one; where that is
// not told, the error lists them.
func TestAttachWho(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create("--isolation", "process")
	if r := h.run(nil, "attach", name); r.code != 125 || !strings.Contains(r.stderr, "no command runs in it") {
		t.Errorf("none: %d, %q", r.code, r.stderr)
	}
	one := strings.TrimSpace(h.ok("exec", "-d", "-t", name, "--", "sh", "-c", "echo first; read x; exit 3"))
	two := strings.TrimSpace(h.ok("exec", "-d", "-t", name, "--", "sleep", "1000"))
	if r := h.run(nil, "attach", name); r.code != 125 || !strings.Contains(r.stderr, one) || !strings.Contains(r.stderr, two) {
		t.Errorf("two: %d, %q", r.code, r.stderr)
	}
	if r := h.run(nil, "attach", name, "no-such"); r.code != 125 || !strings.Contains(r.stderr, "it has no command no-such") {
		t.Errorf("another: %d, %q", r.code, r.stderr)
	}
	s := h.sit(t, 80, 24, "attach", name, one)
	s.shows("first")
	s.types("\n")
	if code := s.code(); code != 3 {
		t.Errorf("code %d", code)
	}
	h.ok("stop", name)
	if r := h.run(nil, "attach", name); r.code != 125 || !strings.Contains(r.stderr, "is stopped") {
		t.Errorf("stopped: %d, %q", r.code, r.stderr)
	}
}
