package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

func within(spec sessions.Spec, sec int) sessions.Spec {
	spec.TimeoutSec = sec
	return spec
}

type answer struct {
	res *session.Result
	err error
}

func start(ctx context.Context, d *daemon, c sandbox.Caller, spec sessions.Spec) chan answer {
	ch := make(chan answer, 1)
	go func() {
		res, err := d.Exec(ctx, c, spec)
		ch <- answer{res, err}
	}()
	synctest.Wait()
	return ch
}

func TestTimeoutKeepsTheSession(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		res := run(t, d, within(asked("k", "sleep 100"), 5))
		if res.Status != sessions.StatusTimedOut || res.ExitCode != nil || res.Duration != 5*time.Second || res.Queued != 0 {
			t.Errorf("Exec = %+v", res)
		}
		if string(res.Stdout) != "before\n" || string(res.Stderr) != "Command timed out after 5 seconds." {
			t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
		}
		run(t, d, asked("k", "echo x"))
		if w.fake.Starts(w.fake.Running()[0]) != 1 {
			t.Error("the session was made anew")
		}
	})
}

func TestTimeoutResetsTheSessionOnDemand(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		spec := within(asked("k", "sleep 100"), 5)
		spec.OnTimeout = sessions.OnTimeoutReset
		if res := run(t, d, spec); res.Status != sessions.StatusTimedOut || len(res.Notices) != 1 {
			t.Errorf("Exec = %+v", res)
		}
		_, err := d.Get(t.Context(), ann, "k")
		wantClass(t, "Get", err, langbot.ClassSessionNotFound)
	})
}

func TestQueueing(t *testing.T) {
	t.Run("in-order-and-reported", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			one := start(t.Context(), d, ann, asked("k", "sleep 10"))
			two := start(t.Context(), d, ann, asked("k", "sleep 5"))
			three := start(t.Context(), d, ann, asked("k", "echo last"))
			if a := <-one; a.err != nil || a.res.Queued != 0 {
				t.Errorf("first: %+v, %v", a.res, a.err)
			}
			if a := <-two; a.err != nil || a.res.Queued != 10*time.Second || a.res.Duration != 15*time.Second {
				t.Errorf("second: %+v, %v", a.res, a.err)
			}
			if a := <-three; a.err != nil || a.res.Queued != 15*time.Second {
				t.Errorf("third: %+v, %v", a.res, a.err)
			}
			if got, want := w.guests.begun(), []string{"sleep 10", "sleep 5", "echo last"}; !slices.Equal(got, want) {
				t.Errorf("ran %q, want %q", got, want)
			}
		})
	})
	t.Run("counts-towards-the-timeout", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			one := start(t.Context(), d, ann, asked("k", "sleep 10"))
			res := run(t, d, within(asked("k", "sleep 100"), 12))
			if res.Status != sessions.StatusTimedOut || res.Duration != 12*time.Second || res.Queued != 10*time.Second || string(res.Stdout) != "before\n" {
				t.Errorf("Exec = %+v", res)
			}
			<-one
		})
	})
	t.Run("never-runs-when-its-time-is-up", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			one := start(t.Context(), d, ann, asked("k", "sleep 10"))
			res := run(t, d, within(asked("k", "echo never"), 4))
			if res.Status != sessions.StatusTimedOut || res.Queued != 4*time.Second || len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "not run") {
				t.Errorf("Exec = %+v", res)
			}
			<-one
			if got := w.guests.begun(); !slices.Equal(got, []string{"sleep 10"}) {
				t.Errorf("ran %q", got)
			}
			if m := d.Metrics(); m.QueueTimeouts != 1 || m.Timeouts != 1 {
				t.Errorf("metrics %+v", m)
			}
		})
	})
	t.Run("caller-leaves-the-queue", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			one := start(t.Context(), d, ann, asked("k", "sleep 10"))
			ctx, cancel := context.WithCancel(t.Context())
			two := start(ctx, d, ann, asked("k", "echo two"))
			three := start(t.Context(), d, ann, asked("k", "echo three"))
			cancel()
			if a := <-two; a.err == nil {
				t.Errorf("second: %+v", a.res)
			}
			<-one
			if a := <-three; a.err != nil {
				t.Error(a.err)
			}
			if got := w.guests.begun(); !slices.Equal(got, []string{"sleep 10", "echo three"}) {
				t.Errorf("ran %q", got)
			}
		})
	})
	t.Run("conflict-does-not-wait", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			one := start(t.Context(), d, ann, asked("k", "sleep 10"))
			other := asked("k", "echo x")
			other.CPUs = 2
			from := time.Now()
			_, err := d.Exec(t.Context(), ann, other)
			wantFields(t, err, "cpus")
			if time.Since(from) != 0 {
				t.Error("the conflict was told late")
			}
			<-one
		})
	})
}

