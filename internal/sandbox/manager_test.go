package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

func TestLife(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetLost("processes", "root changes")
		sb := create(t, d, sandbox.Spec{Name: "web", TTL: time.Hour})
		if !sandbox.ValidID(sb.ID) || len(sb.Token) != 64 || sb.Owner != ann.Owner || sb.Starts != 1 || len(sb.Enforced) != 9 {
			t.Errorf("created %+v", sb)
		}
		if got, want := sb.ExpiresAt, sb.StartedAt.Add(time.Hour); !got.Equal(want) {
			t.Errorf("ExpiresAt = %v, want %v", got, want)
		}
		wantState(t, d, "web", sandbox.StateRunning, "")
		if stored, err := w.store.Get(t.Context(), sb.ID); err != nil || !cmp.Equal(stored, sb) {
			t.Errorf("stored (-returned +stored):\n%s (%v)", cmp.Diff(sb, stored), err)
		}
		pass(time.Minute)
		for range 2 {
			if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
				t.Fatalf("Stop: %v", err)
			}
		}
		stopped := wantState(t, d, sb.ID, sandbox.StateStopped, sandbox.EndStopped)
		if d := cmp.Diff([]string{"processes", "root changes"}, stopped.Lost); d != "" || !stopped.ExpiresAt.IsZero() {
			t.Errorf("stopped %+v", stopped)
		}
		for range 2 {
			if _, err := d.Start(t.Context(), ann, "web"); err != nil {
				t.Fatalf("Start: %v", err)
			}
		}
		again := wantState(t, d, "web", sandbox.StateRunning, "")
		if again.Starts != 2 || again.Lost != nil || !again.EndedAt.IsZero() || again.Token != sb.Token {
			t.Errorf("started again %+v", again)
		}
		if got, want := again.ExpiresAt, again.StartedAt.Add(time.Hour); !got.Equal(want) {
			t.Errorf("ExpiresAt = %v, want %v", got, want)
		}
		wantKind(t, "Remove", d.Remove(t.Context(), ann, "web", false), sandbox.Conflict)
		wantState(t, d, "web", sandbox.StateRunning, "")
		if err := d.Remove(t.Context(), ann, "web", true); err != nil {
			t.Errorf("Remove: %v", err)
		}
		wantGone(t, d, "web")
		wantGone(t, d, sb.ID)
		create(t, d, sandbox.Spec{Name: "web"}) // the name is free again
	})
}

func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		d.Start(t.Context(), ann, "web")
		long := sandbox.Event{Type: strings.Repeat("é", 200), Message: strings.Repeat("\xff", 5000)}
		if err := d.Record(t.Context(), ann, "web", long); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "Record", d.Record(t.Context(), bob, "web", long), sandbox.NotFound)
		evs, err := d.Events(t.Context(), ann, "web")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ev := range evs {
			got = append(got, ev.Message)
			if ev.Time.IsZero() || len(ev.Type) > 64 || len(ev.Message) > sandbox.MaxEventMessage {
				t.Errorf("event %+v is not within bounds", ev)
			}
		}
		want := []string{"created behind gvisor", "started", "stopped: stopped; lost: processes", "started again, 2 times in all"}
		if d := cmp.Diff(want, got[:4]); d != "" || len(got) != 5 {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestGeneratedNames(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		re := regexp.MustCompile(`^[a-z]+-[a-z]+-[0-9a-f]{4}$`)
		for range 20 {
			if sb := create(t, d, sandbox.Spec{}); !re.MatchString(sb.Spec.Name) {
				t.Errorf("name = %q", sb.Spec.Name)
			}
		}
	})
}

// stutter is randomness that says the same for a number of reads.
type stutter struct {
	reads int
	every int
}

func (s *stutter) Read(p []byte) (int, error) {
	s.reads++
	for i := range p {
		p[i] = byte(s.reads / s.every)
	}
	return len(p), nil
}

func TestNameCollisionsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.fake}, Rand: &stutter{every: 3},
		})
		defer d.shutdown()
		seen := map[string]bool{}
		for range 5 {
			seen[create(t, d, sandbox.Spec{}).Spec.Name] = true
		}
		if len(seen) != 5 {
			t.Errorf("names = %v, want 5", seen)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.fake}, Rand: bytes.NewReader(nil),
		})
		defer d.shutdown()
		_, err := d.Create(t.Context(), ann, sandbox.Spec{})
		wantKind(t, "Create without randomness", err, sandbox.Internal)
		w.check(t)
	})
}

func TestOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		ctx := t.Context()
		mine := create(t, d, sandbox.Spec{Name: "web"})
		theirs, err := d.Create(ctx, bob, sandbox.Spec{Name: "web"})
		if err != nil {
			t.Fatalf("Create of the same name by another: %v", err)
		}
		for _, ref := range []string{theirs.ID, "nothing", "", "../../x", strings.Repeat("x", 10_000), "a\x1b[2J"} {
			calls := map[string]error{
				"Remove":  d.Remove(ctx, ann, ref, true),
				"Record":  d.Record(ctx, ann, ref, sandbox.Event{}),
				"Changes": d.Changes(ctx, ann, ref, sandbox.ChangesOptions{}, io.Discard),
			}
			_, calls["Get"] = d.Get(ctx, ann, ref)
			_, calls["Start"] = d.Start(ctx, ann, ref)
			_, calls["Stop"] = d.Stop(ctx, ann, ref)
			_, calls["SetTTL"] = d.SetTTL(ctx, ann, ref, time.Hour)
			_, _, calls["EnsureRunning"] = d.EnsureRunning(ctx, ann, ref)
			_, calls["Dial"] = d.Dial(ctx, ann, ref, 1)
			_, calls["Hold"] = d.Hold(ctx, ann, ref)
			_, calls["Finish"] = d.Finish(ctx, ann, ref)
			_, calls["Events"] = d.Events(ctx, ann, ref)
			for name, err := range calls {
				wantKind(t, name+" of another's", err, sandbox.NotFound)
				if err != nil && (len(err.Error()) > 200 || strings.ContainsRune(err.Error(), 0x1b)) {
					t.Errorf("%s: error is not fit to show: %.300q", name, err)
				}
			}
		}
		if sb, err := d.Get(ctx, admin, theirs.ID); err != nil || sb.ID != theirs.ID {
			t.Errorf("Get by an admin = %v, %v", sb, err)
		}
		_, err = d.Get(ctx, admin, "web")
		wantKind(t, "Get of an ambiguous name", err, sandbox.Conflict)
		if err := d.Remove(ctx, admin, theirs.ID, true); err != nil {
			t.Errorf("Remove by an admin: %v", err)
		}
		if sb, err := d.Get(ctx, admin, "web"); err != nil || sb.ID != mine.ID {
			t.Errorf("Get by an admin = %v, %v", sb, err)
		}
		_, err = d.Get(ctx, sandbox.Caller{}, "web")
		wantKind(t, "Get by nobody", err, sandbox.Denied)
		_, err = d.Create(ctx, sandbox.Caller{Admin: true}, sandbox.Spec{})
		wantKind(t, "Create for nobody", err, sandbox.Denied)
	})
}

func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		for _, s := range []sandbox.Spec{
			{Name: "c", Labels: map[string]string{"team": "red", "tier": "1"}},
			{Name: "b", Labels: map[string]string{"team": "red"}},
			{Name: "a"},
		} {
			create(t, d, s)
			pass(time.Second)
		}
		d.Stop(t.Context(), ann, "b")
		if _, err := d.Create(t.Context(), bob, sandbox.Spec{Name: "theirs"}); err != nil {
			t.Fatal(err)
		}
		tests := []struct {
			name   string
			caller sandbox.Caller
			filter sandbox.Filter
			want   string
		}{
			{"all", ann, sandbox.Filter{}, "c b a"},
			{"everyones", admin, sandbox.Filter{}, "c b a theirs"},
			{"label", ann, sandbox.Filter{Labels: map[string]string{"team": "red"}}, "c b"},
			{"labels", ann, sandbox.Filter{Labels: map[string]string{"team": "red", "tier": "1"}}, "c"},
			{"label-value", ann, sandbox.Filter{Labels: map[string]string{"team": ""}}, ""},
			{"state", ann, sandbox.Filter{States: []sandbox.State{sandbox.StateStopped}}, "b"},
			{"states", ann, sandbox.Filter{States: []sandbox.State{sandbox.StateStopped, sandbox.StateRunning}}, "c b a"},
		}
		for _, tc := range tests {
			all, err := d.List(t.Context(), tc.caller, tc.filter)
			var got []string
			for _, sb := range all {
				got = append(got, sb.Spec.Name)
			}
			if strings.Join(got, " ") != tc.want || err != nil {
				t.Errorf("%s: List = %q, %v; want %q", tc.name, got, err, tc.want)
			}
		}
	})
}

func TestRecordsAreCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		spec := sandbox.Spec{Name: "web", Env: map[string]string{"A": "1"}, Labels: map[string]string{"a": "1"}}
		sb := create(t, d, spec)
		spec.Env["A"], sb.Spec.Env["A"], sb.Enforced[0].Mechanism = "2", "2", "none"
		got := get(t, d, "web")
		got.Spec.Labels["a"] = "2"
		got = get(t, d, "web")
		if got.Spec.Env["A"] != "1" || got.Spec.Labels["a"] != "1" || got.Enforced[0].Mechanism == "none" {
			t.Errorf("the manager's record was changed from outside: %+v", got)
		}
	})
}

func TestCreateRefusesBeforeItBuilds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Check {
				return sandbox.Errorf(sandbox.Unsupported, "memory: no cgroup here")
			}
			return nil
		})
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Network: "on"})
		wantKind(t, "Create", err, sandbox.Unsupported)
		_, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "web"})
		wantKind(t, "Create", err, sandbox.Unsupported)
		if err == nil || err.Error() != "memory: no cgroup here" {
			t.Errorf("Create = %v, want the wall's own words", err)
		}
		w.fake.SetHook(nil)
		create(t, d, sandbox.Spec{Name: "web"})
	})
}

func TestConcurrentCreatesOfOneName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(slow(sandboxtest.Start, time.Second))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, errs[i] = d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			wantKind(t, "Create", err, sandbox.Conflict)
		}
		if won != 1 {
			t.Errorf("%d creates won, want 1", won)
		}
	})
}

func slow(op sandboxtest.Op, by time.Duration) func(context.Context, sandboxtest.Op, string) error {
	return func(ctx context.Context, o sandboxtest.Op, _ string) error {
		if o != op {
			return nil
		}
		select {
		case <-time.After(by):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestSlowStartsDoNotQueue: fake time shows that starts of different sandboxes
// run side by side, and that one which hangs delays nothing else.
func TestSlowStartsDoNotQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "other"})
		w.fake.SetHook(slow(sandboxtest.Start, time.Minute))
		began := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { create(t, d, sandbox.Spec{}) })
		}
		synctest.Wait()
		if _, err := d.Stop(t.Context(), ann, "other"); err != nil {
			t.Error(err)
		}
		if all, err := d.List(t.Context(), ann, sandbox.Filter{States: []sandbox.State{sandbox.StateCreated}}); err != nil || len(all) != 20 {
			t.Errorf("List = %d, %v; want 20 that are being created", len(all), err)
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("stop and list of others took %v", got)
		}
		wg.Wait()
		if got := time.Since(began); got != time.Minute {
			t.Errorf("20 creates took %v, want 1m", got)
		}
	})
}

func TestOneSandboxIsChangedOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(func(context.Context, sandboxtest.Op, string) error {
			time.Sleep(time.Second)
			return nil
		})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { d.Stop(t.Context(), ann, "web") })
			wg.Go(func() { d.Start(t.Context(), ann, "web") })
			wg.Go(func() { d.EnsureRunning(t.Context(), ann, "web") })
		}
		wg.Go(func() { d.Remove(t.Context(), ann, "web", true) })
		wg.Wait()
		wantGone(t, d, "web")
		w.fake.SetHook(nil)
	})
}

func TestFailedStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "old"})
		d.Stop(t.Context(), ann, "old")
		w.fake.SetHook(failing(sandboxtest.Start))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "new"})
		wantKind(t, "Create", err, sandbox.Internal)
		if !errors.Is(err, errBoom) || strings.Contains(err.Error(), "boom") {
			t.Errorf("Create = %q: the cause is to be wrapped and not shown", err)
		}
		wantGone(t, d, "new")
		_, err = d.Start(t.Context(), ann, "old")
		wantKind(t, "Start", err, sandbox.Internal)
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndStopped)
		w.check(t)
		w.fake.SetHook(nil)
		if _, err := d.Start(t.Context(), ann, "old"); err != nil {
			t.Errorf("Start: %v", err)
		}
	})
}

