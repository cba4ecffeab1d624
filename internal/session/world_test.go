package session_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

var (
	ann   = sandbox.Caller{Owner: "uid:1000"}
	bob   = sandbox.Caller{Owner: "uid:1001"}
	admin = sandbox.Caller{Owner: "uid:0", Admin: true}
)

// fataler is what of testing.T the helpers need.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is what outlives a daemon: the store, the boxes and their agents.
type world struct {
	store  storetest.Memory
	fake   *sandboxtest.Fake
	guests *guests
	audit  audits
}

type audits struct {
	mu   sync.Mutex
	list []session.AuditRecord
}

func (a *audits) add(r session.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, r)
}

func (a *audits) all() []session.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

func newWorld() *world {
	w := &world{fake: sandboxtest.New(sandbox.WallProcess)}
	w.guests = newGuests(w.fake)
	return w
}

// asking is a Runtime that is asked in the words of the API.
type asking struct{ *session.Runtime }

func (a asking) Exec(ctx context.Context, c sandbox.Caller, s sessions.Spec) (*session.Result, error) {
	spec, cmd := profile.Translate(s)
	return a.Runtime.Exec(ctx, c, spec, cmd)
}

func (a asking) Create(ctx context.Context, c sandbox.Caller, s sessions.Spec) (sessions.SessionInfo, error) {
	spec, _ := profile.Translate(s)
	return a.Runtime.Create(ctx, c, spec)
}

func (a asking) Use(ctx context.Context, c sandbox.Caller, s sessions.Spec) (*session.Use, error) {
	spec, _ := profile.Translate(s)
	return a.Runtime.Use(ctx, c, spec)
}

// daemon is one life of a manager and its sessions.
type daemon struct {
	asking
	manager *sandbox.Manager
	stop    context.CancelFunc
	done    chan struct{}
}

func config() session.Config { return session.Config{Isolation: sandbox.WallProcess} }

func (w *world) boot(t fataler, c session.Config) *daemon {
	t.Helper()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}}, session.Options{Store: &w.store, Config: c})
}

func (w *world) bootWith(t fataler, mo sandbox.Options, so session.Options) *daemon {
	t.Helper()
	return w.bootIn(context.Background(), t, mo, so)
}

func (w *world) bootIn(ctx context.Context, t fataler, mo sandbox.Options, so session.Options) *daemon {
	t.Helper()
	mo.CPUs, mo.Memory, mo.Events = 4, 8<<30, &w.store
	mo.Log = slog.New(slog.DiscardHandler)
	m, err := sandbox.NewManager(mo)
	if err != nil {
		t.Fatalf("NewManager: %v", err)
	}
	so.Manager, so.Audit, so.Class = m, w.audit.add, profile.Class
	r, err := session.New(so)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &daemon{asking: asking{r}, manager: m, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		var tasks sync.WaitGroup
		defer tasks.Wait()
		tasks.Go(func() {
			if err := m.Adopt(ctx); err != nil {
				t.Errorf("Adopt: %v", err)
				return
			}
			if err := r.Open(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("Open: %v", err)
			}
		})
		tasks.Go(func() { _ = r.Run(ctx) })
		_ = m.Run(ctx)
	}()
	synctest.Wait()
	return d
}

// shutdown ends a daemon in good order.
func (d *daemon) shutdown() {
	d.Close()
	d.manager.Close()
	d.stop()
	<-d.done
}

// inBubble runs a test with a world and its daemon in a bubble of fake time.
func inBubble(t *testing.T, c session.Config, test func(t *testing.T, w *world, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, c)
		test(t, w, d)
		d.shutdown()
		w.check(t)
	})
}

// check wants each box to be some session's, and the wall to be used well.
func (w *world) check(t fataler) {
	t.Helper()
	w.fake.Close()
	records, err := w.store.Sessions(context.Background())
	if err != nil {
		t.Fatalf("Sessions: %v", err)
	}
	names := map[string]bool{}
	for _, r := range records {
		names[r.Owner+" "+r.Sandbox] = true
	}
	boxes, err := w.store.List(context.Background())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, sb := range boxes {
		if !names[sb.Owner+" "+sb.Spec.Name] {
			t.Errorf("sandbox %s of %s is no session's", sb.Spec.Name, sb.Owner)
		}
	}
	if faults := w.fake.Faults(); len(faults) > 0 {
		t.Errorf("the backend was misused: %q", faults)
	}
}

// asked is a request of which nothing is out of the way.
func asked(key, cmd string) sessions.Spec {
	return sessions.Spec{
		SessionID: key, Cmd: cmd, Workdir: "/workspace", TimeoutSec: 30, Network: "off", Image: sessions.DefaultImage,
		HostPathMode: "rw", MountPath: "/workspace", CPUs: 1, MemoryMB: 512, PIDsLimit: 128, ReadOnlyRootFS: true,
	}
}

func run(t fataler, d *daemon, spec sessions.Spec) *session.Result {
	t.Helper()
	res, err := d.Exec(context.Background(), ann, spec)
	if err != nil {
		t.Fatalf("Exec %q in %q: %v", spec.Cmd, spec.SessionID, err)
	}
	return res
}

func wantClass(t fataler, what string, err error, want string) {
	t.Helper()
	if got := profile.Class(err); got != want {
		t.Errorf("%s = %v (class %q), want class %q", what, err, got, want)
	}
}

// pass lets fake time pass, and everything that it sets off end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
