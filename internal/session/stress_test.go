package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Whatever many callers do at once, and whichever sandboxes die meanwhile,
// everybody gets an answer, and nothing is left that no record leads to.
func TestManyCallersAtOnce(t *testing.T) {
	root := t.TempDir()
	c := config()
	c.AllowedMountRoots = []string{root}
	c.Limits.MaxSessions, c.Limits.MaxProcesses = 3, 4
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			d := w.boot(t, c)
			var callers sync.WaitGroup
			for n := range uint64(8) {
				callers.Go(func() {
					r := rand.New(rand.NewPCG(seed, n))
					for range 40 {
						w.disturb(d, r, root)
					}
				})
			}
			callers.Wait()
			pass(time.Minute)
			w.agree(t, d)
			if wrong := d.Wrong(ws.Owner, nil); len(wrong) > 0 {
				t.Errorf("%q", wrong)
			}
			if err := d.DropAll(t.Context(), "", nil); err != nil {
				t.Error(err)
			}
			pass(time.Minute)
			if m := d.Metrics(); m.Sessions != 0 || m.Asleep != 0 || m.Processes != 0 {
				t.Errorf("metrics %+v", m)
			}
			if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
				t.Errorf("boxes %q are left", boxes)
			}
			d.shutdown()
			w.check(t)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// disturb does one thing, whatever comes of it.
func (w *world) disturb(d *daemon, r *rand.Rand, root string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(400))*time.Second)
	defer cancel()
	spec := asked(fmt.Sprint("k", r.IntN(4)), []string{"echo x", "touch", "sleep 3", "sleep 50", "die", "dieoom", "exit 3"}[r.IntN(7)])
	spec.TimeoutSec = 1 + r.IntN(60)
	if r.IntN(4) == 0 {
		spec.ExtraMounts = []sessions.Mount{{HostPath: root, MountPath: "/mnt/x", Mode: "ro"}}
	}
	if r.IntN(10) == 0 {
		spec.CPUs = 2
	}
	c := ws
	pid := fmt.Sprint("p", r.IntN(2))
	switch r.IntN(12) {
	case 0:
		_ = d.Delete(ctx, c, spec.SessionID)
	case 1:
		_, _ = d.StartProcess(ctx, c, spec.SessionID, sessions.ProcessSpec{ProcessID: pid, Command: "serve"})
	case 2:
		_ = d.StopProcess(ctx, c, spec.SessionID, pid)
	case 3:
		if u, err := d.Use(ctx, c, spec); err == nil {
			time.Sleep(time.Duration(r.IntN(30)) * time.Second)
			u.Release()
		}
	case 4:
		if ids := w.fake.Running(); len(ids) > 0 {
			w.fake.Die(ids[r.IntN(len(ids))], sandbox.EndCrashed)
		}
	case 5:
		_, _ = d.Create(ctx, c, spec)
	case 6:
		_, _ = d.Get(ctx, c, spec.SessionID)
		_, _ = d.List(ctx, c)
		_, _ = d.Status(ctx, c)
	case 7:
		time.Sleep(time.Duration(r.IntN(400)) * time.Second)
	default:
		_, _ = d.Exec(ctx, c, spec)
	}
}