func failing(ops ...sandboxtest.Op) func(context.Context, sandboxtest.Op, string) error {
	return func(_ context.Context, op sandboxtest.Op, _ string) error {
		if slices.Contains(ops, op) {
			return errBoom
		}
		return nil
	}
}

// TestUndoThatFailsIsRetried: nothing can be stopped or removed for a while.
func TestUndoThatFailsIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(failing(sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "new"})
		wantKind(t, "Create", err, sandbox.Internal)
		pass(time.Minute)
		_, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"})
		wantKind(t, "Create of the name that is not free yet", err, sandbox.Conflict)
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantGone(t, d, "new")
		w.check(t)
		create(t, d, sandbox.Spec{Name: "new"})
	})
}

func TestStopThatFailsIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "doomed"})
		w.fake.SetHook(failing(sandboxtest.Stop))
		_, err := d.Stop(t.Context(), ann, "web")
		wantKind(t, "Stop", err, sandbox.Internal)
		wantState(t, d, "web", sandbox.StateStopping, sandbox.EndStopped)
		_, err = d.Start(t.Context(), ann, "web")
		wantKind(t, "Start", err, sandbox.Internal)
		wantKind(t, "Remove", d.Remove(t.Context(), ann, "doomed", true), sandbox.Internal)
		_, err = d.Dial(t.Context(), ann, "web", 80)
		wantKind(t, "Dial", err, sandbox.Unavailable)
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
		wantGone(t, d, "doomed")
	})
}

func TestCancelledCreateIsUndone(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world, d *daemon) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w.fake.SetHook(slow(sandboxtest.Start, time.Minute))
			if ignores {
				w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
					if op == sandboxtest.Start {
						time.Sleep(time.Minute)
					}
					return nil
				})
			}
			_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"})
			wantKind(t, "Create", err, sandbox.Unavailable)
			wantGone(t, d, "web")
			w.check(t)
			w.fake.SetHook(nil)
		})
	}
}

// patientStore writes although the context has ended.
type patientStore struct{ sandbox.Store }

func (s patientStore) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	return s.Store.Put(context.WithoutCancel(ctx), sb)
}

// TestCreateTooLateForItsCaller: nobody was told of the box, so it goes.
func TestCreateTooLateForItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{Store: patientStore{&w.store}, Backends: []sandbox.Backend{w.fake}})
		ctx, cancel := context.WithCancel(t.Context())
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				cancel()
			}
			return nil
		})
		_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"})
		wantKind(t, "Create", err, sandbox.Unavailable)
		wantGone(t, d, "web")
		d.shutdown()
		w.check(t)
	})
}

func TestCancelledStartIsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		w.fake.SetHook(slow(sandboxtest.Start, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Start(ctx, ann, "web")
		wantKind(t, "Start", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
	})
}

func TestCancelledStopIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(slow(sandboxtest.Stop, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Stop(ctx, ann, "web"); err != nil {
			t.Errorf("Stop: %v", err)
		}
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(slow(sandboxtest.Start, time.Hour))
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}) })
		synctest.Wait()
		d.Close()
		wg.Wait()
		wantKind(t, "Create", err, sandbox.Unavailable)
		_, err = d.Get(t.Context(), ann, "web")
		wantKind(t, "Get after Close", err, sandbox.Unavailable)
		_, err = d.Stop(t.Context(), ann, "web")
		wantKind(t, "Stop after Close", err, sandbox.Unavailable)
		w.check(t) // web runs on, and of new there is nothing
		if got := len(w.fake.Running()); got != 1 {
			t.Errorf("%d boxes run, want 1", got)
		}
	})
}

