package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	waits "github.com/carboy-sandbox/carboy/test/patience"
)

// patience is how long a test waits for what must come.
var patience = waits.For(30 * time.Second)

// terminal is carboy on a terminal of its own.
type terminal struct {
	t   *testing.T
	tty *os.File // the other end
	cmd *exec.Cmd

	mu   sync.Mutex
	wake chan struct{}
	out  string
	done bool
}

// onTerminal starts carboy on a terminal of 100 by 30.
func onTerminal(t *testing.T, d *fakeDaemon, env []string, args ...string) *terminal {
	t.Helper()
	return startOnTerminal(t, d, env, "carboy", args...)
}

func startOnTerminal(t *testing.T, d *fakeDaemon, env []string, name string, args ...string) *terminal {
	t.Helper()
	s := &terminal{t: t, cmd: exec.Command(name, args...), wake: make(chan struct{})}
	s.cmd.Env = append([]string{
		"CARBOY_FAKE=" + d.Socket, "CARBOY_STATE=" + filepath.Join(t.TempDir(), "state"), "PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + t.TempDir(), "TERM=xterm-test", "GORACE=" + raceOptions, "GOCOVERDIR=" + t.TempDir(),
	}, env...)
	tty, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Cols: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	s.tty = tty
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(s.read)
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_, _ = s.cmd.Process.Wait()
		_ = tty.Close()
		reader.Wait()
	})
	return s
}

func (s *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.out += string(buf[:n])
		s.done = err != nil
		close(s.wake)
		s.wake = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// expect waits until text was printed, and returns all that was up to there
// and forgets it.
func (s *terminal) expect(text string) string {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		i := strings.Index(s.out, text)
		wake, done := s.wake, s.done
		if i >= 0 {
			seen := s.out[:i+len(text)]
			s.out = s.out[i+len(text):]
			s.mu.Unlock()
			return seen
		}
		out := s.out
		s.mu.Unlock()
		if done {
			s.t.Fatalf("%q did not come; there is %q", text, out)
		}
		select {
		case <-wake:
		case <-late:
			s.t.Fatalf("waited too long for %q; there is %q", text, out)
		}
	}
}

