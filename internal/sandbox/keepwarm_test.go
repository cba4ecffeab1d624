package sandbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// sessionLike has what instances of a read-only root and a directory of their own
// have.
func sessionLike() sandbox.Spec {
	return sandbox.Spec{
		ReadOnlyRoot: true, Limits: sandbox.Limits{CPUs: 1, Memory: 512 << 20, PIDs: 128},
		Mounts: []sandbox.Mount{{Own: true, Target: "/workspace/.skills"}, {Own: true, Target: "/mnt/own"}},
	}
}

// A kind that is kept warm is there for the first who asks, and no other kind
// is taken for it.
func TestKeepWarm(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		if err := d.KeepWarm(t.Context(), ann, sessionLike()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		was := w.wall.Warmed()
		if len(was) != 2 {
			t.Fatalf("warm: %q, want the default one and another", was)
		}
		other := sessionLike()
		other.Mounts = other.Mounts[:1]
		writable := sessionLike()
		writable.ReadOnlyRoot = false
		for name, spec := range map[string]sandbox.Spec{"fewer-mounts": other, "writable": writable} {
			sb, err := d.Create(t.Context(), ann, spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if warmed := w.wall.WarmedWith(sb.ID); warmed.Isolation != "" {
				t.Errorf("%s: it got an instance that was warmed with %+v", name, warmed)
			}
		}
		same := sessionLike()
		same.Mounts[0], same.Mounts[1] = same.Mounts[1], same.Mounts[0] // their order is of no account
		sb, err := d.Create(t.Context(), ann, same, nil)
		if err != nil {
			t.Fatal(err)
		}
		if warmed := w.wall.WarmedWith(sb.ID); !warmed.ReadOnlyRoot || len(warmed.Mounts) != 2 {
			t.Errorf("its instance was warmed with %+v", warmed)
		}
	})
}

func TestKeepWarmRefuses(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, _ *warmWorld, d *daemon) {
		for name, tt := range map[string]struct {
			spec sandbox.Spec
			want sandbox.Kind
		}{
			"invalid":   {sandbox.Spec{Limits: sandbox.Limits{Memory: 1}}, sandbox.Invalid},
			"workspace": {sandbox.Spec{Workspace: sandbox.Workspace{Mode: "cow", Source: hostDir("/srv/x")}}, sandbox.Unsupported},
			"mount":     {sandbox.Spec{Mounts: mounts("/mnt/x")}, sandbox.Unsupported},
			"no-wall":   {sandbox.Spec{Isolation: "microvm"}, sandbox.Unsupported},
		} {
			if err := d.KeepWarm(t.Context(), ann, tt.spec); sandbox.KindOf(err) != tt.want || err == nil {
				t.Errorf("%s: %v (%s), want %s", name, err, sandbox.KindOf(err), tt.want)
			}
		}
	})
}

// Whose instance has something that anybody's lacks gets warm ones of their own,
// and nobody else does.
func TestPersonalInstances(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 2}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		them := sandbox.Caller{Owner: sandboxtest.PersonalOwner}
		if _, err := d.Create(t.Context(), them, sandbox.Spec{Name: "own"}, nil); err != nil {
			t.Fatal(err)
		}
		if ops.count(sandboxtest.Claim) != 0 || ops.count(sandboxtest.Start) != 1 {
			t.Errorf("claims %d, starts %d; want an ordinary start", ops.count(sandboxtest.Claim), ops.count(sandboxtest.Start))
		}
		pass(time.Second)
		if _, err := d.Create(t.Context(), them, sandbox.Spec{Name: "again"}, nil); err != nil {
			t.Fatal(err)
		}
		if ops.count(sandboxtest.Claim) != 1 {
			t.Error("no instance was kept warm for its owner")
		}
		create(t, d, sandbox.Spec{Name: "other"})
		if ops.count(sandboxtest.Claim) != 2 {
			t.Error("another owner got no warm instance")
		}
	})
}
