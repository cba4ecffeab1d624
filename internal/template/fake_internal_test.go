package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// world is a Service with fakes around it.
type world struct {
	denied []netlog.Record // what every sandbox was refused
	*Service
	t    *testing.T
	o    Options
	mu   sync.Mutex
	db   memory
	now  time.Time
	host string

	instances map[string]*sandbox.Sandbox
	snapshots map[string]sandbox.Snapshot
	n         int
	most      int // sandboxes at the same time

	ran    []string // commands of steps, in order
	run    func(ctx context.Context, text string) (Exit, error)
	create func(sandbox.Spec) error
	pulled []ImageQuery
}

var (
	ann = sandbox.Caller{Owner: "uid:1"}
	bob = sandbox.Caller{Owner: "key:bob"}
)

// newWorld opens a Service; change may set options first.
func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), host: "v1",
		instances: map[string]*sandbox.Sandbox{}, snapshots: map[string]sandbox.Snapshot{},
		db: memory{map[string]Template{}, map[string]Record{}, map[[2]string]Tag{}, map[string]Cached{}},
	}
	w.o = Options{
		Store: w, Manager: w, Images: w, Guest: func(func(context.Context) (net.Conn, error)) Guest { return guest{w} },
		Dir: t.TempDir(), Now: w.clock, Host: func(context.Context) (string, error) { return w.host, nil },
	}
	for _, f := range change {
		f(&w.o)
	}
	w.reopen()
	t.Cleanup(func() { w.Close() })
	return w
}

// reopen is a daemon that starts anew.
func (w *world) reopen() {
	w.t.Helper()
	s, err := New(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.Open(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.Service = s
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass lets time pass, as records have it.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// begin asks for a build and starts it.
func (w *world) begin(c sandbox.Caller, name string, p Plan) Record {
	w.t.Helper()
	_, r, err := w.Request(w.t.Context(), c, Request{Name: name})
	if err == nil {
		p.HostImage = true
		err = w.Start(w.t.Context(), c, r.Template, r.ID, p)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// ended waits for a build's end, and for what follows it.
func (w *world) ended(r Record) Record {
	w.t.Helper()
	w.Service.mu.Lock()
	under := w.running[r.ID]
	w.Service.mu.Unlock()
	if under != nil {
		<-under.done
	}
	got, err := w.Build(w.t.Context(), sandbox.Caller{Owner: "uid:0", Admin: true}, r.Template, r.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// build builds to the end, which must be a good one.
func (w *world) build(c sandbox.Caller, name string, p Plan) Record {
	w.t.Helper()
	r := w.ended(w.begin(c, name, p))
	if r.Status != Ready {
		w.t.Fatalf("build of %s: %+v", name, r.Reason)
	}
	return r
}

// commands returns what ran since the last call.
func (w *world) commands() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.ran
	w.ran = nil
	return out
}

func runs(commands ...string) (steps []Step) {
	for _, c := range commands {
		steps = append(steps, Step{Type: "RUN", Args: []string{c}})
	}
	return steps
}

// guest is a sandbox's, in which commands succeed unless the world says
// otherwise.
type guest struct{ w *world }

func (g guest) Run(ctx context.Context, cmd Command, out func([]byte)) (Exit, error) {
	if cmd.Shell == "" {
		return Exit{Code: exitMade}, nil // one of our scripts
	}
	g.w.mu.Lock()
	g.w.ran = append(g.w.ran, cmd.Shell)
	run := g.w.run
	g.w.mu.Unlock()
	if out != nil {
		out([]byte("out of " + cmd.Shell + "\n"))
	}
	if run != nil {
		return run(ctx, cmd.Shell)
	}
	return Exit{}, nil
}

func (g guest) Extract(_ context.Context, _, _ string, tar io.Reader) error {
	_, err := io.Copy(io.Discard, tar)
	return err
}

func (g guest) Close() {}

// Image implements Images.
func (w *world) Image(_ context.Context, q ImageQuery, progress func(string)) (string, error) {
	progress("pulling " + q.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulled = append(w.pulled, q)
	return q.Name + "@sha256:" + strings.Repeat("a", 64), nil
}

// The Manager.

func (w *world) Create(_ context.Context, c sandbox.Caller, spec sandbox.Spec, _ sandbox.SecretValues) (*sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.create != nil {
		if err := w.create(spec); err != nil {
			return nil, err
		}
	}
	if _, ok := w.snapshots[spec.Snapshot]; !ok && spec.Snapshot != "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "snapshot %s: gone", spec.Snapshot)
	}
	w.n++
	sb := &sandbox.Sandbox{ID: fmt.Sprintf("sb_%d", w.n), Owner: c.Owner, Spec: spec, State: sandbox.StateRunning}
	w.instances[sb.ID] = sb
	w.most = max(w.most, len(w.instances))
	return sb, nil
}

func (w *world) List(context.Context, sandbox.Caller, sandbox.Filter) ([]*sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.instances)), nil
}

func (w *world) Remove(_ context.Context, _ sandbox.Caller, id string, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.instances, id)
	return nil
}

func (w *world) Dial(context.Context, sandbox.Caller, string, int) (net.Conn, error) {
	return nil, errors.New("there is none to dial")
}

func (w *world) NetLog(_ context.Context, _ sandbox.Caller, _ string, _ sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	for _, r := range w.denied {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Snapshot(_ context.Context, c sandbox.Caller, id string) (sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	snap := sandbox.Snapshot{ID: fmt.Sprintf("sn_%020d", w.n), Owner: c.Owner, Image: w.instances[id].Spec.Image, Size: 1000}
	w.snapshots[snap.ID] = snap
	return snap, nil
}

func (w *world) GetSnapshot(_ context.Context, _ sandbox.Caller, id string) (sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	snap, ok := w.snapshots[id]
	if !ok {
		return snap, sandbox.Errorf(sandbox.NotFound, "snapshot %s: gone", id)
	}
	return snap, nil
}

func (w *world) SnapshotDepth(string) int { return 0 }

func (w *world) Snapshots(context.Context, sandbox.Caller) ([]sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.snapshots)), nil
}

func (w *world) RemoveSnapshot(_ context.Context, _ sandbox.Caller, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.snapshots, id)
	return nil
}

// memory is the Store's, which outlives a Service.
type memory struct {
	templates map[string]Template
	builds    map[string]Record
	tags      map[[2]string]Tag
	cache     map[string]Cached
}

func (w *world) locked(f func(m memory)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.db)
	return nil
}

func all[K comparable, V any](w *world, m map[K]V) ([]V, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(m)), nil
}

