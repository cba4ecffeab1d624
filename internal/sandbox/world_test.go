package sandbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

var (
	ann   = sandbox.Caller{Owner: "uid:1000"}
	bob   = sandbox.Caller{Owner: "uid:1001"}
	admin = sandbox.Caller{Owner: "uid:0", Admin: true}

	errBoom = errors.New("boom")
)

// fataler is what of testing.T and rapid.T the helpers need.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is what outlives a daemon: the store and the instances.
type world struct {
	store storetest.Memory
	fake  *sandboxtest.Fake
}

func newWorld() *world {
	return &world{fake: sandboxtest.New(sandbox.DefaultIsolation)}
}

// daemon is one life of a manager.
type daemon struct {
	*sandbox.Manager
	stop context.CancelFunc
	done chan struct{}
}

// boot adopts the world and runs, in a goroutine of its own.
func (w *world) boot(t fataler) *daemon {
	t.Helper()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}})
}

func (w *world) bootWith(t fataler, opts sandbox.Options) *daemon {
	t.Helper()
	return w.bootIn(context.Background(), t, opts)
}

// bootIn boots a daemon that runs until ctx ends or it is shut down.
func (w *world) bootIn(ctx context.Context, t fataler, opts sandbox.Options) *daemon {
	t.Helper()
	opts.CPUs, opts.Memory, opts.Events = 4, 8<<30, &w.store
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	m, err := sandbox.NewManager(opts)
	if err != nil {
		t.Fatalf("NewManager: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &daemon{Manager: m, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		var adopting sync.WaitGroup
		defer adopting.Wait()
		adopting.Go(func() {
			if err := m.Adopt(ctx); err != nil {
				t.Errorf("Adopt: %v", err)
			}
		})
		if err := m.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
	return d
}

// shutdown ends a daemon in good order.
func (d *daemon) shutdown() {
	d.Close()
	d.stop()
	<-d.done
}

// inBubble runs a test with a world and its daemon in a bubble of fake time.
func inBubble(t *testing.T, test func(t *testing.T, w *world, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t)
		test(t, w, d)
		d.shutdown()
		w.check(t)
	})
}

// check wants the store and the instances to agree, and nothing between states.
func (w *world) check(t fataler) {
	t.Helper()
	records, err := w.store.List(context.Background())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	var ids, running []string
	for _, sb := range records {
		ids = append(ids, sb.ID)
		switch sb.State {
		case sandbox.StateRunning:
			running = append(running, sb.ID)
		case sandbox.StateStopped:
			if sb.Ended == "" || sb.EndedAt.IsZero() {
				t.Errorf("%s stopped without a reason or a time", sb.ID)
			}
		default:
			t.Errorf("%s is left %s", sb.ID, sb.State)
		}
	}
	slices.Sort(running)
	if d := cmp.Diff(running, w.fake.Running(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("running, by the records and in truth (-records +truth):\n%s", d)
	}
	instances, _ := w.fake.Instances(context.Background())
	if d := cmp.Diff(ids, instances, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("all, by the records and in truth (-records +truth):\n%s", d)
	}
	if faults := w.fake.Faults(); len(faults) > 0 {
		t.Errorf("the backend was misused: %q", faults)
	}
}

func create(t fataler, d *daemon, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sb, err := d.Create(context.Background(), ann, spec, nil)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return sb
}

func get(t fataler, d *daemon, ref string) *sandbox.Sandbox {
	t.Helper()
	sb, err := d.Get(context.Background(), ann, ref)
	if err != nil {
		t.Fatalf("Get %s: %v", ref, err)
	}
	return sb
}

func wantState(t fataler, d *daemon, ref string, state sandbox.State, ended sandbox.EndReason) *sandbox.Sandbox {
	t.Helper()
	sb := get(t, d, ref)
	if sb.State != state || sb.Ended != ended {
		t.Errorf("%s is %s (%q), want %s (%q)", ref, sb.State, sb.Ended, state, ended)
	}
	return sb
}

func wantKind(t fataler, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s = %v (kind %q), want kind %q", what, err, got, want)
	}
}

func wantGone(t fataler, d *daemon, ref string) {
	t.Helper()
	_, err := d.Get(context.Background(), ann, ref)
	wantKind(t, "Get "+ref, err, sandbox.NotFound)
}

// pass lets fake time pass, and everything that it sets off end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func cow() sandbox.Workspace {
	return sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: hostDir("/home/ann/w")}
}