func TestBeforeAdopt(t *testing.T) {
	w := newWorld()
	m, err := sandbox.NewManager(sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Create(t.Context(), ann, sandbox.Spec{})
	wantKind(t, "Create before Adopt", err, sandbox.Unavailable)
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(t.Context()); err == nil {
		t.Error("second Adopt = nil, want an error")
	}
	for _, opts := range []sandbox.Options{
		{},
		{Store: &w.store},
		{Store: &w.store, Backends: []sandbox.Backend{w.fake, w.fake}},
	} {
		if _, err := sandbox.NewManager(opts); err == nil {
			t.Errorf("NewManager(%+v) = nil, want an error", opts)
		}
	}
}

func TestDeathOfABox(t *testing.T) {
	for _, reason := range []sandbox.EndReason{sandbox.EndOutOfMemory, sandbox.EndCrashed, sandbox.EndRebooted} {
		t.Run(string(reason), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, d *daemon) {
				w.fake.SetLost("processes", "root changes")
				sb := create(t, d, sandbox.Spec{Name: "web"})
				w.fake.Die(sb.ID, reason)
				synctest.Wait()
				dead := wantState(t, d, "web", sandbox.StateStopped, reason)
				if d := cmp.Diff([]string{"processes", "root changes"}, dead.Lost); d != "" {
					t.Errorf("Lost (-want +got):\n%s", d)
				}
				_, err := d.Dial(t.Context(), ann, "web", sandbox.GuestPort)
				wantKind(t, "Dial", err, sandbox.Conflict)
				back, notice, err := d.EnsureRunning(t.Context(), ann, "web")
				if err != nil || back.State != sandbox.StateRunning {
					t.Fatalf("EnsureRunning = %+v, %v", back, err)
				}
				want := " and was started again: its processes and root changes are lost"
				if !strings.HasPrefix(notice, "sandbox web ") || !strings.HasSuffix(notice, want) {
					t.Errorf("notice = %q", notice)
				}
				if _, notice, err := d.EnsureRunning(t.Context(), ann, "web"); notice != "" || err != nil {
					t.Errorf("EnsureRunning of a running one = %q, %v", notice, err)
				}
				// The watcher of the second life works too, and that of the first is gone.
				w.fake.Die(sb.ID, reason)
				synctest.Wait()
				wantState(t, d, "web", sandbox.StateStopped, reason)
			})
		})
	}
}

func TestEnsureRunningLeavesStoppedOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "old", TTL: time.Minute})
		d.Stop(t.Context(), ann, "web")
		pass(2 * time.Minute)
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndExpired)
		for _, ref := range []string{"web", "old"} {
			_, _, err := d.EnsureRunning(t.Context(), ann, ref)
			wantKind(t, "EnsureRunning", err, sandbox.Conflict)
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Hint != "carboy start "+ref {
				t.Errorf("EnsureRunning = %#v, want a hint", err)
			}
			if _, err := d.Start(t.Context(), ann, ref); err != nil {
				t.Errorf("Start: %v", err)
			}
		}
	})
}

func TestDial(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetServer(func(id string, port int, c net.Conn) {
			io.WriteString(c, id)
			c.Close()
		})
		sb := create(t, d, sandbox.Spec{Name: "web"})
		ctx, cancel := context.WithCancel(t.Context())
		c, err := d.Dial(ctx, ann, "web", sandbox.GuestPort)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // bounds the dialling alone
		if b, err := io.ReadAll(c); string(b) != sb.ID || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		w.fake.Close()
		for _, port := range []int{-1, 0, 65536} {
			_, err := d.Dial(t.Context(), ann, "web", port)
			wantKind(t, "Dial of an impossible port", err, sandbox.Invalid)
		}
		w.fake.SetServer(nil)
		_, err = d.Dial(t.Context(), ann, "web", 80)
		wantKind(t, "Dial of a silent port", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateRunning, "")

		w.fake.Hang(sb.ID)
		_, err = d.Dial(t.Context(), ann, "web", sandbox.GuestPort)
		wantKind(t, "Dial of a hung box", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateRunning, "")
	})
}

