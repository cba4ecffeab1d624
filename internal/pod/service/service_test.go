package service_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/pod/boxed"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

const owner = "uid:1000"

var ann = sandbox.Caller{Owner: owner}

// fakeSandboxes are sandboxes of which only what can be written to is real. Nothing runs in them.
type fakeSandboxes struct {
	mu      sync.Mutex
	all     map[string]*sandbox.Sandbox // by ID
	created int
	busy    map[string]bool // names of sandboxes whose workspace is in use
	full    bool            // no other can be created
	away    bool            // their records are not read yet
}

func (f *fakeSandboxes) add(name string, w sandbox.Workspace) *sandbox.Sandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created++
	sb := &sandbox.Sandbox{
		ID: fmt.Sprintf("sb_%d", f.created), Owner: owner, State: sandbox.StateStopped, Backend: sandbox.WallGVisor,
		Spec: sandbox.Spec{Name: name, Image: "host", User: "user", Workspace: w, Limits: sandbox.Limits{CPUs: 2, Memory: 1 << 30, PIDs: 100, Disk: 1 << 30, Inodes: 1000}},
	}
	f.all[sb.ID] = sb
	return sb
}

var errAway = sandbox.Errorf(sandbox.Unavailable, "the daemon is starting")

func (f *fakeSandboxes) find(ref string) (*sandbox.Sandbox, error) {
	if f.away {
		return nil, errAway
	}
	for _, sb := range f.all {
		if sb.ID == ref || sb.Spec.Name == ref {
			return sb, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", ref)
}

func (f *fakeSandboxes) Create(_ context.Context, _ sandbox.Caller, spec sandbox.Spec, _ sandbox.SecretValues) (*sandbox.Sandbox, error) {
	if f.full {
		return nil, sandbox.Errorf(sandbox.Exhausted, "there is no room")
	}
	if _, err := f.Get(context.Background(), ann, spec.Name); err == nil {
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", spec.Name)
	}
	sb := f.add(spec.Name, spec.Workspace)
	f.mu.Lock()
	defer f.mu.Unlock()
	sb.Spec, sb.Backend = spec, spec.Isolation // what runs in it has ended at once
	return sb.Clone(), nil
}

func (f *fakeSandboxes) Get(_ context.Context, _ sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sb, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	return sb.Clone(), nil
}

func (f *fakeSandboxes) List(_ context.Context, _ sandbox.Caller, filter sandbox.Filter) (out []*sandbox.Sandbox, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errAway
	}
	for _, sb := range f.all {
		if sb.Spec.Labels[boxed.Label] == filter.Labels[boxed.Label] {
			out = append(out, sb.Clone())
		}
	}
	return out, nil
}

func (f *fakeSandboxes) Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	return f.Get(ctx, c, ref)
}

func (f *fakeSandboxes) Remove(_ context.Context, _ sandbox.Caller, ref string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sb, err := f.find(ref)
	if err == nil {
		delete(f.all, sb.ID)
	}
	return err
}

func (f *fakeSandboxes) Delegate(_ context.Context, _ sandbox.Caller, ref string, d sandbox.Delegation) ([]sandbox.Writer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sb, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	var ended []sandbox.Writer
	if f.busy[sb.Spec.Name] && d.Access.Locks(sb.Access) {
		if !d.EndWriters {
			return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is in use", sb.Spec.Name)
		}
		ended = append(ended, sandbox.Writer{PID: 7, Program: "vim", Path: "/workspace/docs/a"})
		delete(f.busy, sb.Spec.Name)
	}
	sb.Access, sb.Delegated = d.Access, d.Held
	return ended, nil
}

func (f *fakeSandboxes) Dial(context.Context, sandbox.Caller, string, int) (net.Conn, error) {
	return nil, errors.New("nothing runs there")
}

func (f *fakeSandboxes) VolumeUsers(id string) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sb := range f.all {
		if sb.Spec.Workspace.Volume == id {
			out = append(out, sb.Spec.Name)
		}
	}
	return out
}

