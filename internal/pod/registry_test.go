package pod_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/mirror"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/target"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// peers is a world whose sockets a test answers.
type peers struct {
	*world
	dial func(context.Context, record.Pod) (net.Conn, error)
}

func (p *peers) Dial(ctx context.Context, r record.Pod) (net.Conn, error) { return p.dial(ctx, r) }

func setUp(t *testing.T, o pod.Options) (*pod.Registry, *world) {
	t.Helper()
	w := newWorld()
	if o.Store == nil {
		o.Store = w
	}
	if o.Backend == nil {
		o.Backend = w
	}
	if o.Wall == nil {
		o.Wall = w
	}
	if o.Clock == nil {
		o.Clock = newClock()
	}
	o.Token = w.token
	r, err := pod.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, w
}

func install(t *testing.T, r *pod.Registry, name string, rules ...scope.Rule) *pod.Guard {
	t.Helper()
	g, err := r.Install(t.Context(), pod.Top{Name: name, Allow: rules, Socket: "/run/" + name + "/sock"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func request(spawner, name string, rules ...scope.Rule) pod.Request {
	return pod.Request{Spawner: spawner, Name: name, Task: "task of " + name, Allow: rules, Socket: "/run/" + spawner + "/sock"}
}

// TestGuard: closing it releases, once, and the last of several.
func TestGuard(t *testing.T) {
	r, _ := setUp(t, pod.Options{})
	g := install(t, r, "root", rw("/w"))
	if _, err := r.Install(t.Context(), pod.Top{Name: "other", Allow: []scope.Rule{rw("/w/x")}}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("beside it: %v", err)
	}
	second, err := r.Adopt(t.Context(), "root", procid.ID{PID: 9}, "s")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := r.Find("root"); !ok {
		t.Error("it is gone while another guard is open")
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := r.Find("root"); ok {
		t.Error("it is there after the last guard was closed")
	}
	other := install(t, r, "other", rw("/w/x"))
	if err := r.Release(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Errorf("a guard of what was released: %v", err)
	}
}

// TestIdempotent: what was done is done; only a release of who is not there says so.
func TestIdempotent(t *testing.T) {
	r, _ := setUp(t, pod.Options{})
	install(t, r, "root", rw("/w"))
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Fatal(err)
	}
	if err := r.Reclaim(t.Context(), "somebody", "a"); err != nil {
		t.Errorf("another's child: %v", err)
	}
	if _, ok := r.Find("a"); !ok {
		t.Error("another's reclaim took it")
	}
	for range 2 {
		if err := r.Reclaim(t.Context(), "root", "a"); err != nil {
			t.Error(err)
		}
	}
	if err := r.Release(t.Context(), "a"); sandbox.KindOf(err) != sandbox.NotFound || err.Error() != "pod `a` is not registered" {
		t.Errorf("%v", err)
	}
	if _, err := r.Adopt(t.Context(), "a", procid.ID{}, ""); err == nil || err.Error() != "pod `a` is not registered" {
		t.Errorf("%v", err)
	}
	for range 2 {
		if err := r.SetSegment(t.Context(), "root", "s1"); err != nil {
			t.Error(err)
		}
	}
	if p, ok := r.HolderOf("s1"); !ok || p.Name != "root" {
		t.Errorf("%+v", p)
	}
}

// TestUnknownIsNotGone: a pod that could not be reached stays, with its scope; one at whose
// socket nobody is goes, and so does one that stands in the way of another.
func TestUnknownIsNotGone(t *testing.T) {
	var answer error
	w := newWorld()
	p := &peers{world: w}
	p.dial = func(ctx context.Context, q record.Pod) (net.Conn, error) {
		if answer != nil {
			return nil, answer
		}
		return w.Dial(ctx, q)
	}
	r, _ := setUp(t, pod.Options{Backend: p, Store: w, Wall: w})
	install(t, r, "root", rw("/w"))
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{unix.EAGAIN, unix.EACCES, unix.EMFILE, context.DeadlineExceeded, errors.New("odd")} {
		answer = err
		if ended, rerr := r.Reap(t.Context()); len(ended) != 0 || rerr != nil {
			t.Errorf("%v: %v, %v", err, ended, rerr)
		}
	}
	answer = nil
	if ended, err := r.Reap(t.Context()); len(ended) != 0 || err != nil {
		t.Errorf("alive: %v, %v", ended, err)
	}
	if _, err := r.Spawn(t.Context(), request("root", "b", rw("/w/a/b"))); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("what a live sibling has: %v", err)
	}
	w.deaf["a"] = true
	q, err := r.Spawn(t.Context(), request("root", "b", rw("/w/a/b")))
	if err != nil || !q.Confirmed {
		t.Errorf("what a dead sibling had: %+v, %v", q, err)
	}
	if _, ok := r.Find("a"); ok {
		t.Error("the dead sibling is there")
	}
	if len(w.wrong) > 0 {
		t.Error(w.wrong)
	}
}

// TestOwnNameStale: a name of a pod that is gone can be had at once.
func TestOwnNameStale(t *testing.T) {
	r, w := setUp(t, pod.Options{})
	install(t, r, "root", rw("/w"))
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/b"))); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a name that is taken: %v", err)
	}
	w.deaf["a"] = true
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/b"))); err != nil {
		t.Error(err)
	}
}