// TestDialNoticesADeath: without Run there is no watcher, so Dial itself finds
// that the box has ended.
func TestDialNoticesADeath(t *testing.T) {
	w := newWorld()
	m, err := sandbox.NewManager(sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb, err := m.Create(t.Context(), ann, sandbox.Spec{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	w.fake.Die(sb.ID, sandbox.EndOutOfMemory)
	_, err = m.Dial(t.Context(), ann, "web", sandbox.GuestPort)
	wantKind(t, "Dial", err, sandbox.Unavailable)
	_, notice, err := m.EnsureRunning(t.Context(), ann, "web")
	if want := "sandbox web ran out of memory and was started again: its processes are lost"; notice != want || err != nil {
		t.Errorf("EnsureRunning = %q, %v; want %q", notice, err, want)
	}
	w.check(t)
}

func TestExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "stops", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "goes", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "goes-when-stopped", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "longer", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "for-ever", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "late", OnExpiry: sandbox.OnExpiryRemove})
		d.Stop(t.Context(), ann, "goes-when-stopped")
		for ref, ttl := range map[string]time.Duration{"longer": 2 * time.Minute, "for-ever": 0, "late": time.Hour} {
			if _, err := d.SetTTL(t.Context(), ann, ref, ttl); err != nil {
				t.Fatal(err)
			}
		}
		_, err := d.SetTTL(t.Context(), ann, "longer", time.Millisecond)
		wantKind(t, "SetTTL", err, sandbox.Invalid)
		pass(time.Minute - 1)
		for _, ref := range []string{"stops", "goes"} {
			wantState(t, d, ref, sandbox.StateRunning, "")
		}
		pass(1)
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "goes")
		wantGone(t, d, "goes-when-stopped")
		wantState(t, d, "longer", sandbox.StateRunning, "")
		pass(time.Minute)
		wantState(t, d, "longer", sandbox.StateStopped, sandbox.EndExpired)
		pass(58*time.Minute - 1)
		wantState(t, d, "late", sandbox.StateRunning, "")
		pass(1)
		wantGone(t, d, "late")
		wantState(t, d, "for-ever", sandbox.StateRunning, "")
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
	})
}

func TestSetTTLOfAStoppedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		sb, err := d.SetTTL(t.Context(), ann, "web", time.Minute)
		if err != nil || !sb.ExpiresAt.IsZero() {
			t.Errorf("SetTTL = %+v, %v; want no expiry while it is stopped", sb, err)
		}
		sb, err = d.Start(t.Context(), ann, "web")
		if err != nil || !sb.ExpiresAt.Equal(sb.StartedAt.Add(time.Minute)) {
			t.Errorf("Start = %+v, %v; want it to expire in a minute", sb, err)
		}
	})
}

func TestOrphans(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		run := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
		create(t, d, sandbox.Spec{Name: "never-held", Ephemeral: true})
		create(t, d, sandbox.Spec{Name: "stays"})
		hold := func(ref string) func() {
			release, err := d.Hold(t.Context(), ann, ref)
			if err != nil {
				t.Fatalf("Hold: %v", err)
			}
			return release
		}
		one, two := hold("run"), hold("run")
		hold("stays")()
		if n, holds := d.Idle(); n != 3 || holds != 2 {
			t.Errorf("Idle = %d, %d; want 3, 2", n, holds)
		}
		pass(sandbox.OrphanGrace)
		wantGone(t, d, "never-held")
		one()
		one() // does not count twice
		pass(time.Hour)
		wantState(t, d, "run", sandbox.StateRunning, "")
		two()
		pass(sandbox.OrphanGrace - 1)
		three := hold("run") // just in time
		pass(time.Hour)
		wantState(t, d, "run", sandbox.StateRunning, "")
		w.fake.SetChanges(run.ID, []byte("M a.txt"))
		three()
		pass(sandbox.OrphanGrace)
		kept := wantState(t, d, "run", sandbox.StateStopped, sandbox.EndOrphaned)
		if kept.Spec.Ephemeral || !kept.Kept {
			t.Errorf("kept %+v", kept)
		}
		wantState(t, d, "stays", sandbox.StateRunning, "")
		if n, holds := d.Idle(); n != 1 || holds != 0 {
			t.Errorf("Idle = %d, %d; want 1, 0", n, holds)
		}
	})
}

func TestFinish(t *testing.T) {
	changed := []byte("M a.txt")
	tests := []struct {
		name      string
		workspace sandbox.Workspace
		changes   []byte
		fail      bool // Changes
		stopped   bool // before
		want      bool // kept
	}{
		{name: "unchanged", workspace: cow()},
		{name: "changed", workspace: cow(), changes: changed, want: true},
		{name: "unreadable", workspace: cow(), fail: true, want: true},
		{name: "changed-and-stopped", workspace: cow(), changes: changed, stopped: true, want: true},
		{name: "unchanged-and-stopped", workspace: cow(), stopped: true},
		{name: "private", changes: changed},
		{name: "writable", workspace: sandbox.Workspace{Mode: "rw", Source: hostDir("/w")}, changes: changed},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, d *daemon) {
				if tc.fail {
					w.fake.SetHook(failing(sandboxtest.Changes))
				}
				sb := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: tc.workspace})
				w.fake.SetChanges(sb.ID, tc.changes)
				release, err := d.Hold(t.Context(), ann, "run")
				if err != nil {
					t.Fatal(err)
				}
				if tc.stopped {
					w.fake.Die(sb.ID, sandbox.EndOutOfMemory)
					synctest.Wait()
				}
				res, err := d.Finish(t.Context(), ann, "run")
				if err != nil || res.Kept != tc.want {
					t.Fatalf("Finish = %+v, %v; want Kept %v", res, err, tc.want)
				}
				release()
				if !tc.want {
					wantGone(t, d, "run")
					return
				}
				if res, err := d.Finish(t.Context(), ann, "run"); err != nil || !res.Kept {
					t.Errorf("Finish again = %+v, %v", res, err)
				}
				pass(sandbox.KeptTTL - 1)
				if sb := get(t, d, "run"); sb.State != sandbox.StateStopped || sb.Spec.Ephemeral {
					t.Errorf("kept %+v", sb)
				}
				pass(1)
				wantGone(t, d, "run")
			})
		})
	}
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		_, err := d.Finish(t.Context(), ann, "web")
		wantKind(t, "Finish of what stays", err, sandbox.Conflict)
		wantState(t, d, "web", sandbox.StateRunning, "")
	})
}