// access is what each sandbox can't write to, by name.
func (f *fakeSandboxes) access() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for _, sb := range f.all {
		out[sb.Spec.Name] = sb.Access.String()
	}
	return out
}

// fakeVolumes has directories, files and links: what is at a path.
type fakeVolumes map[string]string

func (v fakeVolumes) Look(_ context.Context, _, _, rel string) (kind, link string, err error) {
	is, ok := v[rel]
	if !ok {
		return "", "", sandbox.Errorf(sandbox.NotFound, "%s is not there", rel)
	}
	if link, ok := strings.CutPrefix(is, "-> "); ok {
		return "symlink", link, nil
	}
	return is, "", nil
}

type world struct {
	boxes *fakeSandboxes
	store *storetest.Memory
	dir   string
	*service.Service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{boxes: &fakeSandboxes{all: map[string]*sandbox.Sandbox{}, busy: map[string]bool{}}, store: new(storetest.Memory), dir: t.TempDir()}
	w.boxes.add("lead", sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: "vol_a", VolumeName: "crate"})
	w.boxes.add("plain", sandbox.Workspace{Mode: sandbox.WorkspacePrivate})
	w.boot(t)
	return w
}

// boot is the next daemon.
func (w *world) boot(t *testing.T) {
	t.Helper()
	if w.Service != nil {
		w.Service.Close()
	}
	w.Service = service.New(service.Options{
		Store: w.store, Sandboxes: w.boxes, Dir: w.dir,
		Volumes: fakeVolumes{"docs": "directory", "src": "directory", "src/x": "directory", "a": "file", "out": "-> /etc", "in": "-> src/x"},
	})
	if err := w.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Service.Close)
}

// spawn spawns a pod whose command can't be started: there is no guest. The pod stays.
func (w *world) spawn(t *testing.T, parent, name, target string) {
	t.Helper()
	_, _, err := w.Spawn(t.Context(), ann, request(parent, name, target))
	if err == nil || !strings.Contains(err.Error(), "the pod remains registered") {
		t.Fatalf("spawn %s: %v", name, err)
	}
}

func request(parent, name, target string) service.Spawn {
	return service.Spawn{
		Parent: parent, Name: name, Task: "go", Command: []string{"true"},
		Scope: []scope.Rule{{Target: target, Permission: scope.Write, Recursive: true}},
	}
}

// listing is what there is, in words.
func (w *world) listing(t *testing.T) string {
	t.Helper()
	list, err := w.List(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%s<%s %s %v", p.Name, p.Parent, p.Liveness, p.Writable))
	}
	return strings.Join(out, "; ")
}

// TestTree: what a pod is given its parent can't write, down to grandchildren, and has back when it is stopped; a daemon between any two
// steps changes nothing.
func TestTree(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWorld(t)
		check := func(when string, want map[string]string, listing string) {
			t.Helper()
			if restarts {
				w.boot(t)
			}
			want["plain"] = ""
			if d := cmp.Diff(want, w.boxes.access()); d != "" {
				t.Errorf("%s: (-want +got)\n%s", when, d)
			}
			if got := w.listing(t); got != listing {
				t.Errorf("%s: there are %s", when, got)
			}
		}
		check("before", map[string]string{"lead": ""}, "")
		w.spawn(t, "lead", "docs", "docs")
		check("a child", map[string]string{"lead": "docs", "docs": "all, not docs"}, "docs<lead alive [/workspace/docs]; lead< alive [/workspace]")
		w.spawn(t, "lead", "src", "/workspace/src")
		w.spawn(t, "src", "deep", "in")
		check("a grandchild", map[string]string{"lead": "docs, src", "docs": "all, not docs", "src": "all, not src, src/x", "deep": "all, not src/x"},
			"deep<src alive [/workspace/src/x]; docs<lead alive [/workspace/docs]; lead< alive [/workspace]; src<lead alive [/workspace/src]")
		rules, err := w.Stop(t.Context(), ann, "src")
		if err != nil || service.Summary("src", rules) != "stopped pod `src`; reclaimed scope: write:/workspace/src" {
			t.Errorf("stop: %q, %v", service.Summary("src", rules), err)
		}
		check("its parent was stopped", map[string]string{"lead": "docs, src/x", "docs": "all, not docs", "deep": "all, not src/x"},
			"deep<lead alive [/workspace/src/x]; docs<lead alive [/workspace/docs]; lead< alive [/workspace]")
		if err := w.boxes.Remove(context.Background(), ann, "deep", true); err != nil {
			t.Fatal(err)
		}
		lead := "docs, src/x" // nobody has looked
		if restarts {
			lead = "docs"
		}
		check("its sandbox was removed", map[string]string{"lead": lead, "docs": "all, not docs"},
			"deep<lead gone []; docs<lead alive [/workspace/docs]; lead< alive [/workspace]")
		check("that was noticed", map[string]string{"lead": "docs", "docs": "all, not docs"}, "docs<lead alive [/workspace/docs]; lead< alive [/workspace]")
		if _, err := w.Stop(t.Context(), ann, "docs"); err != nil {
			t.Error(err)
		}
		check("all were stopped", map[string]string{"lead": ""}, "")
	}
}