func TestClientVanishesInTheMiddle(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		ctx, cancel := context.WithCancel(t.Context())
		one := start(ctx, d, ann, asked("k", "sleep 20"))
		pass(3 * time.Second)
		cancel()
		a := <-one
		if a.err == nil || !errors.Is(a.err, context.Canceled) {
			t.Errorf("Exec = %+v, %v", a.res, a.err)
		}
		synctest.Wait()
		if got := w.guests.killedOnes(); !slices.Equal(got, []string{"sleep 20"}) {
			t.Errorf("killed %q, want the command", got)
		}
		if res := run(t, d, asked("k", "echo x")); string(res.Stdout) != "x\n" || res.Queued != 0 {
			t.Errorf("Exec = %+v", res)
		}
	})
}

func TestDeleteEndsCommands(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		one := start(t.Context(), d, ann, asked("k", "sleep 20"))
		two := start(t.Context(), d, ann, asked("k", "echo after"))
		if err := d.Delete(t.Context(), ann, "k"); err != nil {
			t.Fatal(err)
		}
		a := <-one
		wantClass(t, "the command", a.err, langbot.ClassSessionNotFound)
		if a := <-two; a.err != nil || string(a.res.Stdout) != "after\n" { // in a session of its own
			t.Errorf("second: %+v, %v", a.res, a.err)
		}
	})
}

func TestOutput(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		const n = session.MaxOutput + 3*(64<<10)
		res := run(t, d, asked("k", "flood 1245184"))
		if len(res.Stdout) != session.MaxOutput || res.StdoutBytes != n || *res.ExitCode != 0 {
			t.Errorf("kept %d of %d bytes, want %d of %d", len(res.Stdout), res.StdoutBytes, session.MaxOutput, n)
		}
		if w := res.Wire(); int64(len(w.Stdout)) != n || w.StdoutLeftOut != 0 {
			t.Errorf("both ends are all there is: %d bytes, %d left out", len(w.Stdout), w.StdoutLeftOut)
		}
		if res := run(t, d, asked("k", "flood 1048576")); len(res.Stdout) != session.MaxOutput || res.StdoutBytes != session.MaxOutput {
			t.Errorf("kept %d of %d bytes", len(res.Stdout), res.StdoutBytes)
		}
		if res := run(t, d, asked("k", "echo  \t x ")); string(res.Stdout) != " \t x \n" {
			t.Errorf("stdout %q, want every byte", res.Stdout)
		}
		res = run(t, d, asked("k", "oom"))
		if strings.Join(res.Limits, " ") != "memory pids" || *res.ExitCode != 137 || len(res.Notices) != 1 {
			t.Errorf("Exec = %+v", res)
		}
	})
}

func TestEnvironmentIsOnNoCommandLine(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		spec := asked("k", "env TOKEN")
		spec.Env = map[string]string{"TOKEN": "s3cret", "PATH": "/s3cret/bin"}
		if res := run(t, d, spec); string(res.Stdout) != "" && string(res.Stdout) != "s3cret" {
			t.Errorf("stdout %q", res.Stdout)
		}
		for _, argv := range w.guests.argvs {
			if strings.Contains(strings.Join(argv, " "), "s3cret") {
				t.Errorf("argv %q has a value", argv)
			}
		}
		for _, a := range w.audit.all() {
			if strings.Contains(a.Command, "s3cret") || !slices.Equal(a.EnvKeys, []string{"PATH", "TOKEN"}) {
				t.Errorf("audit %+v", a)
			}
		}
		rs, _ := w.store.Sessions(t.Context())
		if b, err := record.Marshal(rs[0]); err != nil || strings.Contains(string(b), "s3cret") {
			t.Errorf("the record has the command's: %+v", rs[0].Spec)
		}
	})
}

