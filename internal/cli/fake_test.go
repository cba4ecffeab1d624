package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// fakeVersion is the version that the fake daemon reports.
const fakeVersion = "v9.9.9"

// created is when everything of the fake's was made.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeDaemon answers the daemon's API over a unix socket. Its sandboxes are
// directories, and commands in them are processes of the host's: no wall at
// all, but real streams, signals and terminals.
type fakeDaemon struct {
	Socket string

	// beforeChanges, if set, gets the directory of a sandbox whose changes are
	// about to be read, as something that runs in it would.
	beforeChanges func(dir string)

	dir string
	srv *http.Server
	end sync.WaitGroup

	mu      sync.Mutex
	boxes   []*fakeBox
	made    int
	create  []api.CreateRequest // all that came
	holding int
	asked   int // how often for what is used

	follows []api.Approval // what who follows questions is told

	images    []api.Image
	snapshots []api.Snapshot
	imported  string // what the last imported archive held

	secrets []fakeSecret
	keys    []api.Key
	volumes []api.Volume
	pods    []api.Pod
	said    []string // by pods
	heard   int      // how much of that was read
	fakeSessions
	fakeActions
}

// fakeBox is one sandbox.
type fakeBox struct {
	api.Sandbox
	dir      string // what is at /workspace, and the commands' directory
	manifest []byte
	net      fakeNet
	guest    *fakeGuest
	agent    http.Handler
}

// newFake starts a daemon with its socket in dir.
func newFake(dir string) (*fakeDaemon, error) {
	d := &fakeDaemon{Socket: filepath.Join(dir, "s"), dir: dir}
	l, err := net.Listen("unix", d.Socket)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	routes := map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/version":           d.version,
		"GET /v1/status":            d.status,
		"POST /v1/shutdown":         d.shutdown,
		"POST /v1/sandboxes":        d.post,
		"GET /v1/sandboxes":         d.list,
		"GET /v1/sandboxes/{id}":    d.get,
		"DELETE /v1/sandboxes/{id}": d.remove,
		"PATCH /v1/sandboxes/{id}":  d.set,

		"POST /v1/sandboxes/{id}/workspace/lock":   d.lock,
		"POST /v1/sandboxes/{id}/workspace/unlock": d.unlock,
		"GET /v1/sandboxes/{id}/processes":         d.processes,
		"GET /v1/sandboxes/{id}/held":              d.held,
		"GET /v1/sandboxes/{id}/usage":             d.usage,
		"POST /v1/sandboxes/{id}/start":            d.start,
		"POST /v1/sandboxes/{id}/stop":             d.stop,
		"POST /v1/sandboxes/{id}/finish":           d.finish,
		"GET /v1/sandboxes/{id}/hold":              d.hold,
		"GET /v1/sandboxes/{id}/events":            d.events,
		"POST /v1/sandboxes/{id}/changes":          d.changes,
		"/v1/sandboxes/{id}/guest/{rest...}":       d.toGuest,
	}
	for _, more := range []map[string]func(http.ResponseWriter, *http.Request) error{
		d.imageRoutes(), d.snapshotRoutes(), d.netRoutes(), d.keyRoutes(), d.approvalRoutes(), d.volumeRoutes(), d.podRoutes(), d.diskRoutes(), d.templateRoutes(), d.sessionRoutes(), d.actionRoutes(),
	} {
		maps.Copy(routes, more)
	}
	for pattern, h := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				writeFakeError(w, err)
			}
		})
	}
	d.srv = &http.Server{Handler: mux}
	d.end.Go(func() { _ = d.srv.Serve(l) })
	return d, nil
}

// Close ends the daemon and all that runs.
func (d *fakeDaemon) Close() {
	d.mu.Lock()
	for _, b := range d.boxes {
		b.guest.killAll()
	}
	d.mu.Unlock()
	d.endShells()
	_ = d.srv.Close()
	d.end.Wait()
}

// count returns how many sandboxes there are.
func (d *fakeDaemon) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.boxes)
}

// startFake is newFake for Go tests.
func startFake(t testing.TB) *fakeDaemon {
	t.Helper()
	d, err := newFake(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func writeFakeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		e = sandbox.Errorf(sandbox.Internal, "%v", err)
	}
	code := map[sandbox.Kind]int{sandbox.Invalid: 400, sandbox.NotFound: 404, sandbox.Conflict: 409, sandbox.Denied: 403}[e.Kind]
	if code == 0 {
		code = 500
	}
	w.Header().Set(api.HeaderError, string(e.Kind))
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(api.Error{Code: string(e.Kind), Message: e.Msg, Hint: e.Hint})
}

