package sandbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// warmWorld is a world whose wall keeps instances warm.
type warmWorld struct {
	*world
	wall sandboxtest.Warmer
	tap  *tapStore
	opts sandbox.Options
}

// tapStore shows what is put into a store, and can refuse to delete.
type tapStore struct {
	sandbox.Store
	mu   sync.Mutex
	put  func(*sandbox.Sandbox)
	keep bool
}

func (s *tapStore) set(put func(*sandbox.Sandbox), keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put, s.keep = put, keep
}

func (s *tapStore) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.put != nil {
		s.put(sb)
	}
	return s.Store.Put(ctx, sb)
}

func (s *tapStore) Delete(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep {
		return errBoom
	}
	return s.Store.Delete(ctx, id)
}

func newWarmWorld(pool sandbox.Pool) *warmWorld {
	wall := sandboxtest.NewWarmer(sandbox.DefaultIsolation)
	w := &warmWorld{world: &world{fake: wall.Fake}, wall: wall}
	w.tap = &tapStore{Store: &w.store}
	w.opts = sandbox.Options{Store: w.tap, Backends: []sandbox.Backend{wall}, Pool: pool}
	return w
}

// withPool runs a test with a daemon whose pool is full.
func withPool(t *testing.T, pool sandbox.Pool, test func(t *testing.T, w *warmWorld, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(pool)
		d := w.bootWith(t, w.opts)
		test(t, w, d)
		d.shutdown()
		w.check(t) // what was warm is gone
	})
}

func wantPool(t *testing.T, w *warmWorld, d *daemon, ready, size int) {
	t.Helper()
	if r, s := d.Pool(); r != ready || s != size || len(w.wall.Warmed()) != ready {
		t.Errorf("Pool = %d, %d, with %d warm instances; want %d, %d", r, s, len(w.wall.Warmed()), ready, size)
	}
}

// counted counts the operations on a fake, and has each take its time.
type counted struct {
	mu    sync.Mutex
	n     map[sandboxtest.Op]int
	under map[sandboxtest.Op]int
	most  map[sandboxtest.Op]int // at once
	takes map[sandboxtest.Op]time.Duration
	fail  map[sandboxtest.Op]error
}

func count(f *sandboxtest.Fake) *counted {
	c := &counted{
		n: map[sandboxtest.Op]int{}, under: map[sandboxtest.Op]int{}, most: map[sandboxtest.Op]int{},
		takes: map[sandboxtest.Op]time.Duration{}, fail: map[sandboxtest.Op]error{},
	}
	f.SetHook(c.hook)
	return c
}

func (c *counted) hook(ctx context.Context, op sandboxtest.Op, _ string) error {
	c.mu.Lock()
	c.n[op]++
	c.under[op]++
	c.most[op] = max(c.most[op], c.under[op])
	takes, err := c.takes[op], c.fail[op]
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.under[op]--
		c.mu.Unlock()
	}()
	if takes == 0 {
		return err
	}
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *counted) set(op sandboxtest.Op, takes time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes[op], c.fail[op] = takes, err
}

func (c *counted) count(op sandboxtest.Op) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[op]
}

func TestPool(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 2}, func(t *testing.T, w *warmWorld, d *daemon) {
		wantPool(t, w, d, 2, 2)
		if n, holds := d.Idle(); n != 0 || holds != 0 {
			t.Errorf("Idle = %d, %d; want 0, 0: warm instances are nobody's", n, holds)
		}
		if all, err := d.List(t.Context(), admin, sandbox.Filter{}); err != nil || len(all) != 0 {
			t.Errorf("List = %v, %v; want none", all, err)
		}
		ops := count(w.fake)
		warm := w.wall.Warmed()
		spec := sandbox.Spec{
			Name: "web", Env: map[string]string{"A": "b"}, Labels: map[string]string{"a": "b"},
			TTL: time.Hour, OnExpiry: sandbox.OnExpiryRemove, Ephemeral: true,
		}
		sb := create(t, d, spec)
		if !slices.Contains(warm, sb.ID) || ops.count(sandboxtest.Claim) != 1 || ops.count(sandboxtest.Start) != 0 {
			t.Errorf("%s was not one of %v, claimed", sb.ID, warm)
		}
		if sb.State != sandbox.StateRunning || sb.Starts != 1 || len(sb.Token) != 64 || len(sb.Enforced) != 9 ||
			!sb.ExpiresAt.Equal(sb.StartedAt.Add(time.Hour)) || !cmp.Equal(sb.Spec.Env, spec.Env) {
			t.Errorf("claimed %+v", sb)
		}
		if stored, err := w.store.Get(t.Context(), sb.ID); err != nil || !cmp.Equal(stored, sb) {
			t.Errorf("stored (-returned +stored):\n%s (%v)", cmp.Diff(sb, stored), err)
		}
		evs, err := d.Events(t.Context(), ann, "web")
		if err != nil || len(evs) != 2 || evs[1].Message != "started, in a sandbox that was kept warm" {
			t.Errorf("Events = %v, %v", evs, err)
		}
		pass(time.Second)
		wantPool(t, w, d, 2, 2)
		// From here on it is a sandbox as any other.
		if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
			t.Error(err)
		}
		if again, err := d.Start(t.Context(), ann, "web"); err != nil || again.Starts != 2 || ops.count(sandboxtest.Start) != 1 {
			t.Errorf("Start = %+v, %v; want an ordinary start", again, err)
		}
		w.fake.Die(sb.ID, sandbox.EndCrashed)
		synctest.Wait()
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndCrashed)
	})
}

