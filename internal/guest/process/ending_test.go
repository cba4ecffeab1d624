package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// The exit is told when the main process ends, though others hold its pipes,
// and all of its own output comes before.
func TestBackground(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		r := w.run("bg", sh("(while :; do sleep 0.05; echo late; done) & head -c 60000 /dev/zero | tr '\\0' x; exit 5"))
		if r.exit.GetCode() != 5 || bytes.Count(r.stdout.Bytes(), []byte("x")) != 60000 {
			t.Errorf("%v, %d bytes", r.exit, r.stdout.Len())
		}
		// What is left goes on, and its output is kept.
		before := r.stdout.Len()
		eventually(t, "nothing more was journalled", func() bool { return w.get("bg").GetStdoutBytes() > uint64(before) })
		w.signal("bg", 9, true, "test")
		if n := alive(t, "sh\x00-c\x00(while :"); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// alive counts processes whose command line begins so.
func alive(t testing.TB, cmdline string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && bytes.HasPrefix(text, []byte(cmdline)) {
			n++
		}
	}
	return n
}

func (w *world) get(id string) *guestv1.Process {
	w.t.Helper()
	res, err := w.exec.Get(w.t.Context(), connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg.GetProcess()
}

func (w *world) signal(id string, sig int32, all bool, by string) {
	w.t.Helper()
	_, err := w.exec.Signal(w.t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: id, Signal: sig, All: all, By: by}))
	if err != nil {
		w.t.Error(err)
	}
}

// Double forks and sessions of their own do not outlive a time limit or a
// kill. Without one they live on.
func TestNothingEscapes(t *testing.T) {
	script := func(n int) string {
		return fmt.Sprintf("(setsid sh -c 'sleep 9%d & setsid sleep 9%d & exec sleep 9%d' &) ; sleep 0.1; echo up; ", n, n, n)
	}
	count := func(t *testing.T, n int) int { return alive(t, fmt.Sprintf("sleep\x009%d\x00", n)) }
	both(t, func(t *testing.T, w *world) {
		base := os.Getpid() * 10
		if r := w.run("lives", sh(script(base+1))); r.exit.GetCode() != 0 {
			t.Errorf("a normal end: %v", r.exit)
		}
		// On a busy machine they may begin only after the main process has ended.
		eventually(t, "a normal end leaves not all", func() bool { return count(t, base+1) == 3 })
		w.signal("lives", 9, true, "test")
		if n := count(t, base+1); n != 0 {
			t.Errorf("killed after the end: %d left", n)
		}

		cmd := sh(script(base+2) + "sleep 1000")
		cmd.TimeoutMs = 700
		r := w.run("timeout", cmd)
		if r.exit.GetReason() != guestv1.Reason_REASON_TIMED_OUT || r.exit.GetCode() != 137 {
			t.Errorf("timeout: %v", r.exit)
		}
		if n := count(t, base+2); n != 0 { // by when the command is said to have ended
			t.Errorf("timeout leaves %d processes", n)
		}

		if _, err := w.start("killed", sh(script(base+3)+"sleep 1000"), until("up")); err != nil {
			t.Fatal(err)
		}
		w.signal("killed", 9, true, "someone")
		if n := count(t, base+3); n != 0 {
			t.Errorf("killed: %d left", n)
		}
		eventually(t, "no exit", func() bool { return w.get("killed").GetExit() != nil })
		if e := w.get("killed").GetExit(); e.GetReason() != guestv1.Reason_REASON_KILLED || e.GetKilledBy() != "someone" {
			t.Errorf("killed: %v", e)
		}
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !patience.Until(20*time.Second, ok) {
		t.Fatal(what)
	}
}

func TestSignalReaches(t *testing.T) {
	w := open(t, setup{cgroups: true})
	if _, err := w.start("trap", sh("trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.05; done"), until("up")); err != nil {
		t.Fatal(err)
	}
	w.signal("trap", 15, false, "me")
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "trap"}))
	r, err := collect(t, stream, err, nil)
	if err != nil || r.stdout.String() != "up\ngot\n" || r.exit.GetReason() != guestv1.Reason_REASON_EXITED || r.exit.GetCode() != 3 {
		t.Errorf("%q, %v, %v", r.stdout.String(), r.exit, err)
	}
	for _, sig := range []int32{0, -1, 65} {
		_, err := w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "trap", Signal: sig}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("signal %d: %v", sig, err)
		}
	}
	_, err = w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "trap", Signal: 15}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("after the end: %v", err)
	}
}

// A command whose follower left waits, loses nothing, and goes in the end.
func TestOrphan(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cmd := sh("echo up; exec yes")
		cmd.OrphanGraceMs = 300
		if _, err := w.start("orphan", cmd, until("up")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an orphan lives on", func() bool { return w.get("orphan").GetExit() != nil })
		if e := w.get("orphan").GetExit(); e.GetReason() != guestv1.Reason_REASON_KILLED || e.GetKilledBy() != process.Orphan {
			t.Errorf("exit %v", e)
		}
	})
}

// Killing what is left of a command that has ended reaches nothing of those that
// came after it, whose marks could be the same number.
func TestSignalOfTheEndedReachesNoOther(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		const rounds = 40
		for i := range rounds {
			w.run(fmt.Sprint("short", i), sh("true"))
			long := fmt.Sprint("long", i)
			if _, err := w.start(long, sh("echo up; sleep 1000"), until("up")); err != nil {
				t.Fatal(err)
			}
			for k := range i + 1 {
				w.signal(fmt.Sprint("short", k), 9, true, "test")
			}
			if e := w.get(long).GetExit(); e != nil {
				t.Fatalf("round %d: the command that runs has ended: %v", i, e)
			}
		}
	})
}