func answer(w http.ResponseWriter, v any) error { return json.NewEncoder(w).Encode(v) }

func (d *fakeDaemon) version(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, api.Version{Version: fakeVersion, API: api.Current})
}

func (d *fakeDaemon) status(w http.ResponseWriter, _ *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer(w, api.Status{
		Version: fakeVersion, PID: 1 << 22 /* nobody's */, Home: "/home/of/state", Socket: "/run/carboy.sock", StartedAt: created,
		Auto: true, Sandboxes: len(d.boxes), Running: len(d.boxes), Backends: []string{"gvisor"},
	})
}

func (d *fakeDaemon) shutdown(w http.ResponseWriter, _ *http.Request) error {
	d.end.Go(func() { _ = d.srv.Close() })
	return nil
}

// names of sandboxes that were given none, in order.
var names = []string{"brave-otter-0001", "calm-heron-0002", "eager-newt-0003", "fair-zebra-0004"}

func (d *fakeDaemon) post(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.URL.Query().Has("check") {
		return d.checkLocked(w, &req)
	}
	d.create = append(d.create, req)
	if req.Name == "" {
		req.Name = names[d.made%len(names)]
	}
	if d.findLocked(req.Name) != nil {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", req.Name).WithHint("carboy ls")
	}
	var of api.Sandbox
	if err := d.dressLocked(&of, req.Image); err != nil {
		return err
	}
	d.made++
	b, err := d.newBox(req)
	if err != nil {
		return err
	}
	if of.ImageDigest != "" {
		b.Image, b.ImageDigest, b.ImageConfig = of.Image, of.ImageDigest, of.ImageConfig
	}
	if up := req.SetUp; up != nil {
		is := up.Agent
		is.Command = append(slices.Clone(is.Program), up.Args...)
		b.Agent = &is
	}
	d.boxes = append(d.boxes, b)
	return answer(w, b.Sandbox)
}

func (d *fakeDaemon) newBox(req api.CreateRequest) (*fakeBox, error) {
	b := &fakeBox{dir: filepath.Join(d.dir, fmt.Sprintf("box%d", d.made))}
	b.Sandbox = api.Sandbox{
		ID: "sb_" + strings.Repeat("a", 19) + string(rune('a'+d.made)), Name: req.Name, Owner: fmt.Sprintf("uid:%d", os.Geteuid()), State: "running",
		Isolation: "gvisor", IsolationAsked: cmp.Or(req.Isolation, "gvisor"), Stronger: req.Stronger,
		Image: "host", Snapshot: req.Snapshot, User: "user", Network: "off",
		Limits: api.Limits{CPUs: 2, Memory: 2 << 30, PIDs: 1024, Disk: 8 << 30, Inodes: 1_000_000},
		Mounts: req.Mounts, Caches: req.Caches, Project: req.Project, Labels: req.Labels, TTLMillis: req.TTLMillis, Ephemeral: req.Ephemeral, ReadOnlyRoot: req.ReadOnlyRoot,
		Enforced: []api.Enforcement{
			{Promise: "memory", Enforced: true, Mechanism: "cgroup v2 memory.max"},
			{Promise: "inodes", Reason: "this kernel can't \x1b[31mcount"},
		},
		CreatedAt: created, StartedAt: created, Starts: 1, Workspace: api.Workspace{Mode: "private"},
	}
	if b.IsolationAsked != b.Isolation {
		b.IsolationReason = "process can't: no; gvisor is allowed and stronger"
	}
	b.network(&req)
	for k := range req.Env {
		b.Env = append(b.Env, k)
	}
	slices.Sort(b.Env)
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		return nil, err
	}
	if req.Workspace != nil {
		b.Workspace = *req.Workspace
		if err := b.populate(); err != nil {
			return nil, err
		}
	}
	b.guest = newFakeGuest(b.dir, req.Env)
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewExecServiceHandler(b.guest))
	mux.HandleFunc("/carboy/archive", b.archive)
	b.agent = mux
	return b, nil
}

// populate makes the copy of a copy-on-write workspace.
func (b *fakeBox) populate() error {
	if b.Workspace.Mode != "cow" {
		b.dir = cmp.Or(b.Workspace.Source, b.dir)
		return nil
	}
	if err := b.settle(); err != nil {
		return err
	}
	src, err := os.Open(b.Workspace.Source)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Open(b.dir)
	if err != nil {
		return err
	}
	defer dst.Close()
	var m bytes.Buffer
	_, err = workspace.Populate(context.Background(), src, dst, workspace.PopulateOptions{
		UID: os.Getuid(), GID: os.Getgid(), Manifest: &m,
	})
	b.manifest = m.Bytes()
	return err
}