func (w *world) PutTemplate(_ context.Context, t Template) error {
	return w.locked(func(m memory) { m.templates[t.ID] = t })
}

func (w *world) Templates(context.Context) ([]Template, error) { return all(w, w.db.templates) }

func (w *world) DeleteTemplate(_ context.Context, id string) error {
	return w.locked(func(m memory) {
		delete(m.templates, id)
		maps.DeleteFunc(m.builds, func(_ string, r Record) bool { return r.Template == id })
		maps.DeleteFunc(m.tags, func(k [2]string, _ Tag) bool { return k[0] == id })
	})
}

func (w *world) PutBuild(_ context.Context, r Record) error {
	return w.locked(func(m memory) { m.builds[r.ID] = r.clone() })
}

func (w *world) Builds(context.Context) ([]Record, error) { return all(w, w.db.builds) }

func (w *world) DeleteBuild(_ context.Context, id string) error {
	return w.locked(func(m memory) { delete(m.builds, id) })
}

func (w *world) PutTag(_ context.Context, t Tag) error {
	return w.locked(func(m memory) { m.tags[[2]string{t.Template, t.Name}] = t })
}

func (w *world) DeleteTag(_ context.Context, template, name string) error {
	return w.locked(func(m memory) { delete(m.tags, [2]string{template, name}) })
}

func (w *world) Tags(context.Context) ([]Tag, error) { return all(w, w.db.tags) }

func (w *world) PutCached(_ context.Context, c Cached) error {
	return w.locked(func(m memory) { m.cache[c.Key] = c })
}

func (w *world) Cache(context.Context) ([]Cached, error) { return all(w, w.db.cache) }

func (w *world) DeleteCached(_ context.Context, key string) error {
	return w.locked(func(m memory) { delete(m.cache, key) })
}
