package template_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// snapshotSize is what each step of a world's builds leads to, in bytes.
const snapshotSize = 10

// world is a service over sandboxes that are names and no more.
type world struct {
	*template.Service
	t    *testing.T
	opts template.Options

	mu        sync.Mutex
	now       time.Time
	instances map[string]sandbox.Spec
	snaps     map[string]sandbox.Snapshot
	ran       []string                 // what was run
	blocks    map[string]chan struct{} // commands that end when it is closed, whatever their context says
	begun     chan string              // those that have begun
	cut       chan string              // those whose context ended
}

func newWorld(t *testing.T, edit func(*template.Options)) *world {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w := &world{
		t: t, now: time.Unix(1e9, 0), instances: map[string]sandbox.Spec{}, snaps: map[string]sandbox.Snapshot{},
		blocks: map[string]chan struct{}{}, begun: make(chan string, 10), cut: make(chan string, 10),
	}
	w.opts = template.Options{Store: db.Templates(), Manager: w, Guest: w.guest, Dir: t.TempDir(), Now: w.clock}
	if edit != nil {
		edit(&w.opts)
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	s, err := template.New(w.opts)
	if err == nil {
		err = s.Open(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.Service = s
	w.t.Cleanup(s.Close)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) Create(_ context.Context, _ sandbox.Caller, spec sandbox.Spec, _ sandbox.SecretValues) (*sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if spec.Snapshot != "" {
		if _, ok := w.snaps[spec.Snapshot]; !ok {
			return nil, sandbox.Errorf(sandbox.NotFound, "snapshot %s: not found", spec.Snapshot)
		}
	}
	id, err := sandbox.NewID(rand.Reader)
	w.instances[id] = spec
	return &sandbox.Sandbox{ID: id, Spec: spec}, err
}

func (w *world) List(context.Context, sandbox.Caller, sandbox.Filter) ([]*sandbox.Sandbox, error) {
	return nil, nil
}

func (w *world) Remove(_ context.Context, _ sandbox.Caller, ref string, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.instances, ref)
	return nil
}

func (w *world) Dial(context.Context, sandbox.Caller, string, int) (net.Conn, error) {
	return nil, errors.New("there is no network")
}

func (w *world) NetLog(context.Context, sandbox.Caller, string, sandbox.NetLogOptions, func(netlog.Record) error) error {
	return nil
}

func (w *world) Snapshot(_ context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.depthLocked(w.instances[ref].Snapshot) >= sandbox.MaxSnapshotChain {
		return sandbox.Snapshot{}, sandbox.Errorf(sandbox.Exhausted, "it lies over too many")
	}
	id, err := sandbox.NewSnapshotID(rand.Reader)
	snap := sandbox.Snapshot{ID: id, Owner: c.Owner, Image: "host", Parent: w.instances[ref].Snapshot, Size: snapshotSize}
	w.snaps[id] = snap
	return snap, err
}

func (w *world) SnapshotDepth(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.depthLocked(id)
}

func (w *world) depthLocked(id string) (n int) {
	for ; id != ""; id = w.snaps[id].Parent {
		n++
	}
	return n
}

func (w *world) GetSnapshot(_ context.Context, _ sandbox.Caller, id string) (sandbox.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if snap, ok := w.snaps[id]; ok {
		return snap, nil
	}
	return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "snapshot %s: not found", id)
}

func (w *world) Snapshots(context.Context, sandbox.Caller) (all []sandbox.Snapshot, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, snap := range w.snaps {
		all = append(all, snap)
	}
	return all, nil
}

func (w *world) RemoveSnapshot(_ context.Context, _ sandbox.Caller, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.snaps, id)
	return nil
}

func (w *world) guest(func(context.Context) (net.Conn, error)) template.Guest { return inside{w} }

// inside is the guest of every sandbox.
type inside struct{ w *world }

func (g inside) Run(ctx context.Context, cmd template.Command, _ func([]byte)) (template.Exit, error) {
	g.w.mu.Lock()
	g.w.ran = append(g.w.ran, cmd.Shell)
	block := g.w.blocks[cmd.Shell]
	g.w.mu.Unlock()
	if block != nil {
		g.w.begun <- cmd.Shell
		stop := context.AfterFunc(ctx, func() { g.w.cut <- cmd.Shell })
		defer stop()
		<-block
	}
	return template.Exit{}, ctx.Err()
}