func TestLongCommandGoesByItsInput(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo "+strings.Repeat("x", 100<<10)))
		for _, argv := range w.guests.argvs {
			if n := len(strings.Join(argv, " ")); n > 1<<10 {
				t.Errorf("argv of %d bytes", n)
			}
		}
		_, err := d.Exec(t.Context(), ann, asked("k", strings.Repeat("x", request.MaxLine+1)))
		wantClass(t, "Exec of too much", err, langbot.ClassValidation)
	})
}

func TestAudit(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo "+strings.Repeat("é", 1000)))
		run(t, d, within(asked("k", "sleep 9"), 2))
		other := asked("k", "echo x")
		other.CPUs = 2
		_, _ = d.Exec(t.Context(), ann, other)
		all := w.audit.all()
		if len(all) != 3 {
			t.Fatalf("%d records", len(all))
		}
		if a := all[0]; a.Owner != ann.Owner || a.Session != "k" || a.Sandbox == "" || len([]rune(a.Command)) != 400 || a.SessionIs != "created" ||
			*a.ExitCode != 0 || a.Stdout != 2001 || a.Status != sessions.StatusCompleted {
			t.Errorf("first: %+v", a)
		}
		if a := all[1]; a.Status != sessions.StatusTimedOut || a.ExitCode != nil || a.Duration != 2*time.Second || a.SessionIs != "reused" {
			t.Errorf("second: %+v", a)
		}
		if a := all[2]; a.Error != langbot.ClassSessionConflict || a.Status != "" {
			t.Errorf("third: %+v", a)
		}
		if m := d.Metrics(); m.Execs != 3 || m.ExecErrors != 1 || m.Timeouts != 1 || m.Created != 1 || m.Reused != 1 || m.Conflicts != 1 || m.Sessions != 1 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// What is written down of one request leaves room for what is of others.
func TestAuditIsBounded(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		long := strings.Repeat("k", 1<<20)
		spec := asked("k", strings.Repeat("x", 1<<20))
		spec.Env = map[string]string{}
		for i := range 10_000 {
			spec.Env[fmt.Sprintf("A%d", i)] = "s3cret"
		}
		_, _ = d.Exec(t.Context(), ann, spec)
		_, _ = d.Exec(t.Context(), ann, asked(long, "true"))
		_, _ = d.StartProcess(t.Context(), ann, long, sessions.ProcessSpec{ProcessID: long, Command: long, Args: []string{long}, Env: map[string]string{long: ""}})
		_, _ = d.Borrow(t.Context(), ann, long, session.Job{Action: "tool:read", Path: long})
		all := w.audit.all()
		if len(all) != 4 {
			t.Fatalf("%d records", len(all))
		}
		for _, a := range all {
			if n := len(fmt.Sprint(a)); n > 4<<10 || a.Session == "" {
				t.Errorf("%s: a record of %d bytes", a.Action, n)
			}
		}
	})
}

// A session's commands go over one connection, which is given up when idle and
// with the sandbox.
func TestOneConnection(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		conns := func() int {
			w.guests.mu.Lock()
			defer w.guests.mu.Unlock()
			return w.guests.conns
		}
		for range 5 {
			run(t, d, asked("k", "echo x"))
		}
		if n := conns(); n != 1 {
			t.Errorf("five commands made %d connections, want 1", n)
		}
		time.Sleep(time.Minute)
		run(t, d, asked("k", "echo x"))
		if n := conns(); n != 2 {
			t.Errorf("there were %d connections after a while, want 2", n)
		}
		w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
		synctest.Wait()
		run(t, d, asked("k", "echo x"))
		if n := conns(); n != 3 {
			t.Errorf("there were %d connections after the sandbox ended, want 3", n)
		}
		if err := d.Delete(t.Context(), ann, "k"); err != nil {
			t.Fatal(err)
		}
		run(t, d, asked("k", "echo x"))
		if n := conns(); n != 4 {
			t.Errorf("there were %d connections after the session was made again, want 4", n)
		}
	})
}
