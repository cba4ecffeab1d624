package pod_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/host"
	"github.com/carboy-sandbox/carboy/internal/pod/mirror"
	"github.com/carboy-sandbox/carboy/internal/pod/target"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
	"github.com/carboy-sandbox/carboy/test/named"
)

// spawner is what each case of the seed begins with: a runtime directory that a variable names, a
// pod root that may write below a directory, and its tool, whose children run true and end at once.
type spawner struct {
	base, allowed string
	registry      *pod.Registry
	dir           *host.Dir
	socket        string
	scope         *scope.Shared
	tool          pod.Tool
	clock         *clock
	backend       *host.Backend
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func setUpSpawner(t *testing.T) *spawner {
	t.Helper()
	env := map[string]string{
		"INSOMNIA_RUNTIME_DIR": shortDir(t), "INSOMNIA_POD_COMMAND": "true", "PATH": os.Getenv("PATH"),
		"INSOMNIA_HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere/else", // which the first one outranks
	}
	getenv := func(name string) string { return env[name] }
	base, err := host.RuntimeDir(getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	files, err := target.Open("/", "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	s := &spawner{base: base, allowed: t.TempDir(), clock: newClock(), backend: host.New(host.Options{Getenv: getenv})}
	s.registry, err = pod.Open(t.Context(), pod.Options{Store: new(storetest.Memory), Backend: s.backend, Resolver: files, Base: base, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.registry.Close)
	s.dir = host.DirOf(base, "root", "roots")
	if err := s.dir.Make(); err != nil {
		t.Fatal(err)
	}
	s.socket = s.dir.Socket()
	self, err := procid.Self()
	if err != nil {
		t.Fatal(err)
	}
	// The guard is not closed: the registration outlives the call of the tool.
	if _, err := s.registry.Install(t.Context(), pod.Top{Name: "root", Process: self, Socket: s.socket, Dir: s.dir.Path(), Allow: []scope.Rule{rw(s.allowed)}}); err != nil {
		t.Fatal(err)
	}
	writable, err := scope.Writable(s.allowed)
	if err != nil {
		t.Fatal(err)
	}
	s.scope = scope.NewShared(writable)
	var meta pod.Meta
	meta, s.tool = s.registry.Tool(pod.ToolOptions{Spawner: "root", Socket: s.socket, Cwd: s.allowed, Model: map[string]string{"model_id": "claude-test"}, Scope: s.scope})()
	if meta.Name != "SpawnPod" || !json.Valid(meta.Schema) {
		t.Errorf("%+v", meta)
	}
	return s
}

func (s *spawner) execute(t *testing.T, name, task, dir string) (pod.ToolOutput, error) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"name": name, "task": task, "scope": []map[string]string{{"target": dir, "permission": "write"}}})
	if err != nil {
		t.Fatal(err)
	}
	return s.tool.Execute(t.Context(), string(in))
}

// allocation looks a pod up as other tools do: in the file, under its lock.
func (s *spawner) allocation(t *testing.T, name string) *mirror.Allocation {
	t.Helper()
	g, err := mirror.Open(t.Context(), sandbox.SystemClock{}, filepath.Join(s.base, mirror.PodsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	return g.Data().Find(name)
}

// bindMock binds the socket where the tool will look for a pod, in a directory that it makes for it.
func bindMock(t *testing.T, base, name string) (string, net.Listener) {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), l
}

// acceptOne takes connections until one carries a method, which it answers: some are empty.
func acceptOne(t *testing.T, l net.Listener) <-chan wire.Method {
	got := make(chan wire.Method, 1)
	go func() {
		defer close(got)
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			c := wire.NewConn(raw, wire.Options{})
			m, err := c.Method()
			if err != nil {
				c.Close()
				continue
			}
			e, err := wire.NewEvent(wire.EventUserMessage, wire.UserMessage{Segments: []wire.Segment{wire.Text("accepted")}})
			if err == nil {
				err = c.Tell(e)
			}
			if err != nil {
				t.Error(err)
			}
			c.Close()
			got <- m
			return
		}
	}()
	return got
}

// TestSpawnPod holds the cases of the seed by their names.
func TestSpawnPod(t *testing.T) {
	t.Run("spawn_pod_delegates_scope_and_sends_run", delegatesScopeAndSendsRun)
	t.Run("spawn_pod_rejects_scope_outside_spawner", rejectsScopeOutsideSpawner)
	t.Run("spawn_pod_rolls_back_reservation_when_socket_never_appears", rollsBackReservation)
}

func delegatesScopeAndSendsRun(t *testing.T) {
	s := setUpSpawner(t)
	path, l := bindMock(t, s.base, "child")
	before := inodes(t, filepath.Join(s.base, "child"))
	received := acceptOne(t, l)
	file := filepath.Join(s.allowed, "a.txt")
	if !s.scope.Load().IsWritable(file) {
		t.Fatal("the spawner can't write before it has given anything")
	}
	out, err := s.execute(t, "child", "hello", s.allowed)
	if err != nil {
		t.Fatal(err)
	}
	if want := "spawned pod `child` listening on " + path; out.Summary != want {
		t.Errorf("summary %q, want %q", out.Summary, want)
	}
	m := <-received
	args, err := m.Arguments()
	if d := cmp.Diff(&wire.Run{Input: []wire.Segment{wire.Text("hello")}}, args); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if child := s.allocation(t, "child"); child == nil || child.DelegatedFrom == nil || *child.DelegatedFrom != "root" {
		t.Errorf("the child's allocation is %+v", child)
	}
	spawned, err := mirror.ReadSpawned(filepath.Join(s.dir.Path(), mirror.SpawnedFile))
	want := []mirror.Spawned{{PodName: "child", SocketPath: path, ScopeDelegated: []scope.Rule{rw(s.allowed)}, CallbackAddress: s.socket}}
	if d := cmp.Diff(want, spawned); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if got := s.scope.Load().At(file); got != scope.Read {
		t.Errorf("the spawner has %v where it delegated, want read", got)
	}
	// What a third party bound is as it was, and so it is when the pod has gone.
	if err := s.registry.Release(t.Context(), "child"); err != nil {
		t.Fatal(err)
	}
	if after := inodes(t, filepath.Join(s.base, "child")); !slices.Equal(after, before) {
		t.Errorf("the directory is %q, and was %q", after, before)
	}
	if got := s.scope.Load().At(file); got != scope.Write {
		t.Errorf("the spawner has %v after the child has gone, want write", got)
	}
	s.backend.Wait()
	s.nothingOfOurs(t, "child", "root")
}

func rejectsScopeOutsideSpawner(t *testing.T) {
	s := setUpSpawner(t)
	outside := t.TempDir()
	before := s.allocation(t, "root")
	_, err := s.execute(t, "child", "nope", outside)
	e, ok := errors.AsType[*pod.ToolError](err)
	want := "requested scope `" + outside + "` is not within spawner `root`'s effective scope"
	if !ok || e.Code != pod.InvalidArgument || !strings.Contains(e.Message, want) {
		t.Fatalf("%v, want %s", err, want)
	}
	if child := s.allocation(t, "child"); child != nil {
		t.Errorf("the child's allocation is %+v", child)
	}
	if d := cmp.Diff(before, s.allocation(t, "root")); d != "" {
		t.Errorf("the spawner's allocation changed\n%s", d)
	}
	if !s.scope.Load().IsWritable(filepath.Join(s.allowed, "a.txt")) {
		t.Error("a spawn that failed took something from the spawner")
	}
	s.nothingOfOurs(t, "root")
}

func rollsBackReservation(t *testing.T) {
	s := setUpSpawner(t)
	began := s.clock.Now()
	_, err := s.execute(t, "ghost", "will never be delivered", s.allowed)
	e, ok := errors.AsType[*pod.ToolError](err)
	want := "spawned pod socket did not appear within 10s: " + filepath.Join(s.base, "ghost", "sock")
	if !ok || e.Code != pod.ExecutionFailed || e.Message != want {
		t.Fatalf("%v, want %s", err, want)
	}
	if waited := s.clock.Now().Sub(began); waited.Seconds() != 10 {
		t.Errorf("it waited for %v", waited)
	}
	if ghost := s.allocation(t, "ghost"); ghost != nil {
		t.Errorf("the reservation is still there: %+v", ghost)
	}
	if !s.scope.Load().IsWritable(filepath.Join(s.allowed, "a.txt")) {
		t.Error("the spawner did not get its right back")
	}
	s.backend.Wait()
	s.nothingOfOurs(t, "root")
}

// nothingOfOurs wants the runtime directory to have nothing but the mirrors and these directories.
func (s *spawner) nothingOfOurs(t *testing.T, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) && !strings.HasPrefix(e.Name(), mirror.PodsFile) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// inodes are a directory and what is in it, by what they are.
func inodes(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(path)
		if err != nil {
			return err
		}
		out = append(out, strings.Join([]string{path, fi.Mode().String(), fi.ModTime().String()}, " "))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// seed are the cases of the seed's file.
var seed = []string{
	"spawn_pod_delegates_scope_and_sends_run", "spawn_pod_rejects_scope_outside_spawner",
	"spawn_pod_rolls_back_reservation_when_socket_never_appears",
}

// TestConformance: each case of the seed has its row in the table, in its order, and each test
// that a row of the document names is there.
func TestConformance(t *testing.T) {
	raw, err := os.ReadFile("../../docs/conformance/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(spawn_pod_\\w+)` \\| done \\| `internal/pod\\.TestSpawnPod/(\\w+)`(?:; .+)? \\|$").FindAllStringSubmatch(string(raw), -1) {
		cases = append(cases, row[1])
		if row[1] != row[2] || !named.Exists(t, ".", "TestSpawnPod", row[2]) {
			t.Errorf("%s: there is no test %s", row[1], row[2])
		}
	}
	if !slices.Equal(cases, seed) {
		t.Errorf("rows %q, want %q", cases, seed)
	}
	tests := regexp.MustCompile("`((?:internal|client|test)/[\\w/]+)\\.(Test\\w+)(?:/([\\w-]+))?`").FindAllStringSubmatch(string(raw), -1)
	if len(tests) < 20 {
		t.Errorf("only %d tests are named", len(tests))
	}
	for _, n := range tests {
		if !named.Exists(t, "../../"+n[1], n[2], n[3]) {
			t.Errorf("there is no test %s", n[0])
		}
	}
}