func TestNoPool(t *testing.T) {
	withPool(t, sandbox.Pool{}, func(t *testing.T, w *warmWorld, d *daemon) {
		create(t, d, sandbox.Spec{})
		pass(time.Hour)
		wantPool(t, w, d, 0, 0)
	})
	inBubble(t, func(t *testing.T, w *world, d *daemon) { // no Warmer, though one is wanted
		d.shutdown()
		d = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Pool: sandbox.Pool{Size: 2}})
		create(t, d, sandbox.Spec{})
		pass(time.Hour)
		if ready, size := d.Pool(); ready != 0 || size != 0 {
			t.Errorf("Pool = %d, %d; want nothing", ready, size)
		}
		d.shutdown()
	})
	for _, pool := range []sandbox.Pool{{Size: -1}, {Size: 1, Memory: -1}} {
		w := newWarmWorld(pool)
		if _, err := sandbox.NewManager(w.opts); err == nil {
			t.Errorf("NewManager with %+v = nil, want an error", pool)
		}
	}
}

// TestKinds: what of a spec a warm instance must have been made with, and what it
// can become.
func TestKinds(t *testing.T) {
	tests := []struct {
		name string
		spec sandbox.Spec
		warm bool // a default instance will do
		kept bool // the kind is warmed from then on
	}{
		{name: "default", warm: true},
		{name: "name-env-labels", warm: true, spec: sandbox.Spec{
			Name: "x", Env: map[string]string{"A": "b"}, Labels: map[string]string{"a": "b"},
		}},
		{name: "life", warm: true, spec: sandbox.Spec{TTL: time.Hour, OnExpiry: "remove", Ephemeral: true}},
		{name: "stronger-allowed", warm: true, spec: sandbox.Spec{Stronger: []string{"microvm"}}},
		{name: "weaker-asked-for", warm: true, spec: sandbox.Spec{Isolation: "process", Stronger: []string{"gvisor"}}},
		{name: "not-explicit", warm: true, spec: sandbox.Spec{Limits: sandbox.Limits{Explicit: map[string]bool{"cpus": false}}}},
		{name: "memory", kept: true, spec: sandbox.Spec{Limits: sandbox.Limits{Memory: 1 << 30}}},
		{name: "cpus", kept: true, spec: sandbox.Spec{Limits: sandbox.Limits{CPUs: 1}}},
		{name: "pids", kept: true, spec: sandbox.Spec{Limits: sandbox.Limits{PIDs: 100}}},
		{name: "disk", kept: true, spec: sandbox.Spec{Limits: sandbox.Limits{Disk: 1 << 30}}},
		{name: "inodes", kept: true, spec: sandbox.Spec{Limits: sandbox.Limits{Inodes: 5000}}},
		{name: "explicit", kept: true, spec: sandbox.Spec{
			Limits: sandbox.Limits{PIDs: sandbox.DefaultPIDs, Explicit: map[string]bool{"pids": true}},
		}},
		{name: "root", kept: true, spec: sandbox.Spec{User: "root"}},
		{name: "image", kept: true, spec: sandbox.Spec{Image: "debian@" + digest}},
		{name: "workspace", spec: sandbox.Spec{Workspace: cow()}},
		{name: "mounts", spec: sandbox.Spec{Mounts: mounts("/mnt/x")}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarmWorld(sandbox.Pool{Size: 1})
				w.opts.Images = &shelf{images: []string{digest}}
				d := w.bootWith(t, w.opts)
				warm := w.wall.Warmed()
				sb := create(t, d, tc.spec)
				if got := slices.Contains(warm, sb.ID); got != tc.warm {
					t.Errorf("claimed a default instance: %v, want %v", got, tc.warm)
				}
				pass(time.Minute)
				size := 1
				if tc.kept {
					size = 2
				}
				wantPool(t, w, d, size, size)
				warm = w.wall.Warmed()
				tc.spec.Name = "again"
				if sb := create(t, d, tc.spec); slices.Contains(warm, sb.ID) != (tc.warm || tc.kept) {
					t.Errorf("the second is of the warm ones: %v", !(tc.warm || tc.kept))
				}
				d.shutdown()
				w.check(t)
			})
		})
	}
}