// TestTwoSpawnsOfOneName: one of them is made, and nothing of the other is left.
func TestTwoSpawnsOfOneName(t *testing.T) {
	r, w := setUp(t, pod.Options{})
	install(t, r, "root", rw("/w"))
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = r.Spawn(t.Context(), request("root", "a", rw(fmt.Sprint("/w/", i)))) })
	}
	all.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if err.Error() != "pod name `a` is already registered" {
			t.Error(err)
		}
	}
	if made != 1 || len(w.runs) != 1 || len(w.wrong) > 0 {
		t.Errorf("%d were made, %v run; %v", made, w.runs, w.wrong)
	}
	if wrong := w.settled(r); wrong != "" {
		t.Error(wrong)
	}
}

// Test200Spawns: at once, each with its own part, and all ended again.
func Test200Spawns(t *testing.T) {
	base := filepath.Join(shortDir(t), "run")
	r, w := setUp(t, pod.Options{Base: base})
	w.crowd = true
	root := install(t, r, "root", rw("/w"))
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, err := r.Spawn(t.Context(), request("root", fmt.Sprint("p", i), rw(fmt.Sprint("/w/", i)))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	g, err := mirror.Open(t.Context(), sandbox.SystemClock{}, filepath.Join(base, mirror.PodsFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(g.Data().Allocations); n != 201 {
		t.Errorf("%d are shown", n)
	}
	g.Close()
	w.crowd = false
	w.look("all were spawned")
	if wrong := w.settled(r); wrong != "" || len(w.wrong) > 0 {
		t.Error(wrong, w.wrong)
	}
	w.crowd = true
	for i := range 200 {
		all.Go(func() {
			if err := r.Release(t.Context(), fmt.Sprint("p", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := r.Effective("root"); got.At("/w/7/x") != scope.Write || len(got.Deny) != 0 || len(w.runs) != 0 {
		t.Errorf("root has %v; %v run", got, w.runs)
	}
	if err := root.Close(); err != nil {
		t.Error(err)
	}
}

// TestResolved: what is stored is where links lead, and what leads out is not within.
func TestResolved(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "real", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := target.Open(dir, "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	r, _ := setUp(t, pod.Options{Resolver: files})
	install(t, r, "root", rw("/workspace"))
	p, err := r.Spawn(t.Context(), request("root", "a", rw("/workspace/link/x")))
	if err != nil || p.Allow[0] != rw("/workspace/real/x") {
		t.Errorf("%v, %v", p.Allow, err)
	}
	for _, out := range []string{"/workspace/out", "/workspace/../etc", "/workspace/link/../../etc"} {
		_, err := r.Spawn(t.Context(), request("root", "b", rw(out)))
		want := "requested scope `" + out + "` is not within spawner `root`'s effective scope: it leads out of the workspace"
		if sandbox.KindOf(err) != sandbox.Invalid || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := r.Install(t.Context(), pod.Top{Name: "top", Allow: []scope.Rule{rw("/workspace/out")}}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("%v", err)
	}
}

// TestMirrorCutInHalf: what stands in a mirror counts for nothing, and the next change replaces it.
func TestMirrorCutInHalf(t *testing.T) {
	base := filepath.Join(shortDir(t), "run")
	r, _ := setUp(t, pod.Options{Base: base})
	install(t, r, "root", rw("/w"))
	path := filepath.Join(base, mirror.PodsFile)
	if err := os.WriteFile(path, []byte(`{"allocations":[{"pod_na`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Fatal(err)
	}
	g, err := mirror.Open(t.Context(), sandbox.SystemClock{}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Data().Find("a") == nil || g.Data().Find("root") == nil {
		t.Errorf("%+v", g.Data())
	}
}

// TestShare: the tools' scope follows what children have, and what others change in it stays.
func TestShare(t *testing.T) {
	r, _ := setUp(t, pod.Options{})
	install(t, r, "root", rw("/w"))
	base := scope.Scope{Allow: []scope.Rule{rw("/w")}, Deny: []scope.Rule{rw("/w/a")}} // which is the same as will be given
	s := scope.NewShared(base)
	for range 2 {
		if err := r.Share(t.Context(), "root", s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Fatal(err)
	}
	s.Update(func(now scope.Scope) scope.Scope { return now.Difference(rw("/w/theirs")) })
	if _, err := r.Spawn(t.Context(), request("root", "b", rw("/w/b"))); err != nil {
		t.Fatal(err)
	}
	if s.Load().At("/w/b/x") != scope.Read || s.Load().At("/w/theirs") != scope.Read {
		t.Errorf("%v", s.Load())
	}
	for _, name := range []string{"a", "b"} {
		if err := r.Release(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Load(); got.At("/w/a/x") != scope.Read || got.At("/w/theirs") != scope.Read || got.At("/w/b/x") != scope.Write {
		t.Errorf("%v", got)
	}
}

// TestToolRefuses: what is wrong with a call, before anything is done.
func TestToolRefuses(t *testing.T) {
	r, w := setUp(t, pod.Options{})
	install(t, r, "root", rw("/w"))
	_, tool := r.Tool(pod.ToolOptions{Spawner: "root"})()
	const good = `[{"target":"/w/a","permission":"write"}]`
	for _, tt := range []struct{ input, code, want string }{
		{"not json", pod.InvalidArgument, "invalid SpawnPod input: "},
		{`{"task":"t","scope":` + good + `}`, pod.InvalidArgument, "invalid SpawnPod input: it needs a name"},
		{`{"name":"a","scope":` + good + `}`, pod.InvalidArgument, "invalid SpawnPod input: it needs a task"},
		{`{"name":"a","task":"t","scope":[],"extra":1}`, pod.InvalidArgument, "invalid SpawnPod input: "},
		{`{"name":"a","task":"t","scope":[{"target":"/w","permission":"all"}]}`, pod.InvalidArgument, "invalid SpawnPod input: "},
		{`{"name":"root","task":"t","scope":` + good + `}`, pod.InvalidArgument, "spawned pod name `root` collides with spawner's own name"},
		{`{"name":"a","task":"t","scope":[]}`, pod.InvalidArgument, "scope must not be empty"},
		{`{"name":"a","task":"t"}`, pod.InvalidArgument, "scope must not be empty"},
		{`{"name":"a","task":"t","scope":[{"target":"w","permission":"read"}]}`, pod.InvalidArgument, "scope.target must be absolute: w"},
		{`{"name":"../a","task":"t","scope":` + good + `}`, pod.InvalidArgument, `"../a" is no name for a pod`},
		{`{"name":"a","task":"t","scope":[{"target":"/etc","permission":"write"}]}`, pod.InvalidArgument, "requested scope `/etc` is not within spawner `root`'s effective scope"},
	} {
		_, err := tool.Execute(t.Context(), tt.input)
		e, ok := errors.AsType[*pod.ToolError](err)
		if !ok || e.Code != tt.code || !strings.HasPrefix(e.Message, tt.want) {
			t.Errorf("%s: %v, want %s", tt.input, err, tt.want)
		}
	}
	if len(r.All()) != 1 || len(w.runs) != 0 {
		t.Errorf("%v; %v run", r.All(), w.runs)
	}
	if out, err := tool.Execute(t.Context(), `{"name":"a","task":"t","scope":`+good+`}`); err != nil || out.Summary != "spawned pod `a` listening on a/sock" {
		t.Errorf("the control: %v, %v", out, err)
	}
	_, err := tool.Execute(t.Context(), `{"name":"b","task":"t","scope":`+good+`}`)
	if want := "pod `a` has write:/w/a; the nearest that would be within is read:/w/a"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestBroken: records that don't fit together are refused as a whole.
func TestBroken(t *testing.T) {
	w := newWorld()
	w.records["a"] = record.Pod{Name: "a", Parent: "a", State: record.Live, Allow: []scope.Rule{rw("/w")}}
	if _, err := pod.Open(t.Context(), pod.Options{Store: w, Backend: w}); sandbox.KindOf(err) != sandbox.Internal {
		t.Errorf("%v", err)
	}
}

// failing is a store and a wall that fail as often as they are told to.
type failing struct {
	*world
	writes, reads, walls int
}

var errDisk = errors.New("the disk is full")

func fails(n *int) error {
	if *n == 0 {
		return nil
	}
	*n--
	return errDisk
}

func (f *failing) ChangePods(ctx context.Context, owner string, put []record.Pod, gone []string) error {
	if err := fails(&f.writes); err != nil {
		return err
	}
	return f.world.ChangePods(ctx, owner, put, gone)
}

func (f *failing) Pods(ctx context.Context, owner string) ([]record.Pod, error) {
	if err := fails(&f.reads); err != nil {
		return nil, err
	}
	return f.world.Pods(ctx, owner)
}

func (f *failing) Enforce(ctx context.Context, p record.Pod, s scope.Scope, how pod.Enforcing) error {
	if err := fails(&f.walls); err != nil {
		return err
	}
	return f.world.Enforce(ctx, p, s, how)
}

// TestFails: what fails leaves all as it was, also where the records can't be read for a while.
func TestFails(t *testing.T) {
	w := newWorld()
	f := &failing{world: w}
	r, _ := setUp(t, pod.Options{Store: f, Wall: f, Backend: w})
	f.walls = 1
	if g, err := r.Install(t.Context(), pod.Top{Name: "root", Allow: []scope.Rule{rw("/w")}}); !errors.Is(err, errDisk) || g != nil {
		t.Errorf("the wall: %v", err)
	}
	f.writes = 1
	if _, err := r.Install(t.Context(), pod.Top{Name: "root", Allow: []scope.Rule{rw("/w")}}); !errors.Is(err, errDisk) {
		t.Errorf("the store: %v", err)
	}
	if len(r.All()) != 0 {
		t.Errorf("%v are there", r.All())
	}
	install(t, r, "root", rw("/w"))
	f.writes, f.reads = 1, 2
	for range 2 { // the second can't read what is written
		if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); !errors.Is(err, errDisk) {
			t.Errorf("store: %v", err)
		}
	}
	f.walls = 1
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "take from pod `root` what `a` is to write: ") {
		t.Errorf("the wall: %v", err)
	}
	if wrong := w.settled(r); wrong != "" || len(w.wrong) > 0 || len(w.runs) > 0 {
		t.Error(wrong, w.wrong, w.runs)
	}
	if _, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a"))); err != nil {
		t.Error(err)
	}
	f.walls = 1
	if err := r.Release(t.Context(), "a"); !errors.Is(err, errDisk) || w.can["root"].IsWritable("/w/a") {
		t.Errorf("%v; root can %v", err, w.can["root"])
	}
	if err := r.Settle(t.Context()); err != nil || !w.can["root"].IsWritable("/w/a") {
		t.Errorf("%v; root can %v", err, w.can["root"])
	}
}