func (s *terminal) send(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// wait returns carboy's exit code, and what it printed that was not expected.
func (s *terminal) wait() (code int, rest string) {
	s.t.Helper()
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	err := s.cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	// With the last process gone from it, the terminal ends.
	for {
		s.mu.Lock()
		wake, done, out := s.wake, s.done, s.out
		s.mu.Unlock()
		if done {
			return code, out
		}
		<-wake
	}
}

func (s *terminal) mode() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

// create makes a sandbox of that name.
func create(t *testing.T, d *fakeDaemon, name string) {
	t.Helper()
	s := onTerminal(t, d, nil, "create", "--name", name)
	if code, out := s.wait(); code != 0 {
		t.Fatalf("create: %d, %q", code, out)
	}
}

// ready is a shell that says when it runs. It reads lines then.
const ready = `echo ready; while :; do read -r x && eval "$x"; done`

func TestTerminal(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	s := onTerminal(t, d, nil, "exec", "-it", "--env", "PS1=", "web", "--", "sh", "-c", "stty -echo; "+ready)
	s.expect("ready\r\n")
	if m := s.mode(); m.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Errorf("the terminal is not in raw mode: %x", m.Lflag)
	}
	s.send("stty size; echo $TERM\n")
	s.expect("30 100\r\nxterm-test\r\n")
	if err := pty.Setsize(s.tty, &pty.Winsize{Cols: 50, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(s.expect(askSize(s)), "20 50") { // it takes its time to arrive
	}
	s.send("printf '\\033[31m'; exit 3\n")
	code, out := s.wait()
	if code != 3 || out != "\x1b[31m" {
		t.Errorf("exit code %d, output %q; want 3 and a colour", code, out)
	}
}

// askSize makes the shell print its size, and returns what it prints last.
func askSize(s *terminal) string {
	s.send("stty size; echo asked\n")
	return "asked\r\n"
}

// TestTerminalOfAShell holds that a shell alone needs no -it, and that nothing else
// takes the terminal.
func TestTerminalOfAShell(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	for _, args := range [][]string{{"exec", "web", "sh"}, {"exec", "web", "--", "/bin/sh", "-i"}, {"run", "--", "sh"}} {
		s := onTerminal(t, d, nil, args...)
		s.send("stty size; exit 3\n")
		if code, out := s.wait(); code != 3 || !strings.Contains(out, "30 100") {
			t.Errorf("%v: exit code %d, output %q; want 3 and a terminal", args, code, out)
		}
	}
	const ask = "test -t 0 || test -t 1 || echo none"
	for _, args := range [][]string{{"exec", "-t=false", "web", "sh"}, {"exec", "web", "sh", "-c", ask}, {"run", "sh", "-c", ask}} {
		s := onTerminal(t, d, nil, args...)
		code, out := s.wait()
		if want := slices.Contains(args, ask); code != 0 || strings.Contains(out, "none") != want {
			t.Errorf("%v: exit code %d, output %q; want no terminal", args, code, out)
		}
	}
}

func TestTerminalInterrupt(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	s := onTerminal(t, d, nil, "exec", "-it", "web", "--", "sh", "-c", `trap 'echo got it; exit 9' INT; `+ready)
	s.expect("ready\r\n")
	s.send("\x03")
	s.expect("got it\r\n")
	if code, _ := s.wait(); code != 9 {
		t.Errorf("exit code %d, want the command's own, 9", code)
	}
}

// TestTerminalRestored holds that the terminal is given back as it was,
// however carboy ends.
func TestTerminalRestored(t *testing.T) {
	tests := []struct {
		name string
		end  func(s *terminal)
		code int
	}{
		{"exit", func(s *terminal) { s.send("exit 4\n") }, 4},
		{"terminated", func(s *terminal) {
			s.signal(syscall.SIGTERM) // the command's
			s.expect("told\r\n")
			s.signal(syscall.SIGTERM)
		}, 137},
		{"hung-up", func(s *terminal) {
			s.signal(syscall.SIGHUP)
			s.expect("told\r\n")
			s.signal(syscall.SIGINT)
		}, 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := startFake(t)
			create(t, d, "web")
			// A shell that starts carboy keeps the terminal when carboy has ended.
			s := onTerminalBy(t, d, `stty -a > "$0/before"; carboy exec -it web -- sh -c "$1"; c=$?; stty -a > "$0/after"; echo "over $c"`,
				`trap "echo told" TERM HUP; stty -echo; `+ready)
			s.expect("ready\r\n")
			tt.end(s)
			got := s.expect("over ") + s.expect("\n")
			if want := "over " + itoa(tt.code); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if _, out := s.wait(); out != "" {
				t.Errorf("more came: %q", out)
			}
			before, after := readFile(t, s.dir(), "before"), readFile(t, s.dir(), "after")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the terminal is not as it was:\n%s", diff)
			}
		})
	}
}

