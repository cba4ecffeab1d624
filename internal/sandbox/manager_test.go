package sandbox_test

import (
	"bytes"
	"context"
	"io"
	"regexp"
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
		_, err := d.Create(t.Context(), ann, sandbox.Spec{}, nil)
		wantKind(t, "Create without randomness", err, sandbox.Internal)
		w.check(t)
	})
}

func TestOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		ctx := t.Context()
		mine := create(t, d, sandbox.Spec{Name: "web"})
		theirs, err := d.Create(ctx, bob, sandbox.Spec{Name: "web"}, nil)
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
		_, err = d.Create(ctx, sandbox.Caller{Admin: true}, sandbox.Spec{}, nil)
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
		if _, err := d.Create(t.Context(), bob, sandbox.Spec{Name: "theirs"}, nil); err != nil {
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
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Network: "on"}, nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
		_, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil)
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
			wg.Go(func() { _, errs[i] = d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil) })
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

func TestBeforeAdopt(t *testing.T) {
	w := newWorld()
	m, err := sandbox.NewManager(sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Create(t.Context(), ann, sandbox.Spec{}, nil)
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
		{Store: &w.store, Backends: []sandbox.Backend{plainWall{w.fake}}}, // weaker than its name promises
	} {
		if _, err := sandbox.NewManager(opts); err == nil {
			t.Errorf("NewManager(%+v) = nil, want an error", opts)
		}
	}
}