// settle returns once the file system's clock is clearly past every change of
// the source: what changed in the very moment of the copy would count as
// changed since, and tests write their trees just before.
func (b *fakeBox) settle() error {
	const slack = 50 * time.Millisecond
	var newest time.Time
	err := filepath.WalkDir(b.Workspace.Source, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		t, err := changeTime(p)
		if t.After(newest) {
			newest = t
		}
		return err
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	probe := b.dir + ".probe"
	for err == nil {
		var now time.Time
		if err = os.WriteFile(probe, []byte("x"), 0o600); err == nil {
			now, err = changeTime(probe)
		}
		if err == nil && now.Sub(newest) > slack {
			return os.Remove(probe)
		}
		<-tick.C
	}
	return err
}

func changeTime(name string) (time.Time, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(name, &st)
	return time.Unix(st.Ctim.Unix()), err
}

func (d *fakeDaemon) findLocked(name string) *fakeBox {
	for _, b := range d.boxes {
		if b.Name == name || b.ID == name {
			return b
		}
	}
	return nil
}

// box returns the sandbox that a request is about.
func (d *fakeDaemon) box(r *http.Request) (*fakeBox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := r.PathValue("id")
	if b := d.findLocked(name); b != nil {
		return b, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", name).WithHint("carboy ls")
}

func (d *fakeDaemon) list(w http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []api.Sandbox{}
	for _, b := range d.boxes {
		match := true
		for _, l := range r.URL.Query()["label"] {
			k, v, _ := strings.Cut(l, "=")
			match = match && b.Labels[k] == v
		}
		if match {
			out = append(out, b.Sandbox)
		}
	}
	return answer(w, out)
}

func (d *fakeDaemon) get(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer(w, b.Sandbox)
}

func (d *fakeDaemon) remove(_ http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.State == "running" && r.URL.Query().Get("force") == "" {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is running", b.Name).WithHint("carboy rm -f %s", b.Name)
	}
	d.dropLocked(b)
	if b.Labels["vanishes"] != "" { // someone else was faster
		return sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", r.PathValue("id")).WithHint("carboy ls")
	}
	return nil
}

func (d *fakeDaemon) dropLocked(b *fakeBox) {
	b.guest.killAll()
	d.boxes = slices.DeleteFunc(d.boxes, func(o *fakeBox) bool { return o == b })
}

func (d *fakeDaemon) start(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.State != "running" {
		b.State, b.Ended, b.Lost = "running", "", nil
		b.Starts++
	}
	return answer(w, b.Sandbox)
}

func (d *fakeDaemon) stop(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.State == "running" {
		b.guest.killAll()
		b.State, b.Ended, b.Lost, b.EndedAt = "stopped", "stopped", []string{"processes"}, created.Add(time.Hour)
		if b.Labels["lossy"] != "" {
			b.Lost = append(b.Lost, "root changes")
		}
	}
	return answer(w, b.Sandbox)
}

func (d *fakeDaemon) finish(_ http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	var stream bytes.Buffer
	if b.Workspace.Mode == "cow" {
		if err := b.writeChanges(r.Context(), &stream, sandbox.ChangesOptions{}); err != nil {
			return err
		}
	}
	changed := false
	if stream.Len() > 0 {
		for _, err := range workspace.Read(&stream) {
			if err != nil {
				return err
			}
			changed = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !changed {
		d.dropLocked(b)
		return nil
	}
	b.guest.killAll()
	b.State, b.Ended, b.Ephemeral = "stopped", "stopped", false
	return nil
}

func (d *fakeDaemon) hold(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.box(r); err != nil {
		return err
	}
	d.mu.Lock()
	d.holding++
	d.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
	d.mu.Lock()
	d.holding--
	d.mu.Unlock()
	return nil
}

func (d *fakeDaemon) events(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.box(r); err != nil {
		return err
	}
	for _, ev := range []api.Event{
		{Time: created, Type: "created", Message: "created with gvisor"},
		{Time: created.Add(time.Second), Type: "started", Message: "evil \x1b]0;title\x07 text"},
	} {
		if err := answer(w, ev); err != nil {
			return err
		}
	}
	return nil
}
