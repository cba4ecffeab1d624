package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// machine drives managers over one world with random calls, failures, deaths
// of instances and deaths of the daemon.
type machine struct {
	w *gateWorld
	d *daemon
	m *mortality // of d
	// promised are sandboxes that must not go away by themselves, by ID: they
	// neither are ephemeral nor expire by removal, and nobody asked for that.
	promised map[string]string
	releases []func()
	broken   faults // operations that fail once
}

var machineNames = []string{"a", "b", "c", "d"}

func newMachine(t fataler) *machine {
	x := &machine{w: newGateWorld(), promised: map[string]string{}}
	x.start(t)
	return x
}

// start boots a daemon that lives until it is given a number of steps.
func (x *machine) start(t fataler) {
	t.Helper()
	x.m = newMortality(-1)
	x.d = x.w.bootMortally(t, x.m, &x.broken)
}

// call runs f as one caller does, to its end or to that of the daemon. Where
// the daemon dies, the next one is started.
func (x *machine) call(t *rapid.T, f func(ctx context.Context)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(context.Background())
	}()
	<-done
	x.revive(t)
}

// revive buries a dead daemon and starts the next.
func (x *machine) revive(t *rapid.T) {
	t.Helper()
	synctest.Wait()
	if x.m.dead.Load() {
		x.w.bury(x.d, x.m)
		x.releases = nil
		x.start(t)
	}
}

func (x *machine) ref(t *rapid.T) string { return rapid.SampledFrom(machineNames).Draw(t, "name") }

func (x *machine) Create(t *rapid.T) {
	spec := sandbox.Spec{
		Name:      x.ref(t),
		Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
		TTL:       rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second, time.Minute}).Draw(t, "ttl"),
		OnExpiry:  rapid.SampledFrom([]sandbox.OnExpiry{"stop", "remove"}).Draw(t, "on-expiry"),
	}
	if rapid.Bool().Draw(t, "cow") {
		spec.Workspace = cow()
	}
	if rapid.Bool().Draw(t, "networked") {
		spec.Policy = allow(x.host(t))
	}
	changed := rapid.Bool().Draw(t, "changed")
	x.call(t, func(ctx context.Context) {
		sb, err := x.d.Create(ctx, ann, spec, nil)
		if err != nil {
			return
		}
		if changed {
			x.w.fake.SetChanges(sb.ID, []byte("M a.txt"))
		}
		if !spec.Ephemeral && spec.OnExpiry == sandbox.OnExpiryStop {
			x.promised[sb.ID] = sb.Spec.Name
		}
	})
}

func (x *machine) host(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a.example", "b.example"}).Draw(t, "host")
}

func (x *machine) SetPolicy(t *rapid.T) {
	ref, p := x.ref(t), allow(x.host(t))
	x.call(t, func(ctx context.Context) {
		sb, err := x.d.SetPolicy(ctx, ann, ref, *p)
		if err != nil || sb.State != sandbox.StateRunning {
			return
		}
		if got := x.w.gate.Policy(sb.ID); !cmp.Equal(got, p) {
			t.Errorf("a policy was set, and the gate goes by %+v", got)
		}
	})
}

func (x *machine) Stop(t *rapid.T) {
	ref := x.ref(t)
	x.call(t, func(ctx context.Context) { x.d.Stop(ctx, ann, ref) })
}

func (x *machine) Start(t *rapid.T) {
	ref := x.ref(t)
	x.call(t, func(ctx context.Context) { x.d.Start(ctx, ann, ref) })
}

func (x *machine) EnsureRunning(t *rapid.T) {
	ref := x.ref(t)
	x.call(t, func(ctx context.Context) {
		sb, _, err := x.d.EnsureRunning(ctx, ann, ref)
		if err == nil && sb.State != sandbox.StateRunning {
			t.Errorf("EnsureRunning returned one that is %s", sb.State)
		}
	})
}

func (x *machine) Remove(t *rapid.T) {
	ref, force := x.ref(t), rapid.Bool().Draw(t, "force")
	x.call(t, func(ctx context.Context) {
		sb, err := x.d.Get(ctx, ann, ref)
		if err != nil {
			return
		}
		if force || sb.State != sandbox.StateRunning {
			delete(x.promised, sb.ID) // asked for, whether or not it succeeds
		}
		x.d.Remove(ctx, ann, sb.ID, force)
	})
}

func (x *machine) Finish(t *rapid.T) {
	ref := x.ref(t)
	x.call(t, func(ctx context.Context) { x.d.Finish(ctx, ann, ref) })
}

