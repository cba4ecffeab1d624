package session_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A process whose sandbox is started again while it is being started is there
// and counts, or is not.
func TestSandboxRestartsDuringAProcessStart(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		var once sync.Once
		w.guests.does = func(text string) {
			if strings.HasPrefix(text, "mkdir") { // which precedes the process
				once.Do(func() {
					w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
					time.Sleep(time.Second)
					run(t, d, asked("k", "echo x"))
				})
			}
		}
		_, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "serve"})
		pass(5 * time.Second)
		want := 1
		if err != nil {
			want = 0
		}
		info, _ := d.Get(t.Context(), ann, "k")
		if m := d.Metrics(); m.Processes != want || len(info.Processes) != want {
			t.Errorf("StartProcess = %v, and %d count of %+v", err, m.Processes, info.Processes)
		}
		if wrong := d.Wrong(ann.Owner, nil); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	})
}

// A process that ended before its sandbox did can be forgotten at once.
func TestStopProcessOfADeadSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, config())
		run(t, d, asked("k", "echo x"))
		launch(t, d, "k", "p")
		w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
		pass(5 * time.Second)
		run(t, d, asked("k", "echo x")) // starts it again
		d.shutdown()
		d = w.boot(t, config())
		w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
		pass(5 * time.Second)
		from := time.Now()
		if err := d.StopProcess(t.Context(), ann, "k", "p"); err != nil || time.Since(from) > time.Second {
			t.Errorf("StopProcess = %v, after %v", err, time.Since(from))
		}
		d.shutdown()
		w.check(t)
	})
}

// A session whose sandbox somebody removed has nothing to keep.
func TestIdleSessionWithoutASandbox(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		run(t, d, asked("k", "touch"))
		sb, _ := d.manager.List(t.Context(), ann, sandbox.Filter{})
		if err := d.manager.Remove(t.Context(), ann, sb[0].ID, true); err != nil {
			t.Fatal(err)
		}
		pass(ttl + time.Minute)
		wantGone(t, d, "k")
	})
}

// A session that was waking when its daemon was killed is awake from then on:
// it is not removed for how long it had slept.
func TestKilledWhileWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, keep := newWorld(), config(), 2*60*60
		c.KeepIdleSec = &keep
		d := w.boot(t, c)
		run(t, d, asked("k", "touch"))
		pass(ttl + 110*time.Minute)
		wantSession(t, d, "k", true)
		sb, _ := d.manager.List(t.Context(), ann, sandbox.Filter{})
		if _, err := d.manager.Start(t.Context(), ann, sb[0].ID); err != nil { // as far as it came
			t.Fatal(err)
		}
		for range 2 {
			d.shutdown()
			d = w.boot(t, c)
			wantSession(t, d, "k", false)
			if res := run(t, d, asked("k", "look")); *res.ExitCode != 0 {
				t.Errorf("Exec = %+v", res)
			}
			w.fake.Die(sb[0].ID, sandbox.EndCrashed)
			synctest.Wait()
		}
		pass(30 * time.Minute)
		wantSession(t, d, "k", true)
		d.shutdown()
		w.check(t)
	})
}