// A sandbox's name alone is a shell, where somebody can type.
func TestExecNameAlone(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	s := onTerminal(t, d, nil, "exec", "web")
	s.send("stty -echo; echo it is $((40 + 2)) > \"$(tty)\"; exit 5\n")
	s.expect("it is 42")
	if code, _ := s.wait(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}

func TestInterrupt(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "run", "--", "sh", "-c", `trap 'echo got it; exit 9' INT; echo ready; while :; do sleep 0.05; done`)
	s.expect("ready\r\n")
	s.send("\x03")
	s.expect("got it\r\n")
	if code, out := s.wait(); code != 9 || out != "" {
		t.Errorf("exit code %d, %q; want 9", code, out)
	}
	if n := d.count(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestInterruptTwice(t *testing.T) {
	for _, command := range []string{"run", "exec"} {
		t.Run(command, func(t *testing.T) {
			d := startFake(t)
			args := []string{"run", "--"}
			if command == "exec" {
				create(t, d, "web")
				args = []string{"exec", "web", "--"}
			}
			s := onTerminal(t, d, nil, append(args, "sh", "-c", `trap 'echo not me' INT; echo $$; while :; do sleep 0.05; done`)...)
			pid := strings.TrimSpace(s.expect("\r\n"))
			s.send("\x03")
			s.expect("not me\r\n")
			s.send("\x03")
			code, out := s.wait()
			if code != 137 || !strings.Contains(out, "carboy: interrupted: the command was killed\r\n") {
				t.Errorf("exit code %d, %q; want 137 and a line", code, out)
			}
			awaitEnd(t, pid)
			if n := d.count(); command == "run" && n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

// awaitEnd waits until a process is no more.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the process %s runs on", pid)
		}
	}
}

func TestOutputOnTerminal(t *testing.T) {
	d := startFake(t)
	create(t, d, "web")
	const evil = `printf 'a\033]0;title\007b\n'; printf '\302\233' >&2`
	s := onTerminal(t, d, nil, "exec", "web", "--", "sh", "-c", evil)
	if _, out := s.wait(); strings.ContainsAny(out, "\x1b\x07") || !strings.Contains(out, `a\x1b]0;title\x07b`) || !strings.Contains(out, `\u009b`) {
		t.Errorf("without -t: %q", out)
	}
	s = onTerminal(t, d, nil, "exec", "-t", "web", "--", "sh", "-c", evil)
	if _, out := s.wait(); !strings.Contains(out, "\x1b]0;title\x07") {
		t.Errorf("with -t: %q", out)
	}
}

func TestApplyAsks(t *testing.T) {
	tests := []struct {
		name, answers string
		want          map[string]string // what is in the tree then
		says          string
		code          int
	}{
		{"yes-no", "y\nn\n", map[string]string{"a": "A\n", "b": "b\n"}, "M  a", 0},
		{"all", "a\n", map[string]string{"a": "A\n", "b": "B\n"}, "M  b", 0},
		{"help-diff", "?\nd\nn\ny\n", map[string]string{"a": "a\n", "b": "B\n"}, "+A", 0},
		{"quit", "y\nq\n", map[string]string{"a": "a\n", "b": "b\n"}, "left without a change", 125},
		{"end", "\x04", map[string]string{"a": "a\n", "b": "b\n"}, "no answer: left without a change", 125},
		{"interrupt", "\x03", map[string]string{"a": "a\n", "b": "b\n"}, "", 130},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, dir := startFake(t), t.TempDir()
			for _, f := range []string{"a", "b"} {
				if err := os.WriteFile(filepath.Join(dir, f), []byte(f+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := onTerminal(t, d, nil, "run", "--workspace", dir, "--name", "job", "--", "sh", "-c", "echo A > a; echo B > b")
			if code, out := run.wait(); code != 0 || !strings.Contains(out, "job: 2 changed files") {
				t.Fatalf("run: %d, %q", code, out)
			}
			s := onTerminal(t, d, []string{"NO_COLOR=1"}, "apply", "-i", "job")
			seen := s.expect("take it? ")
			s.send(tt.answers)
			code, out := s.wait()
			if code != tt.code || !strings.Contains(seen+out, tt.says) {
				t.Errorf("exit code %d, %q; want %d, %q", code, seen+out, tt.code, tt.says)
			}
			got := map[string]string{"a": readFile(t, dir, "a"), "b": readFile(t, dir, "b")}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestColours(t *testing.T) {
	d, dir := startFake(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out := onTerminal(t, d, nil, "run", "--workspace", dir, "--name", "job", "--", "sh", "-c", `printf 'A\033[5m\n' > a`).wait(); code != 0 {
		t.Fatal(out)
	}
	_, out := onTerminal(t, d, nil, "diff", "job").wait()
	if !strings.Contains(out, "\x1b[31m-a\x1b[0m") || !strings.Contains(out, "\x1b[32m+A\\x1b[5m\x1b[0m") {
		t.Errorf("on a terminal: %q", out)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if _, out := onTerminal(t, d, []string{env}, "diff", "job").wait(); strings.Contains(out, "\x1b") || !strings.Contains(out, "+A") {
			t.Errorf("with %s: %q", env, out)
		}
	}
}

// onTerminalBy starts a shell on a terminal, which is to start carboy. $0 of
// it is a directory, $1 what the command in the sandbox is.
func onTerminalBy(t *testing.T, d *fakeDaemon, script, command string) *terminal {
	t.Helper()
	dir := t.TempDir()
	return startOnTerminal(t, d, []string{"DIR=" + dir}, "sh", "-c", script, dir, command)
}

// dir is the directory that onTerminalBy made.
func (s *terminal) dir() string {
	for _, v := range s.cmd.Env {
		if dir, ok := strings.CutPrefix(v, "DIR="); ok {
			return dir
		}
	}
	s.t.Fatal("no directory")
	return ""
}

// signal sends a signal to the carboy that a shell started.
func (s *terminal) signal(sig syscall.Signal) {
	s.t.Helper()
	pid := strings.TrimSpace(readFile(s.t, "/proc/"+itoa(s.cmd.Process.Pid)+"/task/"+itoa(s.cmd.Process.Pid), "children"))
	n, err := strconv.Atoi(pid)
	if err != nil {
		s.t.Fatalf("children: %q", pid)
	}
	if err := syscall.Kill(n, sig); err != nil {
		s.t.Fatal(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