func (x *machine) SetTTL(t *rapid.T) {
	ref := x.ref(t)
	ttl := rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Hour}).Draw(t, "ttl")
	x.call(t, func(ctx context.Context) { x.d.SetTTL(ctx, ann, ref, ttl) })
}

func (x *machine) Hold(t *rapid.T) {
	if release, err := x.d.Hold(context.Background(), ann, x.ref(t)); err == nil {
		x.releases = append(x.releases, release)
	}
}

func (x *machine) Release(t *rapid.T) {
	if len(x.releases) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(x.releases)-1).Draw(t, "hold")
	x.releases[i]()
	x.releases = slices.Delete(x.releases, i, i+1)
	x.revive(t)
}

func (x *machine) InstanceDies(t *rapid.T) {
	running := x.w.fake.Running()
	if len(running) == 0 {
		t.Skip("nothing runs")
	}
	reason := rapid.SampledFrom([]sandbox.EndReason{sandbox.EndCrashed, sandbox.EndOutOfMemory}).Draw(t, "reason")
	x.w.fake.Die(rapid.SampledFrom(running).Draw(t, "box"), reason)
	x.revive(t)
}

func (x *machine) Break(t *rapid.T) {
	x.broken.add(rapid.SampledFrom(steps).Draw(t, "op"))
}

func (x *machine) Race(t *rapid.T) {
	ref := x.ref(t)
	x.call(t, func(ctx context.Context) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.d.Stop(ctx, ann, ref)
		}()
		x.d.EnsureRunning(ctx, ann, ref)
		<-done
	})
}

func (x *machine) DaemonWillDie(t *rapid.T) {
	x.m.left.Store(int64(rapid.IntRange(1, 12).Draw(t, "steps")))
}

func (x *machine) DaemonRestarts(t *rapid.T) {
	x.m.left.Store(-1)
	x.d.shutdown()
	x.releases = nil
	x.start(t)
}

func (x *machine) TimePasses(t *rapid.T) {
	pass(rapid.SampledFrom([]time.Duration{time.Second, sandbox.OrphanGrace, time.Minute}).Draw(t, "time"))
	x.revive(t)
}

// Settled lets everything come to rest and wants the strong invariants.
func (x *machine) Settled(t *rapid.T) {
	x.broken.clear()
	x.m.left.Store(-1)
	pass(30 * time.Second)
	x.revive(t)
	pass(30 * time.Second)
	x.w.check(t)
	all, err := x.d.List(context.Background(), ann, sandbox.Filter{})
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	there := map[string]bool{}
	for _, sb := range all {
		there[sb.ID] = true
		stored, err := x.w.store.Get(context.Background(), sb.ID)
		if err != nil || stored.State != sb.State || stored.Starts != sb.Starts {
			t.Errorf("in memory %+v, in the store %+v, %v", sb, stored, err)
		}
	}
	for id, name := range x.promised {
		if !there[id] {
			t.Errorf("%s (%s) is gone, and nobody asked for that", name, id)
		}
	}
}

// Check is what holds at any moment, after any call.
func (x *machine) Check(t *rapid.T) {
	if faults := x.w.fake.Faults(); len(faults) > 0 {
		t.Fatalf("the backend was misused: %q", faults)
	}
	for _, id := range x.w.gate.Opened(false) {
		if _, err := x.w.store.Get(context.Background(), id); err != nil {
			t.Errorf("gate %s is open without a record: %v", id, err)
		}
	}
	for _, id := range x.w.fake.Running() {
		if _, err := x.w.store.Get(context.Background(), id); err != nil {
			t.Errorf("box %s runs without a record: %v", id, err)
		}
	}
	for id, name := range x.promised {
		if _, err := x.w.store.Get(context.Background(), id); err != nil {
			t.Errorf("the record of %s is lost: %v", name, err)
		}
	}
}

func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The deadline of a testing.T is not to be asked for in a bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			x := newMachine(t)
			defer func() {
				x.w.bury(x.d, x.m)
				synctest.Wait()
			}()
			t.Repeat(map[string]func(*rapid.T){
				"": x.Check, "create": x.Create, "create-too": x.Create, "stop": x.Stop, "start": x.Start,
				"ensure-running": x.EnsureRunning, "remove": x.Remove, "finish": x.Finish, "set-ttl": x.SetTTL,
				"set-policy": x.SetPolicy,
				"hold":       x.Hold, "release": x.Release, "box-dies": x.InstanceDies, "break": x.Break, "race": x.Race,
				"daemon-will-die": x.DaemonWillDie, "daemon-restarts": x.DaemonRestarts,
				"time-passes": x.TimePasses, "settled": x.Settled,
			})
			x.Settled(t)
		})
	})
}