// memoryOf is a spec of a kind of its own.
func memoryOf(gib int) sandbox.Spec {
	return sandbox.Spec{Limits: sandbox.Limits{Memory: int64(gib) << 30}}
}

// kinds counts the warm instances by the memory that they were made with, in GiB.
func (w *warmWorld) kinds() map[int]int {
	n := map[int]int{}
	for _, id := range w.wall.Warmed() {
		n[int(w.wall.WarmedWith(id).Limits.Memory>>30)]++
	}
	return n
}

// TestBudget: the memory of the pool is never exceeded, and goes to the kinds
// that were used last. A default instance takes 2 GiB by its limit, which does not
// matter.
func TestBudget(t *testing.T) {
	const instance = 100 << 20
	pool := sandbox.Pool{Size: 2, Memory: 3*instance + instance/2, PerInstance: map[string]int64{"gvisor": instance}}
	withPool(t, pool, func(t *testing.T, w *warmWorld, d *daemon) {
		most := 0
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Warm {
				instances, _ := w.fake.Instances(context.Background())
				all, _ := d.List(context.Background(), admin, sandbox.Filter{})
				most = max(most, len(instances)-len(all)) // with the one that is being made
			}
			return nil
		})
		wantKinds := func(want map[int]int) {
			t.Helper()
			pass(time.Second)
			if diff := cmp.Diff(want, w.kinds()); diff != "" {
				t.Errorf("warm, by GiB (-want +got):\n%s", diff)
			}
		}
		wantKinds(map[int]int{2: 2})
		create(t, d, memoryOf(1))
		wantKinds(map[int]int{1: 2, 2: 1})
		create(t, d, memoryOf(3))
		wantKinds(map[int]int{3: 2, 1: 1})
		create(t, d, memoryOf(1))
		wantKinds(map[int]int{1: 2, 3: 1})
		create(t, d, sandbox.Spec{})
		wantKinds(map[int]int{2: 2, 1: 1})
		if most != 3 {
			t.Errorf("%d instances at once, want 3", most)
		}
		// What can't be ended takes its part still.
		w.fake.SetHook(failing(sandboxtest.Stop))
		create(t, d, memoryOf(4))
		wantKinds(map[int]int{2: 2, 1: 1})
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantKinds(map[int]int{4: 2, 2: 1})
	})
	withPool(t, sandbox.Pool{Size: 2, Memory: instance, PerInstance: map[string]int64{"gvisor": instance + 1}},
		func(t *testing.T, w *warmWorld, d *daemon) { wantPool(t, w, d, 0, 0) })
	withPool(t, sandbox.Pool{Size: 1000}, func(t *testing.T, w *warmWorld, d *daemon) {
		wantPool(t, w, d, sandbox.DefaultPoolMemory/sandbox.DefaultPerInstance, sandbox.DefaultPoolMemory/sandbox.DefaultPerInstance)
	})
}

// TestBoundedKinds: the kinds that were not used for longest are dropped, the
// default one never.
func TestBoundedKinds(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		for _, gib := range []int{1, 3, 4, 1, 5} {
			create(t, d, memoryOf(gib))
			pass(time.Second)
		}
		if diff := cmp.Diff(map[int]int{1: 1, 2: 1, 4: 1, 5: 1}, w.kinds()); diff != "" {
			t.Errorf("warm, by GiB (-want +got):\n%s", diff)
		}
	})
}

// TestRaceForOneInstance: of many who ask at once, one gets it; the others are
// served as ever.
func TestRaceForOneInstance(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		ops.set(sandboxtest.Start, time.Second, nil)
		for round := range 20 {
			warm, before := w.wall.Warmed(), ops.count(sandboxtest.Claim)
			var wg sync.WaitGroup
			got := make([]*sandbox.Sandbox, 4)
			for i := range got {
				wg.Go(func() {
					c := []sandbox.Caller{ann, bob}[i%2]
					sb, err := d.Create(t.Context(), c, sandbox.Spec{Name: fmt.Sprintf("web-%d-%d", round, i)}, nil)
					if err != nil || sb.Owner != c.Owner {
						t.Errorf("Create = %+v, %v", sb, err)
					}
					got[i] = sb
				})
			}
			wg.Wait()
			won := 0
			for _, sb := range got {
				if sb.ID == warm[0] {
					won++
				}
			}
			if won != 1 || ops.count(sandboxtest.Claim) != before+1 {
				t.Fatalf("round %d: %d have the warm instance, after %d claims; want one", round, won, ops.count(sandboxtest.Claim)-before)
			}
			pass(time.Minute)
		}
	})
}