// TestFinishReadsNoMoreThanItNeeds: an endless stream of changes ends with the
// first byte, and a reader of the stream's own format has the say.
func TestFinishReadsNoMoreThanItNeeds(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			d := w.bootWith(t, sandbox.Options{
				Store: &w.store, Backends: []sandbox.Backend{w.fake},
				HasChanges: func(r io.Reader) (bool, error) {
					_, err := io.ReadFull(r, make([]byte, 6))
					return changed, err
				},
			})
			sb := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
			w.fake.SetChanges(sb.ID, append([]byte("header"), make([]byte, 1<<20)...))
			if res, err := d.Finish(t.Context(), ann, "run"); err != nil || res.Kept != changed {
				t.Errorf("Finish = %+v, %v; want Kept %v", res, err, changed)
			}
			d.shutdown()
			w.check(t)
		})
	}
}

// TestInterruptedFinish: a caller who leaves during the look for changes does
// not make the sandbox kept, nor lost: it is finished as an orphan.
func TestInterruptedFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
		w.fake.SetHook(slow(sandboxtest.Changes, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Finish(ctx, ann, "run")
		wantKind(t, "Finish", err, sandbox.Unavailable)
		if sb := wantState(t, d, "run", sandbox.StateStopped, sandbox.EndStopped); !sb.Spec.Ephemeral || sb.Kept {
			t.Errorf("interrupted %+v", sb)
		}
		pass(5 * time.Minute)
		wantGone(t, d, "run")
	})
}

func TestHoldOfWhatIsBeingFinished(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "run", Ephemeral: true})
		w.fake.SetHook(slow(sandboxtest.Stop, time.Minute))
		pass(sandbox.OrphanGrace)
		_, err := d.Hold(t.Context(), ann, "run")
		wantKind(t, "Hold", err, sandbox.Conflict)
		pass(5 * time.Minute)
		wantGone(t, d, "run")
	})
}

func TestChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		sb := create(t, d, sandbox.Spec{Name: "web", Workspace: cow()})
		w.fake.SetChanges(sb.ID, []byte("M a.txt"))
		for range 2 {
			var b bytes.Buffer
			if err := d.Changes(t.Context(), ann, "web", sandbox.ChangesOptions{}, &b); err != nil || b.String() != "M a.txt" {
				t.Errorf("Changes = %q, %v", b.String(), err)
			}
			d.Stop(t.Context(), ann, "web")
		}
	})
}

// TestNothingSecretIsLogged runs a life with failures and looks through the log.
func TestNothingSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.fake},
			Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		sb := create(t, d, sandbox.Spec{Name: "web", Env: map[string]string{"KEY": "hunter2"}})
		w.fake.SetHook(failing(sandboxtest.Stop, sandboxtest.Start))
		d.Stop(t.Context(), ann, "web")
		d.Create(t.Context(), ann, sandbox.Spec{Name: "new", Env: map[string]string{"KEY": "hunter2"}})
		w.fake.SetHook(nil)
		pass(time.Minute)
		d.shutdown()
		if !strings.Contains(log.String(), sb.ID) {
			t.Error("the log does not name the sandbox: the search proves nothing")
		}
		for _, secret := range []string{sb.Token, "hunter2"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log shows %q", secret)
			}
		}
	})
}
