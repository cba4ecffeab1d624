package e2e

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/carboy-sandbox/carboy/api/action"
)

// TestShellCommands is what a user does with shells on the command line, over each wall.
func TestShellCommands(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		if got := h.ok("shell", "open", "web", "--shell-id", "main", "--cols", "90", "--env", "A=b"); got != "main\n" {
			t.Errorf("open says %q", got)
		}
		h.ok("shell", "write", "web", "main", "stty size; pwd; echo [$A]; cat")
		read := func(cursor string, flags ...string) (r action.ReadShellReply) {
			t.Helper()
			args := append([]string{"shell", "read", "web", "main", "--json", "--cursor", cursor}, flags...)
			if err := json.Unmarshal([]byte(h.ok(args...)), &r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		until(t, func() bool { return strings.Contains(read("0", "--plain").Output, "30 90\n/workspace\n[b]\n") })
		before := read("0").NextCursor
		h.killDaemon()
		h.ok("shell", "write", "web", "main", "after the kill")
		r := read(strconv.FormatInt(before, 10), "--wait-for-idle", "300ms", "--plain")
		if r.Cursor != before || strings.Count(r.Output, "after the kill\n") != 2 { // the echo, and cat's
			t.Errorf("read on from %d: %+v", before, r)
		}
		if code := h.run(nil, "shell", "open", "web", "--shell-id", "main").code; code != 125 {
			t.Errorf("a second of that id: exit code %d", code)
		}
		h.ok("shell", "signal", "web", "main", "INT")
		read(strconv.FormatInt(r.NextCursor, 10), "--wait-for-idle", "500ms") // until cat is gone, which would read it
		h.ok("shell", "write", "web", "main", "exit 5")
		until(t, func() bool { return strings.Contains(h.ok("shell", "ls", "web"), "stopped (5)") })
		h.ok("shell", "close", "web", "main")
		if r := h.run(nil, "shell", "read", "web", "main"); r.code != 125 || !strings.Contains(r.stderr, "no shell") {
			t.Errorf("after its end: %+v", r)
		}
	})
}

// TestServiceCommands is what a user does with services.
func TestServiceCommands(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		got := h.ok("service", "start", "web", "app", "--ready-tcp", "8080", "--ready-interval", "100ms", "--", "python3", "-u", "-m", "http.server", "8080", "--bind", "127.0.0.1")
		if got != "app is running, and ready\n" {
			t.Errorf("start says %q", got)
		}
		if got := h.ok("exec", "web", "--", "curl", "-sS", "http://127.0.0.1:8080/"); !strings.Contains(got, "Directory listing") {
			t.Errorf("the service answers %q", got)
		}
		h.killDaemon()
		if r := h.run(nil, "service", "logs", "web", "app", "--tail", "5"); r.code != 0 || !strings.Contains(r.stderr+r.stdout, "GET /") {
			t.Errorf("logs: %+v", r)
		}
		if got := h.ok("service", "ls", "web"); !strings.Contains(got, "app") || !strings.Contains(got, "running, and ready") {
			t.Errorf("ls: %s", got)
		}
		h.ok("service", "stop", "web", "app")
		if got := h.ok("service", "status", "web", "app"); !strings.Contains(got, "stopped") {
			t.Errorf("status: %s", got)
		}
		r := h.run(nil, "service", "start", "web", "bad", "--ready-tcp", "9", "--ready-timeout", "1s", "--", "echo its last words; sleep 1000")
		if r.code != 125 || !strings.Contains(r.stderr, "not ready") || !strings.Contains(r.stderr, "its last words") {
			t.Errorf("one that is never ready: %+v", r)
		}
		if got := h.ok("exec", "web", "--", "sh", "-c", "ps ax -o args= | grep -c '[s]leep 1000' || true"); got != "0\n" {
			t.Errorf("of one that was never ready %s goes on", got)
		}
	})
}

// TestShellAttach: a terminal that is attached stays so while the daemon is killed; what is
// typed after goes to the same shell, which goes on when it is left.
func TestShellAttach(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		h.ok("shell", "open", "web", "--shell-id", "main")
		h.ok("shell", "write", "web", "main", "echo its $((6*7)) history")
		cmd := h.command(t.Context(), "shell", "attach", "web", "main")
		tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 91})
		if err != nil {
			t.Fatal(err)
		}
		defer tty.Close()
		var seen screen
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(&seen, tty) // it ends with the terminal
		}()
		shows := func(typed, want string) {
			t.Helper()
			if _, err := io.WriteString(tty, typed); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return seen.has(want) })
		}
		shows("", "its 42 history")
		shows("stty size\r", "33 91")
		h.killDaemon()
		until(t, func() bool { return h.run(nil, "daemon", "status").code == 0 }) // who is attached starts one
		shows("echo after $((7*7))\r", "after 49")
		shows("sleep 1000\r", "sleep 1000")
		until(t, func() bool { // what is typed is shown before the shell has read it
			return h.ok("exec", "web", "--", "sh", "-c", "ps ax -o args= | grep -c '[s]leep 1000' || true") == "1\n"
		})
		shows("\x03echo again $((8*8))\r", "again 64")
		if _, err := io.WriteString(tty, "\x10\x11"); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		<-copied
		if err != nil || !seen.has("detached") || seen.count("after 49") != 1 {
			t.Errorf("left with %v; the screen:\n%q", err, seen.all())
		}
		if got := h.ok("shell", "ls", "web"); !strings.Contains(got, "running") || !strings.Contains(got, "91x33") {
			t.Errorf("after it was left: %s", got)
		}
	})
}
