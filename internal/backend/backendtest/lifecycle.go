package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func testLifecycle(t *testing.T, s *suite) {
	t.Run("one-life", s.oneLife)
	t.Run("nothing-there", s.nothingThere)
	t.Run("two-at-once", s.twoAtOnce)
}

func (s *suite) oneLife(t *testing.T) {
	w := s.open(t)
	if w.Name() == "" {
		t.Error("the wall has no name")
	}
	b := w.begin(t)
	if len(processes(b.id)) == 0 || len(traces(b.id)) == 0 {
		t.Error("a running instance leaves no trace on the host: no test here would find what is left of one")
	}
	wantInstances(t, w, b.id)
	wantAlive(t, w, b.id, true)
	b.says(t, "echo one", "one\n")

	for range 2 {
		if lost := w.mustStop(t, b.id); !slices.Contains(lost, "processes") {
			t.Errorf("Stop lost %q, want the processes among it", lost)
		}
		wantAlive(t, w, b.id, false)
		if left := processes(b.id); len(left) > 0 {
			t.Errorf("processes of a stopped instance: %v", left)
		}
		wantInstances(t, w, b.id)
		if _, err := w.Dial(t.Context(), b.id, sandbox.GuestPort); err == nil {
			t.Error("a stopped instance was dialled")
		}
	}
	w.restart(t, b.sb).says(t, "echo two", "two\n")
	w.mustStop(t, b.id)
	for range 2 {
		if err := w.Remove(t.Context(), b.id); err != nil {
			t.Errorf("Remove: %v", err)
		}
		wantInstances(t, w)
	}
}

// What was never there is alive for nobody, and ending it is no error.
func (s *suite) nothingThere(t *testing.T) {
	w := s.open(t)
	const id = "sb_nobody"
	wantAlive(t, w, id, false)
	wantInstances(t, w)
	if _, err := w.Stop(t.Context(), id); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := w.Remove(t.Context(), id); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := w.Dial(t.Context(), id, sandbox.GuestPort); err == nil {
		t.Error("Dial: no error")
	}
	if _, err := w.Wait(t.Context(), id); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := w.Changes(t.Context(), &sandbox.Sandbox{ID: id}, sandbox.ChangesOptions{}, discard{}); err == nil {
		t.Error("Changes: no error")
	}
	wantInstances(t, w)
}

func (s *suite) twoAtOnce(t *testing.T) {
	w := s.open(t)
	records := []*sandbox.Sandbox{w.record(), w.record()}
	var both sync.WaitGroup
	for _, sb := range records {
		t.Cleanup(func() { w.mustRemove(t, sb.ID) })
		both.Go(func() {
			if _, err := w.Start(t.Context(), sb); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
	both.Wait()
	if t.Failed() {
		return
	}
	one, two := newInstance(t, w, records[0], nil), newInstance(t, w, records[1], nil)
	wantInstances(t, w, one.id, two.id)
	one.sh(t, "", "echo one > /workspace/f; echo one > /tmp/f; sleep 7071 >/dev/null 2>&1 & "+executed("sleep 7071"))
	two.says(t, "ls -A /workspace; cat /tmp/f 2>&1 | grep -c one; pgrep -f '^sleep 7071' || echo none", "0\nnone\n")
	one.says(t, "cat /workspace/f /tmp/f; pgrep -c -f '^sleep 7071'", "one\none\n1\n")
	w.mustStop(t, one.id)
	wantAlive(t, w, two.id, true)
	two.says(t, "echo on", "on\n")
}

// A start that is called off at any moment leaves nothing running, and what
// it leaves on disk goes with Remove.
func testCancelledStart(t *testing.T, s *suite) {
	w := s.open(t)
	w.begin(t) // what the first one costs is not the point
	began := time.Now()
	w.mustRemove(t, w.begin(t).id)
	whole := time.Since(began)
	const moments = 8
	finished := 0
	for i := range moments {
		sb := w.record()
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/moments)
		_, err := w.Start(ctx, sb)
		cancel()
		if err == nil {
			finished++
			wantAlive(t, w, sb.ID, true)
		} else if left := processes(sb.ID); len(left) > 0 {
			t.Errorf("called off at %d of %d: processes %v are left", i, moments, left)
		}
		w.mustRemove(t, sb.ID)
	}
	if finished == moments {
		t.Error("no start was called off")
	}
	if ids, err := w.Instances(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("Instances = %q, %v; want the first one alone", ids, err)
	}
	// One that was called off can be started after all.
	sb := w.record()
	ctx, cancel := context.WithTimeout(t.Context(), whole/2)
	_, _ = w.Start(ctx, sb)
	cancel()
	_, _ = w.Stop(t.Context(), sb.ID)
	t.Cleanup(func() { w.mustRemove(t, sb.ID) })
	w.restart(t, sb).says(t, "echo up", "up\n")
}

// Ids come back from a database and over the wire: what is not one of ours
// becomes no path.
func testIDs(t *testing.T, s *suite) {
	w := s.open(t)
	victim := w.begin(t)
	for _, id := range []string{
		"", ".", "..", "../x", "a/b", "/etc", "../boxes/" + victim.id, victim.id + "/", "x\x00y", "x\n", "a b",
		"sb_ä", "*", fmt.Sprintf("%0300d", 0),
	} {
		t.Run(fmt.Sprintf("%.20q", id), func(t *testing.T) {
			sb := w.record()
			sb.ID = id
			_, err := w.Start(t.Context(), sb)
			wantKind(t, "Start", err, sandbox.Invalid)
			_, err = w.Stop(t.Context(), id)
			wantKind(t, "Stop", err, sandbox.Invalid)
			wantKind(t, "Remove", w.Remove(t.Context(), id), sandbox.Invalid)
			_, err = w.Dial(t.Context(), id, sandbox.GuestPort)
			wantKind(t, "Dial", err, sandbox.Invalid)
			_, err = w.Wait(t.Context(), id)
			wantKind(t, "Wait", err, sandbox.Invalid)
			wantKind(t, "Changes", w.Changes(t.Context(), sb, sandbox.ChangesOptions{}, discard{}), sandbox.Invalid)
			wantAlive(t, w, id, false)
		})
	}
	wantInstances(t, w, victim.id)
	wantAlive(t, w, victim.id, true)
}

// discard takes any stream.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func wantInstances(t *testing.T, w *world, want ...string) {
	t.Helper()
	got, err := w.Instances(t.Context())
	if err != nil {
		t.Errorf("Instances: %v", err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Instances = %q, want %q", got, want)
	}
}

func wantAlive(t *testing.T, w *world, id string, want bool) {
	t.Helper()
	if got := w.Alive(t.Context(), id); got != want {
		t.Errorf("Alive = %v, want %v", got, want)
	}
}
