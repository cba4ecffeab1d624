package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

func launch(t fataler, d *daemon, key, pid string) sessions.ProcessInfo {
	t.Helper()
	info, err := d.StartProcess(context.Background(), ann, key, sessions.ProcessSpec{
		ProcessID: pid, Command: "serve", Args: []string{"--port", "1"}, Env: map[string]string{"TOKEN": "s3cret", "A": "b"},
	})
	if err != nil {
		t.Fatalf("StartProcess %s: %v", pid, err)
	}
	return info
}

func TestProcess(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		info := launch(t, d, "k", "")
		if info.ProcessID != sessions.DefaultProcess || info.Status != sessions.ProcessRunning || strings.Join(info.EnvKeys, " ") != "A TOKEN" || info.SessionID != "k" {
			t.Errorf("StartProcess = %+v", info)
		}
		launch(t, d, "k", "other")
		s, err := d.Get(t.Context(), ann, "k")
		if err != nil || len(s.Processes) != 2 || s.Process == nil || s.Process.ProcessID != sessions.DefaultProcess {
			t.Errorf("Get = %+v, %v", s, err)
		}
		if st, _ := d.Status(t.Context(), ann); st.Processes != 2 {
			t.Errorf("Status = %+v", st)
		}
		for _, r := range w.audit.all() {
			if strings.Contains(fmt.Sprint(r), "s3cret") {
				t.Errorf("audit %+v", r)
			}
		}
		rs, _ := w.store.Sessions(t.Context())
		if strings.Contains(fmt.Sprintf("%s", rs[0].Processes), "s3cret") {
			t.Error("the record has a value of the environment")
		}

		launch(t, d, "k", "other") // takes the place of the one that runs
		if n := len(w.guests.killedOnes()); n != 1 {
			t.Errorf("%d were ended, want the old one", n)
		}
		if err := d.StopProcess(t.Context(), ann, "k", "other"); err != nil {
			t.Error(err)
		}
		_, err = d.Process(t.Context(), ann, "k", "other")
		wantClass(t, "Process that was stopped", err, langbot.ClassProcessNotFound)
		wantClass(t, "StopProcess again", d.StopProcess(t.Context(), ann, "k", "other"), langbot.ClassProcessNotFound)
		_, err = d.Process(t.Context(), bob, "k", "")
		wantClass(t, "another's Process", err, langbot.ClassSessionNotFound)
		if _, err := d.Process(t.Context(), ann, "k", ""); err != nil {
			t.Error(err)
		}
	})
}

func TestProcessCapacity(t *testing.T) {
	c := config()
	c.Limits.MaxProcesses = 2
	inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		launch(t, d, "k", "a")
		launch(t, d, "k", "b")
		_, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{ProcessID: "c", Command: "serve"})
		wantClass(t, "one too many", err, langbot.ClassCapacity)
		launch(t, d, "k", "b") // in the place of another
		if err := d.StopProcess(t.Context(), ann, "k", "a"); err != nil {
			t.Fatal(err)
		}
		launch(t, d, "k", "c")
		if err := d.Delete(t.Context(), ann, "k"); err != nil {
			t.Fatal(err)
		}
		run(t, d, asked("k", "echo x"))
		launch(t, d, "k", "a")
		launch(t, d, "k", "b")
	})
}

