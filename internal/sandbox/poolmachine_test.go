package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// poolMachine drives managers with a pool by random calls of two owners,
// failures, deaths of instances and deaths of the daemon.
type poolMachine struct {
	w      *warmWorld
	d      *daemon
	m      *mortality
	broken faults // operations that fail once
	owners map[string]string
}

func (x *poolMachine) start(t fataler) {
	t.Helper()
	x.m = newMortality(-1)
	x.d = x.w.bootMortalPool(t, x.m, false)
	m := x.m
	x.w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		if op == sandboxtest.Check {
			return nil
		}
		m.step()
		if x.broken.take(op) {
			return errBoom
		}
		return nil
	})
}

// call runs f to its end or to that of the daemon, and starts the next then.
func (x *poolMachine) call(t *rapid.T, f func(ctx context.Context)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(context.Background())
	}()
	<-done
	x.revive(t)
}

func (x *poolMachine) revive(t *rapid.T) {
	t.Helper()
	synctest.Wait()
	if x.m.dead.Load() {
		x.w.bury(x.d, x.m)
		x.start(t)
	}
}

func (x *poolMachine) caller(t *rapid.T) sandbox.Caller {
	return rapid.SampledFrom([]sandbox.Caller{ann, bob}).Draw(t, "caller")
}

func (x *poolMachine) name(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
}

func (x *poolMachine) Create(t *rapid.T) {
	c, spec := x.caller(t), sandbox.Spec{Name: x.name(t)}
	spec.Limits.Memory = rapid.SampledFrom([]int64{0, 0, 1 << 30, 3 << 30}).Draw(t, "memory")
	x.call(t, func(ctx context.Context) {
		if sb, err := x.d.Create(ctx, c, spec, nil); err == nil {
			if was := x.owners[sb.ID]; was != "" {
				t.Errorf("%s is %s's, and was %s's", sb.ID, c.Owner, was)
			}
			x.owners[sb.ID] = c.Owner
		}
	})
}

func (x *poolMachine) Remove(t *rapid.T) {
	c, ref := x.caller(t), x.name(t)
	x.call(t, func(ctx context.Context) { x.d.Remove(ctx, c, ref, true) })
}

func (x *poolMachine) Restart(t *rapid.T) {
	c, ref := x.caller(t), x.name(t)
	x.call(t, func(ctx context.Context) {
		x.d.Stop(ctx, c, ref)
		x.d.Start(ctx, c, ref)
	})
}

func (x *poolMachine) InstanceDies(t *rapid.T) {
	running := x.w.fake.Running()
	if len(running) == 0 {
		t.Skip("nothing runs")
	}
	instance := rapid.SampledFrom(running).Draw(t, "box")
	if rapid.Bool().Draw(t, "hangs") {
		x.w.fake.Hang(instance)
	} else {
		x.w.fake.Die(instance, sandbox.EndCrashed)
	}
	x.revive(t)
}

func (x *poolMachine) Break(t *rapid.T) {
	ops := []sandboxtest.Op{sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove, sandboxtest.Warm, sandboxtest.Claim}
	x.broken.add(rapid.SampledFrom(ops).Draw(t, "op"))
}

func (x *poolMachine) DaemonWillDie(t *rapid.T) {
	x.m.left.Store(int64(rapid.IntRange(1, 20).Draw(t, "steps")))
}

func (x *poolMachine) DaemonRestarts(t *rapid.T) {
	x.m.left.Store(-1)
	x.d.shutdown()
	x.start(t)
}

func (x *poolMachine) TimePasses(t *rapid.T) {
	pass(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "time"))
	x.revive(t)
}

// Check is what holds at any moment: no rule of the wall's is broken, and the
// pool keeps to its memory, even with what a dead daemon left.
func (x *poolMachine) Check(t *rapid.T) {
	if faults := x.w.fake.Faults(); len(faults) > 0 {
		t.Fatalf("the backend was misused: %q", faults)
	}
	if ready, size := x.d.Pool(); ready > size+2 || size > 3 {
		t.Errorf("Pool = %d, %d", ready, size)
	}
}

// Settled lets everything come to rest, and wants what is left when the
// daemon leaves to be the sandboxes alone.
func (x *poolMachine) Settled(t *rapid.T) {
	x.broken.clear()
	x.m.left.Store(-1)
	pass(6 * time.Minute) // the longest that a kind waits, and more
	x.revive(t)
	if ready, size := x.d.Pool(); ready != size || len(x.w.wall.Warmed()) != size {
		t.Errorf("Pool = %d, %d at rest, and %d warm instances", ready, size, len(x.w.wall.Warmed()))
	}
	x.d.shutdown()
	x.w.check(t)
	x.start(t)
}

func TestPoolMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			pool := sandbox.Pool{Size: 2, Memory: 3 * sandbox.DefaultPerInstance}
			x := &poolMachine{w: newWarmWorld(pool), owners: map[string]string{}}
			x.start(t)
			defer func() {
				x.w.bury(x.d, x.m)
				synctest.Wait()
			}()
			t.Repeat(map[string]func(*rapid.T){
				"": x.Check, "create": x.Create, "create-too": x.Create, "remove": x.Remove, "restart": x.Restart,
				"box-dies": x.InstanceDies, "break": x.Break, "daemon-will-die": x.DaemonWillDie,
				"daemon-restarts": x.DaemonRestarts, "time-passes": x.TimePasses, "settled": x.Settled,
			})
			x.Settled(t)
		})
	})
}