// TestNothingReturnsToThePool: what was somebody's is removed, and whoever
// comes next gets an instance that never was.
func TestNothingReturnsToThePool(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 2}, func(t *testing.T, w *warmWorld, d *daemon) {
		seen := map[string]bool{}
		for range 10 {
			for _, c := range []sandbox.Caller{ann, bob} {
				sb, err := d.Create(t.Context(), c, sandbox.Spec{Name: "web", Env: map[string]string{"OWNER": c.Owner}}, nil)
				if err != nil || seen[sb.ID] || sb.Spec.Env["OWNER"] != c.Owner {
					t.Fatalf("Create = %+v, %v; seen before: %v", sb, err, seen[sb.ID])
				}
				seen[sb.ID] = true
			}
			_, err := d.Get(t.Context(), ann, mustGet(t, d, bob, "web").ID)
			wantKind(t, "Get of another's", err, sandbox.NotFound)
			for _, c := range []sandbox.Caller{ann, bob} {
				if err := d.Remove(t.Context(), c, "web", true); err != nil {
					t.Fatal(err)
				}
			}
			pass(time.Minute)
			for _, id := range w.wall.Warmed() {
				if seen[id] {
					t.Errorf("%s is warm again", id)
				}
			}
		}
	})
}

func mustGet(t *testing.T, d *daemon, c sandbox.Caller, ref string) *sandbox.Sandbox {
	t.Helper()
	sb, err := d.Get(t.Context(), c, ref)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// TestPoolIsPatient: instances are made one at a time, and none while, or just
// after, one is started for somebody.
func TestPoolIsPatient(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 3}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		ops.set(sandboxtest.Warm, time.Second, nil)
		ops.set(sandboxtest.Start, time.Hour, nil)
		var wg sync.WaitGroup
		wg.Go(func() { create(t, d, sandbox.Spec{Name: "slow", User: "root"}) })
		synctest.Wait()
		for range 3 {
			create(t, d, sandbox.Spec{})
		}
		pass(time.Hour - time.Second)
		if n := ops.count(sandboxtest.Warm); n != 0 {
			t.Errorf("%d instances were begun while somebody waited for one", n)
		}
		wg.Wait()
		pass(50 * time.Millisecond)
		if n := ops.count(sandboxtest.Warm); n != 0 {
			t.Errorf("%d instances were begun at once", n)
		}
		pass(10 * time.Second)
		wantPool(t, w, d, 6, 6)
		if got := ops.most[sandboxtest.Warm]; got != 1 {
			t.Errorf("%d were made at once, want 1", got)
		}
		d.Stop(t.Context(), ann, "slow")
		wg.Go(func() { d.Start(t.Context(), ann, "slow") })
		synctest.Wait()
		create(t, d, sandbox.Spec{})
		pass(time.Minute)
		wantPool(t, w, d, 5, 6)
		wg.Wait()
	})
}

// TestWarmImages: an image with warm instances is in use; one that has gone is
// warmed no more.
func TestWarmImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(sandbox.Pool{Size: 1})
		s := &shelf{images: []string{digest}}
		w.opts.Images = s
		d := w.bootWith(t, w.opts)
		create(t, d, sandbox.Spec{Name: "web", Image: "a@" + digest})
		pass(time.Second)
		wantPool(t, w, d, 2, 2)
		d.Remove(t.Context(), ann, "web", true)
		wantImages(t, d, digest)
		// Another owner may know the image by another name, which is told nobody.
		sb, err := d.Create(t.Context(), bob, sandbox.Spec{Name: "web", Image: "b@" + digest}, nil)
		if err != nil || w.wall.WarmedWith(sb.ID).Image != "" {
			t.Errorf("Create = %+v, %v; want no instance that was warmed by another name", sb, err)
		}
		d.Remove(t.Context(), bob, "web", true)
		s.keep(nil)
		create(t, d, sandbox.Spec{Name: "host"})
		if _, err := d.Create(t.Context(), ann, sandbox.Spec{Image: "a@" + digest}, nil); err == nil {
			t.Error("Create with an image that is gone = nil")
		}
		for _, id := range w.wall.Warmed() {
			w.fake.Die(id, sandbox.EndCrashed)
		}
		pass(time.Hour)
		wantPool(t, w, d, 1, 1)
		wantImages(t, d)
		d.shutdown()
		w.check(t)
	})
}