func TestCompletedProcess(t *testing.T) {
	t.Run("is-remembered-for-a-while", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			spec := asked("k", "echo x")
			spec.Persistent = true
			run(t, d, spec)
			launch(t, d, "k", "")
			w.endProcesses()
			pass(time.Second)
			info, err := d.Process(t.Context(), ann, "k", "")
			if err != nil || info.Status != sessions.ProcessExited || info.ExitCode == nil || *info.ExitCode != 7 || info.ExitedAt == nil {
				t.Errorf("Process = %+v, %v", info, err)
			}
			a, err := d.Attach(t.Context(), ann, "k", "") // what it wrote last can still be read
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.ReadLine(t.Context()); err == nil {
				t.Error("a line of a process that wrote none")
			}
			a.Close()
			_, err = d.Attach(t.Context(), ann, "k", "")
			wantClass(t, "Attach", err, langbot.ClassProcessConflict)
			if m := d.Metrics(); m.Processes != 0 {
				t.Errorf("metrics %+v", m)
			}
			pass(6 * time.Minute)
			_, err = d.Process(t.Context(), ann, "k", "")
			wantClass(t, "Process", err, langbot.ClassProcessNotFound)
			if rs, _ := w.store.Sessions(t.Context()); len(rs[0].Processes) != 0 {
				t.Errorf("record %+v", rs[0])
			}
		})
	})
	t.Run("not-while-it-is-read", func(t *testing.T) {
		c := config()
		c.Limits.MaxCompleted = 1
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			launch(t, d, "k", "read")
			a, err := d.Attach(t.Context(), ann, "k", "read")
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range []string{"1", "2"} {
				w.endProcesses()
				pass(time.Second)
				launch(t, d, "k", pid)
			}
			pass(time.Minute)
			if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("its reader is told: %v", err)
			}
			a.Close()
			pass(time.Minute)
			_, err = d.Process(t.Context(), ann, "k", "read")
			wantClass(t, "Process", err, langbot.ClassProcessNotFound)
		})
	})
	t.Run("at-most-so-many", func(t *testing.T) {
		c := config()
		c.Limits.MaxCompleted = 2
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			for n := range 4 {
				launch(t, d, "k", fmt.Sprint(n))
				w.endProcesses()
				pass(time.Second)
			}
			pass(time.Minute)
			s, err := d.Get(t.Context(), ann, "k")
			if err != nil || len(s.Processes) != 2 {
				t.Errorf("Get = %+v, %v", s, err)
			}
			if _, ok := s.Processes["3"]; !ok {
				t.Error("the newest is forgotten")
			}
		})
	})
}

// endProcesses has the managed processes that run end by themselves.
func (w *world) endProcesses() {
	w.guests.mu.Lock()
	defer w.guests.mu.Unlock()
	for _, r := range w.guests.cmds {
		if r.tag != "" {
			r.once.Do(func() { r.exit = exited(7); close(r.kill) })
		}
	}
}

// A session's record has all of its processes, and is written whole.
func TestProcessesAreBounded(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		long := sessions.ProcessSpec{Command: "server", Args: []string{strings.Repeat("x", request.MaxProcessBytes-100)}}
		for n := range 40 {
			long.ProcessID = fmt.Sprint(n)
			if _, err := d.StartProcess(t.Context(), ann, "k", long); err != nil {
				t.Fatal(err)
			}
			w.endProcesses()
			pass(time.Second)
		}
		pass(time.Second)
		rs, _ := w.store.Sessions(t.Context())
		if b, err := json.Marshal(rs[0]); err != nil || len(b) > 3<<20 || len(rs[0].Processes) < 10 {
			t.Errorf("a record of %d bytes with %d processes, %v", len(b), len(rs[0].Processes), err)
		}
		long.Args = append(long.Args, strings.Repeat("x", 100))
		_, err := d.StartProcess(t.Context(), ann, "k", long)
		wantClass(t, "StartProcess", err, langbot.ClassValidation)
	})
}

func TestProcessesOutliveTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, config())
		run(t, d, asked("k", "echo x"))
		info := launch(t, d, "k", "")
		d.shutdown()
		// One that a daemon began in its last moment, and did not write down.
		w.guests.mu.Lock()
		w.guests.cmds["mpstray"] = &running{box: w.fake.Running()[0], text: "stray", tag: "managed-process", kill: make(chan struct{})}
		w.guests.mu.Unlock()

		d = w.boot(t, config())
		again, err := d.Process(t.Context(), ann, "k", "")
		if err != nil || again.Status != sessions.ProcessRunning || !again.StartedAt.Equal(info.StartedAt) || strings.Join(again.EnvKeys, " ") != "A TOKEN" {
			t.Errorf("Process = %+v, %v", again, err)
		}
		if got := w.guests.killedOnes(); len(got) != 1 || got[0] != "stray" {
			t.Errorf("killed %q, want the stray one", got)
		}
		pass(2 * ttl)
		wantSession(t, d, "k", false)
		if err := d.StopProcess(t.Context(), ann, "k", ""); err != nil {
			t.Error(err)
		}
		d.shutdown()

		// And one whose sandbox died meanwhile.
		d = w.boot(t, config())
		launch(t, d, "k", "")
		d.shutdown()
		w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
		d = w.boot(t, config())
		if p, err := d.Process(t.Context(), ann, "k", ""); err != nil || p.Status != sessions.ProcessExited || p.ExitCode != nil {
			t.Errorf("Process = %+v, %v", p, err)
		}
		if res := run(t, d, asked("k", "echo x")); len(res.Notices) != 1 {
			t.Errorf("Exec = %+v, want a notice", res)
		}
		d.shutdown()
		w.check(t)
	})
}