// TestRefusals: what can't be given is refused with the reason, and all is as before.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "docs", "docs")
	before, list := w.boxes.access(), w.listing(t)
	for name, tt := range map[string]struct {
		change func(q *service.Spawn)
		want   string
	}{
		"outside":        {func(q *service.Spawn) { q.Scope[0].Target = "/etc" }, "requested scope `/etc` is not within spawner `lead`'s effective scope"},
		"up and out":     {func(q *service.Spawn) { q.Scope[0].Target = "src/../../etc" }, "requested scope `/etc` is not within"},
		"a link out":     {func(q *service.Spawn) { q.Scope[0].Target = "out" }, "not within"},
		"a sibling has":  {func(q *service.Spawn) { q.Scope[0].Target = "docs" }, "requested scope `/workspace/docs` is not within spawner `lead`'s effective scope: pod `docs` has write:/workspace/docs"},
		"all":            {func(q *service.Spawn) { q.Scope[0].Target = "." }, "not within"},
		"not there":      {func(q *service.Spawn) { q.Scope[0].Target = "new" }, "there is no such directory"},
		"a file":         {func(q *service.Spawn) { q.Scope[0].Target = "a" }, "it is no directory"},
		"not recursive":  {func(q *service.Spawn) { q.Scope[0].Recursive = false }, "a wall can't hold a rule to write that is not recursive"},
		"no scope":       {func(q *service.Spawn) { q.Scope = nil }, "scope must not be empty"},
		"no command":     {func(q *service.Spawn) { q.Command = nil }, "a pod needs a command"},
		"a bad name":     {func(q *service.Spawn) { q.Name = "../x" }, "is no name for a pod"},
		"its own name":   {func(q *service.Spawn) { q.Name = "lead" }, "spawned pod name `lead` collides with spawner's own name"},
		"a taken name":   {func(q *service.Spawn) { q.Name = "docs" }, "pod name `docs` is already registered"},
		"another's name": {func(q *service.Spawn) { q.Name = "plain" }, "sandbox plain: the name is taken"},
		"no parent":      {func(q *service.Spawn) { q.Parent = "nobody" }, "sandbox nobody: not found"},
		"no volume":      {func(q *service.Spawn) { q.Parent = "plain" }, "pods share a volume, and its workspace is none"},
		"a weaker wall":  {func(q *service.Spawn) { q.Isolation = sandbox.WallProcess }, "is weaker than gvisor"},
		"more memory":    {func(q *service.Spawn) { q.Limits.Memory = 2 << 30 }, "memory: 2147483648, where the parent has 1073741824"},
	} {
		q := request("lead", "other", "src")
		tt.change(&q)
		if _, _, err := w.Spawn(t.Context(), ann, q); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(before, w.boxes.access()); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
		if got := w.listing(t); got != list {
			t.Errorf("%s: there are %s", name, got)
		}
	}
	for name, err := range map[string]error{
		"stop a sandbox":  second(w.Stop(t.Context(), ann, "lead")),
		"stop nobody":     second(w.Stop(t.Context(), ann, "nobody")),
		"send to nobody":  w.Send(t.Context(), ann, "nobody", "x"),
		"another's":       second(w.Get(t.Context(), sandbox.Caller{Owner: "uid:7"}, "docs")),
		"output of none":  second(w.Output(t.Context(), ann, "nobody", 0, false)),
		"send to its top": w.Send(t.Context(), ann, "lead", "x"),
	} {
		if err == nil {
			t.Errorf("%s went well", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestUndone: a spawn that fails leaves its parent a sandbox as it was, where that had no other pods.
func TestUndone(t *testing.T) {
	w := newWorld(t)
	w.boxes.busy["lead"] = true
	if _, _, err := w.Spawn(t.Context(), ann, request("lead", "docs", "docs")); err == nil || !strings.Contains(err.Error(), "its workspace is in use") {
		t.Errorf("a parent that works there: %v", err)
	}
	w.boxes.full = true
	q := request("lead", "docs", "docs")
	q.EndHolders = true
	_, ended, err := w.Spawn(t.Context(), ann, q)
	if sandbox.KindOf(err) != sandbox.Exhausted || !slices.Equal(ended, []string{"vim (pid 7), which has /workspace/docs/a open for writing"}) {
		t.Errorf("where there is no room: ended %q, %v", ended, err)
	}
	if got := w.listing(t); got != "" {
		t.Errorf("there are %s", got)
	}
	if d := cmp.Diff(map[string]string{"lead": "", "plain": ""}, w.boxes.access()); d != "" {
		t.Error(d)
	}
	sb, err := w.boxes.Get(context.Background(), ann, "lead")
	if err != nil || sb.Delegated {
		t.Errorf("its workspace is still held: %v", err)
	}
}

// TestGiven: a child has nothing of its parent's that it was not given.
func TestGiven(t *testing.T) {
	w := newWorld(t)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	p, err := policy.Parse([]byte(`{"version":1,"rules":[{"hosts":["example.com"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range w.boxes.all {
		sb.Spec.Env, sb.Spec.Mounts = map[string]string{"TOKEN": "secret"}, []sandbox.Mount{{Target: "/data", Own: true}}
		sb.Spec.Network, sb.Spec.Policy, sb.ExpiresAt = sandbox.NetworkPolicy, &p, until
	}
	w.spawn(t, "lead", "off", "docs")
	q := request("lead", "on", "src")
	q.Network, q.Env, q.Limits.Memory = true, map[string]string{"A": "b"}, 1<<20
	if _, _, err := w.Spawn(t.Context(), ann, q); err == nil {
		t.Error("nothing runs there, and it was confirmed")
	}
	specs := map[string]sandbox.Spec{}
	for _, sb := range w.boxes.all {
		specs[sb.Spec.Name] = sb.Spec
	}
	off, on := specs["off"], specs["on"]
	if off.Network != sandbox.NetworkOff || off.Policy != nil || len(off.Mounts)+len(on.Mounts) > 0 || off.Limits.Memory != 1<<30 || off.TTL <= 0 || off.TTL > time.Hour {
		t.Errorf("without a network it is %+v", off)
	}
	if on.Network != sandbox.NetworkPolicy || on.Policy == nil || on.Limits.Memory != 1<<20 || on.OnExpiry != sandbox.OnExpiryRemove {
		t.Errorf("with one it is %+v", on)
	}
	want := map[string]string{
		"A": "b", boxed.EnvName: "on", boxed.EnvParent: "lead", boxed.EnvScope: `[{"target":"/workspace/src","permission":"write","recursive":true}]`,
	}
	if !maps.Equal(on.Env, want) {
		t.Errorf("its variables are %q", on.Env)
	}
}
