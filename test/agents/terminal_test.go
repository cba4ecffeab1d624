package agents

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

// terminal is one with a person before it: it has a screen, and answers what
// programs ask a terminal.
type terminal struct {
	p   *place
	cmd *exec.Cmd
	tty *os.File

	mu     sync.Mutex
	screen *vt.Emulator  // guarded by mu
	first  chan struct{} // closed at the first byte
	done   chan struct{} // closed when the program has left it
}

// open starts carboy on a terminal.
func (p *place) open(args ...string) *terminal {
	p.t.Helper()
	return p.openCommand(p.command(p.t.Context(), args...))
}

func (p *place) openCommand(cmd *exec.Cmd) *terminal {
	p.t.Helper()
	t := &terminal{p: p, cmd: cmd, screen: vt.NewEmulator(120, 40), first: make(chan struct{}), done: make(chan struct{})}
	var err error
	p.net.In(func() { t.tty, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120}) })
	if err != nil {
		p.t.Fatal(err)
	}
	go io.Copy(t.tty, t.screen) // what it answers; it ends with the screen
	go t.show()
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("the screen:\n%s", t.text())
		}
		t.hangUp()
	})
	return t
}

func (t *terminal) show() {
	defer close(t.done)
	buf := make([]byte, 32<<10)
	for begun := false; ; {
		n, err := t.tty.Read(buf)
		if n > 0 && !begun {
			begun = true
			close(t.first)
		}
		t.mu.Lock()
		_, _ = t.screen.Write(buf[:n]) // it takes everything
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text is what stands on the screen.
func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// shows waits until a text stands on the screen.
func (t *terminal) shows(want string) {
	t.p.t.Helper()
	t.p.until("the screen shows "+want, func() bool { return strings.Contains(t.text(), want) })
}

// types types.
func (t *terminal) types(text string) {
	t.p.t.Helper()
	if _, err := io.WriteString(t.tty, text); err != nil {
		t.p.t.Fatal(err)
	}
}

// hangUp closes the terminal: nobody is before it any more.
func (t *terminal) hangUp() {
	t.tty.Close()
	<-t.done
	_ = t.screen.Close()
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait() // how it ended is not asked
}
