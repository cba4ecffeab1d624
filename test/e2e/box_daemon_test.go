package e2e

import (
	"context"
	"testing"

	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxDaemons has what becomes of sessions where daemons come and go.
func TestBoxDaemons(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.subtest(t, "runtimes-leave-each-other-alone", func(t *testing.T) {
		w.exec(t, "mine", "echo mine > /tmp/mine")
		t.Run("other", func(t *testing.T) {
			other := newBoxWorld(t, "process", nil)
			other.exec(t, "mine", "! test -e /tmp/mine")
			if all := other.sessions(t); len(all) != 1 {
				t.Errorf("the other has %v", all)
			}
		})
		if out := w.exec(t, "mine", "cat /tmp/mine"); out != "mine\n" {
			t.Errorf("afterwards there is %q", out)
		}
	})
	w.subtest(t, "sessions-outlive-a-killed-daemon", func(t *testing.T) {
		again := make(chan struct{}, 10)
		conn := w.connect(t, boxservice.Options{OnConnect: func(context.Context, *boxservice.Client) { again <- struct{}{} }})
		<-again
		spec := boxservice.NewSpec("a", "echo kept > /tmp/kept")
		spec.Persistent = true
		if _, err := conn.Client().Exec(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		before := w.sessions(t)["a"]
		if _, err := conn.Client().StartProcess(t.Context(), "a", boxservice.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		echo(t, conn.Client(), "before")
		w.kill()
		w.serve()
		<-again // by itself
		spec.Cmd = "cat /tmp/kept"
		r, err := conn.Client().Exec(t.Context(), spec)
		if err != nil || r.Stdout != "kept\n" {
			t.Fatalf("got %+v, %v", r, err)
		}
		until(t, func() bool { return w.client.Ping(t.Context()) == nil })
		if after := w.sessions(t)["a"]; after.BackendSessionID != before.BackendSessionID {
			t.Errorf("it is another sandbox: %+v", after)
		}
		echo(t, conn.Client(), "after")
	})
}

// echo has the session's process, which is a cat, say a line.
func echo(t *testing.T, c *boxservice.Client, text string) {
	t.Helper()
	a, err := c.Attach(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.WriteLine(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	if line, err := a.ReadLine(t.Context()); err != nil || string(line) != text {
		t.Fatalf("the process says %q, %v; want %q", line, err, text)
	}
}

// TestBoxWalls has the same over each wall: a command, a conflict, a timeout
// and a process.
func TestBoxWalls(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newBoxWorld(t, wall, nil)
		w.subtest(t, "commands", func(t *testing.T) {
			s := w.service(t, boxservice.Config{})
			if r := runTool(t, s, chat("1"), "id -u; pwd; echo x > x"); !r.OK || r.Stdout != "1000\n/workspace\n" {
				t.Errorf("got %+v", r)
			}
			if r := runTool(t, s, chat("2"), "cat x"); r.Stdout != "x\n" {
				t.Errorf("the next command sees %+v", r)
			}
			if name := w.sessions(t)["person_test_user"].BackendName; name != wall {
				t.Errorf("it is behind %s", name)
			}
			r, err := s.ExecuteTool(t.Context(), chat("3"), map[string]any{"command": "sleep 100", "timeout_sec": 1})
			if err != nil || r.OK || r.ExitCode != nil {
				t.Errorf("a command without end: %+v, %v", r, err)
			}
			if r := runTool(t, s, chat("4"), "cat x"); r.Stdout != "x\n" {
				t.Errorf("after it: %+v", r)
			}
		})
		w.subtest(t, "conflict", func(t *testing.T) {
			w.exec(t, "a", "true")
			s := boxservice.NewSpec("a", "true")
			s.MemoryMB = 700
			if _, err := w.client.Exec(t.Context(), s); boxservice.Class(err) != "BoxSessionConflictError" {
				t.Errorf("got %v", err)
			}
		})
		w.subtest(t, "host-directory", func(t *testing.T) {
			s := boxservice.NewSpec("a", "echo x > x; cat x")
			s.HostPath = w.dirs(t, "workspace")[0]
			if r, err := w.client.Exec(t.Context(), s); err != nil || r.Stdout != "x\n" {
				t.Errorf("got %+v, %v", r, err)
			}
		})
		w.subtest(t, "process", func(t *testing.T) {
			if _, err := w.client.Create(t.Context(), boxservice.NewSpec("a", "")); err != nil {
				t.Fatal(err)
			}
			if _, err := w.client.StartProcess(t.Context(), "a", boxservice.ProcessSpec{Command: "cat"}); err != nil {
				t.Fatal(err)
			}
			echo(t, w.client, "once")
			echo(t, w.client, "twice")
		})
	})
}