func (g inside) Extract(_ context.Context, _, _ string, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func (g inside) Close() {}

var (
	alice = sandbox.Caller{Owner: "key:alice"}
	bob   = sandbox.Caller{Owner: "key:bob"}
)

// request asks for a build.
func (w *world) request(c sandbox.Caller, name string) template.Record {
	w.t.Helper()
	_, r, err := w.Request(w.t.Context(), c, template.Request{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func runs(force bool, commands ...string) template.Plan {
	p := template.Plan{HostImage: true, Force: force}
	for _, c := range commands {
		p.Steps = append(p.Steps, template.Step{Type: "RUN", Args: []string{c}})
	}
	return p
}

// build carries a build to its end.
func (w *world) build(c sandbox.Caller, name string, p template.Plan) template.Record {
	w.t.Helper()
	r := w.request(c, name)
	if err := w.Start(w.t.Context(), c, name, r.ID, p); err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience.For(10 * time.Second)); ; {
		now, err := w.Build(w.t.Context(), c, name, r.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		if now.Status == template.Ready || now.Status == template.Failed {
			if err := w.Cancel(w.t.Context(), c, name, r.ID); err != nil { // waits until it has ended
				w.t.Fatal(err)
			}
			return now
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the build does not end")
		}
	}
}

// live counts the snapshots that there are.
func (w *world) live() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.snaps)
}

// A build that begins while its template is being deleted ends with it, and
// takes nothing else along.
func TestDeleteMeetsABuildThatBegins(t *testing.T) {
	w := newWorld(t, func(o *template.Options) { o.PerOwner = 2 })
	w.blocks["one"], w.blocks["two"] = make(chan struct{}), make(chan struct{})
	one, two := w.request(alice, "web"), w.request(alice, "web")
	if err := w.Start(t.Context(), alice, "web", one.ID, runs(false, "one")); err != nil {
		t.Fatal(err)
	}
	<-w.begun
	deleted := make(chan error, 1)
	go func() { deleted <- w.Delete(t.Context(), alice, "web") }()
	<-w.cut
	if err := w.Start(t.Context(), alice, "web", two.ID, runs(false, "two")); err != nil {
		t.Fatal(err)
	}
	<-w.begun
	close(w.blocks["one"])
	if got := <-w.cut; got != "two" {
		t.Errorf("%s was cut", got)
	}
	close(w.blocks["two"])
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if all, err := w.List2(alice); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
	if r := w.build(alice, "web", runs(false, "three")); r.Status != template.Ready {
		t.Errorf("a later build: %+v", r.Reason)
	}
}

// List2 is the service's List: the world's own is the Manager's.
func (w *world) List2(c sandbox.Caller) ([]template.Info, error) {
	return w.Service.List(w.t.Context(), c)
}

// What earlier builds of a template wrote goes once their tags lead elsewhere,
// but not before whoever was about to start from it had the time to.
func TestRebuildsGiveSpaceBack(t *testing.T) {
	w := newWorld(t, nil)
	for range 5 {
		if r := w.build(alice, "web", runs(true, "one", "two")); r.Status != template.Ready {
			t.Fatalf("%+v", r.Reason)
		}
	}
	w.sweep()
	if n := w.live(); n != 10 {
		t.Errorf("%d snapshots at once, want all 10: creates may be about to start from them", n)
	}
	w.build(alice, "other", runs(false, "three"))
	w.sweep()
	w.pass(2 * time.Hour)
	w.sweep()
	if n := w.live(); n != 3 {
		t.Errorf("%d snapshots are left, want the 2 of the newest build and 1 of another", n)
	}
	b, err := w.Resolve(t.Context(), alice, "web")
	if _, gerr := w.GetSnapshot(t.Context(), alice, b.Snapshot); err != nil || gerr != nil {
		t.Errorf("the newest build: %v, %v", err, gerr)
	}
	if err := w.Delete(t.Context(), alice, "web"); err != nil {
		t.Fatal(err)
	}
	if n := w.live(); n != 3 {
		t.Errorf("%d snapshots after the template went, want those of cached steps, 3", n)
	}
	w.pass(31 * 24 * time.Hour)
	w.sweep()
	w.pass(2 * time.Hour)
	w.sweep()
	for _, snap := range w.snaps {
		if snap.Owner == "template:"+alice.Owner && snap.ID != tagged(w, "other") {
			t.Errorf("%s is kept after a month", snap.ID)
		}
	}
}

func (w *world) sweep() {
	w.t.Helper()
	if err := w.Sweep(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func tagged(w *world, name string) string {
	b, err := w.Resolve(w.t.Context(), alice, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return b.Snapshot
}

// What is kept for later builds has a size that it keeps to.
func TestCacheKeepsToItsSize(t *testing.T) {
	w := newWorld(t, func(o *template.Options) { o.CacheSize = 2 * snapshotSize })
	w.build(alice, "web", runs(false, "one", "two", "three", "four"))
	w.sweep()
	w.pass(2 * time.Hour)
	w.sweep()
	if n := w.live(); n > 3 {
		t.Errorf("%d snapshots are left, want 2 and perhaps the build's", n)
	}
	w.build(alice, "web", runs(false, "one", "two", "three", "four", "five"))
	if b, err := w.Resolve(t.Context(), alice, "web"); err != nil || b.Snapshot == "" {
		t.Errorf("%+v, %v", b, err)
	}
}

// Builds that are asked for and never started are not kept without end.
func TestRequestsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	r := w.build(alice, "web", runs(false, "one"))
	for range 250 {
		w.pass(time.Second)
		w.request(alice, "web")
	}
	i, err := w.Get(t.Context(), alice, "web", false)
	if err != nil || len(i.Builds) > 201 {
		t.Errorf("%d builds, %v", len(i.Builds), err)
	}
	if !slices.ContainsFunc(i.Builds, func(b template.Record) bool { return b.ID == r.ID }) {
		t.Error("the build that the tag leads to was forgotten")
	}
}

// Nobody gets what another's steps led to, nor another's archive by its hash.
func TestOwnersApart(t *testing.T) {
	w := newWorld(t, nil)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "secret", Mode: 0o644, Typeflag: tar.TypeReg}), tw.Close()); err != nil {
		t.Fatal(err)
	}
	hash := strings.Repeat("ab", 32)
	p := runs(false, "one")
	p.Steps = append(p.Steps, template.Step{Type: "COPY", Args: []string{"secret", "/srv/"}, FilesHash: hash})
	w.request(alice, "web")
	w.request(bob, "web")
	_, token, err := w.FileLink(t.Context(), alice, "", "web", hash)
	if err == nil {
		err = w.Upload(t.Context(), token, int64(b.Len()), &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Upload(t.Context(), token, 0, strings.NewReader("")); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a link's second use: %v", err)
	}
	if r := w.build(alice, "web", p); r.Status != template.Ready {
		t.Fatalf("control: %+v", r.Reason)
	}
	if present, _, err := w.FileLink(t.Context(), bob, "", "web", hash); present || err != nil {
		t.Errorf("another's archive is there for bob: %v, %v", present, err)
	}
	if r := w.build(bob, "web", p); r.Status != template.Failed || !strings.Contains(r.Reason.Message, "not uploaded") {
		t.Errorf("bob's build with alice's archive: %s, %+v", r.Status, r.Reason)
	}
	w.build(alice, "web", p)
	if want := []string{"one", "one"}; !slices.Equal(slices.DeleteFunc(w.ran, func(s string) bool { return s == "" }), want) {
		t.Errorf("ran %q, want %q: one for each owner, the last from the cache", w.ran, want)
	}
}

// dying is a store to which nothing more is written after a build is ready.
type dying struct {
	template.Store
	dead bool
}

func (d *dying) PutTag(ctx context.Context, t template.Tag) error {
	if d.dead {
		return errors.New("the daemon is dead")
	}
	return d.Store.PutTag(ctx, t)
}

// A daemon that died between a build's last record and its tags finds that out.
func TestDeathBeforeTags(t *testing.T) {
	d := &dying{dead: true}
	w := newWorld(t, func(o *template.Options) { d.Store, o.Store = o.Store, d })
	r := w.request(alice, "web")
	w.pass(time.Minute)
	if err := w.Start(t.Context(), alice, "web", r.ID, runs(false, "one")); err != nil {
		t.Fatal(err)
	}
	w.Service.Close()
	r.Status, r.Started, r.Image, r.FinishedAt = template.Ready, true, "host", w.clock()
	if err := d.Store.PutBuild(t.Context(), r); err != nil { // what the next daemon finds
		t.Fatal(err)
	}
	d.dead = false
	w.open()
	if b, err := w.Resolve(t.Context(), alice, "web"); err != nil || b.BuildID != r.ID {
		t.Errorf("%+v, %v", b, err)
	}
}

// slow is an archive of which nothing comes until it is closed.
type slow struct {
	begun chan<- struct{}
	end   <-chan struct{}
}

func (s slow) Read([]byte) (int, error) {
	s.begun <- struct{}{}
	<-s.end
	return 0, io.EOF
}

// Archives that have not come whole are not counted, so few may be on their way.
func TestArchivesComeAFewAtATime(t *testing.T) {
	w := newWorld(t, nil)
	begun, end := make(chan struct{}, 100), make(chan struct{})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { _ = w.AddFile(context.Background(), "key:alice", strings.Repeat("ab", 32), slow{begun, end}) })
	}
	for range 4 {
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.AddFile(ctx, "key:alice", strings.Repeat("ab", 32), strings.NewReader("")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	if n := len(begun); n != 0 {
		t.Errorf("%d more have begun", n)
	}
	if err := w.AddFile(t.Context(), "key:bob", strings.Repeat("ab", 32), strings.NewReader("")); err != nil {
		t.Errorf("another owner's: %v", err)
	}
	close(end)
	all.Wait()
}
