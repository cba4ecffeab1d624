package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/mcp"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/pod/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// fakePods has what was spawned, and each says what said has for it.
type fakePods struct {
	mu      sync.Mutex
	spawned []service.Spawn
	own     []string
	said    map[string][]string // entries, by the pod's name
	status  string
	failed  string
	waits   bool // for a pod that never says anything
}

func (f *fakePods) view(q service.Spawn) service.Pod {
	return service.Pod{
		Pod:    record.Pod{Name: q.Name, Parent: "lead", Token: "t", Allow: q.Scope, State: record.Live},
		Status: f.status, Liveness: wire.Alive,
	}
}

func (f *fakePods) Spawn(_ context.Context, q service.Spawn) (service.Pod, []string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.Scope[0].Target == "/etc" {
		return service.Pod{}, nil, sandbox.Errorf(sandbox.Denied, "requested scope `/etc` is not within spawner `lead`'s effective scope").
			WithHint("the nearest that would be within is read:/workspace")
	}
	f.spawned = append(f.spawned, q)
	return f.view(q), []string{"vim (pid 7)"}[:btoi(q.EndHolders)], nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *fakePods) Own(context.Context) ([]string, error) { return f.own, nil }

func (f *fakePods) List(context.Context) (out []service.Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.spawned {
		out = append(out, f.view(q))
	}
	return out, nil
}

func (f *fakePods) Get(ctx context.Context, name string) (service.Pod, error) {
	list, _ := f.List(ctx)
	i := slices.IndexFunc(list, func(p service.Pod) bool { return p.Name == name })
	if i < 0 {
		return service.Pod{}, sandbox.Errorf(sandbox.NotFound, "no spawned pod named `%s`", name).WithHint("carboy pod ls")
	}
	return list[i], nil
}

func (f *fakePods) Send(ctx context.Context, name, message string) error {
	if _, err := f.Get(ctx, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said[name] = append(f.said[name], "did "+message+"\n")
	return nil
}

func (f *fakePods) Output(ctx context.Context, name string, from int, wait bool) (service.Output, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wait && f.waits {
		<-ctx.Done()
		return service.Output{}, context.Cause(ctx)
	}
	said := f.said[name]
	return service.Output{Text: strings.Join(said[min(from, len(said)):], ""), Next: len(said), Status: f.status, Failed: f.failed}, nil
}

func (f *fakePods) Stop(ctx context.Context, name string) ([]scope.Rule, error) {
	p, err := f.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spawned = slices.DeleteFunc(f.spawned, func(q service.Spawn) bool { return q.Name == name })
	return p.Allow, nil
}

// world is a client of the tools of a sandbox with fake pods.
type world struct {
	t *testing.T
	*sdk.ClientSession
	pods  *fakePods
	notes []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pods: &fakePods{said: map[string][]string{}, status: wire.StatusIdle}}
	s := httptest.NewServer(tools.Handler(tools.Options{Pods: w.pods, Note: func(text string) { w.notes = append(w.notes, text) }}))
	t.Cleanup(s.Close)
	var err error
	w.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.URL, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// call calls a tool with arguments in JSON. What failed begins with "! ".
func (w *world) call(tool, args string) string {
	w.t.Helper()
	r, err := w.CallTool(w.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		return "! " + err.Error()
	}
	text := r.Content[0].(*sdk.TextContent).Text
	if r.IsError {
		text = "! " + text
	}
	return text
}

// TestTools: a model spawns a pod, gives it work, reads what it says, each once, and stops it; each start and end is in the sandbox's log.
func TestTools(t *testing.T) {
	w := newWorld(t)
	w.pods.said["writer"] = []string{"hello\n"}
	for _, step := range []struct{ tool, args, want string }{
		{"ListPods", `{}`, "no spawned pods"},
		{"SpawnPod", `{"name":"writer","task":"x","scope":[{"target":"docs","permission":"write"}],"command":["agent","{}"],"end_writers":true}`, "spawned pod `writer`; delegated scope: write:docs\nended vim (pid 7)"},
		{"ListPods", `{}`, "1 pod(s) known\nwriter [alive] idle parent=lead scope=write:docs\n"},
		{"ReadPodOutput", `{"name":"writer"}`, "pod `writer` idle: 1 new line(s) of assistant text\nhello\n"},
		{"ReadPodOutput", `{"name":"writer"}`, "pod `writer` idle; no new assistant text"},
		{"SendToPod", `{"name":"writer","message":"more"}`, "sent message to `writer`"},
		{"ReadPodOutput", `{"name":"writer","wait_seconds":5}`, "pod `writer` idle: 1 new line(s) of assistant text\ndid more\n"},
		{"StopPod", `{"name":"writer"}`, "stopped pod `writer`; reclaimed scope: write:docs"},
		{"StopPod", `{"name":"writer"}`, "! no spawned pod named `writer`"},
		{"SendToPod", `{"name":"stranger","message":"x"}`, "! no spawned pod named `stranger`"},
	} {
		if got := w.call(step.tool, step.args); got != step.want {
			t.Errorf("%s %s: %q, want %q", step.tool, step.args, got, step.want)
		}
	}
	if got := w.call("SpawnPod", `{"name":"w","task":"x","scope":[{"target":"/etc","permission":"write"}],"command":["a"]}`); got !=
		"! requested scope `/etc` is not within spawner `lead`'s effective scope\nhint: the nearest that would be within is read:/workspace" {
		t.Errorf("too much: %q", got)
	}
	if got := strings.Join(w.notes, "|"); got != "by its tools: spawned pod `writer`; delegated scope: write:docs\nended vim (pid 7)|by its tools: stopped pod `writer`; reclaimed scope: write:docs" {
		t.Errorf("the log has %q", got)
	}
}

// TestSpawnInput: what a model asks for is asked for as it says, and what makes no sense is refused before anything is done.
func TestSpawnInput(t *testing.T) {
	const begin = `{"name":"w","task":"x","scope":[{"target":"docs","permission":"write"}]`
	for _, tt := range []struct {
		name, more, refused string
		check               func(q service.Spawn) any
		want                any
	}{
		{"own command", ``, "", func(q service.Spawn) any { return q.Command }, []string{"claude", "-p", "{}"}},
		{"command", `,"command":["a"]`, "", func(q service.Spawn) any { return q.Command }, []string{"a"}},
		{"limits", `,"cpus":0.5,"memory_mb":64,"pids":9,"ttl_seconds":60`, "", func(q service.Spawn) any {
			return fmt.Sprint(q.Limits.CPUs, q.Limits.Memory>>20, q.Limits.PIDs, q.TTL)
		}, "0.5 64 9 1m0s"},
		{"spawns", `,"may_spawn":3`, "", func(q service.Spawn) any { return fmt.Sprint(q.MaySpawn, q.Budget.Pods) }, "true 3"},
		{"network", `,"network":"parent"`, "", func(q service.Spawn) any { return fmt.Sprint(q.Network, q.Policy == nil) }, "true true"},
		{"rules", `,"allow":["example.com"],"secrets":["KEY"]`, "", func(q service.Spawn) any {
			return fmt.Sprint(q.Network, q.Policy.Rules[0].Hosts, q.Secrets)
		}, "false [example.com] [KEY]"},
		{"both", `,"network":"parent","allow":["example.com"]`, "off, or parent and no allow", nil, nil},
		{"another network", `,"network":"host"`, "off, or parent", nil, nil},
		{"no host", `,"allow":["exa mple"]`, "allow", nil, nil},
		{"service", `,"allow":["service:git"]`, "services are offered to one sandbox", nil, nil},
		{"secrets alone", `,"secrets":["KEY"]`, "without allow", nil, nil},
		{"permission", `,"scope":[{"target":"docs","permission":"own"}]`, "own", nil, nil},
		{"memory", `,"memory_mb":-1`, "no amount of memory", nil, nil},
		{"much memory", `,"memory_mb":1099511627776`, "no amount of memory", nil, nil},
		{"much time", `,"ttl_seconds":10000000000000`, "ttl_seconds", nil, nil},
		{"unknown", `,"root":true`, "root", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pods.own = []string{"claude", "-p", "{}"}
			got := w.call("SpawnPod", begin+tt.more+"}")
			if tt.refused != "" {
				if !strings.HasPrefix(got, "! ") || !strings.Contains(got, tt.refused) || len(w.pods.spawned) > 0 {
					t.Errorf("%q, and %d were spawned", got, len(w.pods.spawned))
				}
				return
			}
			if len(w.pods.spawned) != 1 {
				t.Fatalf("nothing was spawned: %q", got)
			}
			if d := cmp.Diff(tt.want, tt.check(w.pods.spawned[0])); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
	w := newWorld(t)
	if got := w.call("SpawnPod", begin+"}"); !strings.HasPrefix(got, "! command: it is missing") {
		t.Errorf("without a command: %q", got)
	}
}

// TestLongOutput: what a pod said is told in pieces, each once, with all control characters shown.
func TestLongOutput(t *testing.T) {
	w := newWorld(t)
	w.call("SpawnPod", `{"name":"w","task":"x","scope":[{"target":"docs","permission":"write"}],"command":["a"]}`)
	all := strings.Repeat("0123456789abcde\n", 10_000) + "\x1b[2J\n"
	w.pods.said["w"] = []string{all}
	var got strings.Builder
	for range 20 {
		text := w.call("ReadPodOutput", `{"name":"w"}`)
		head, rest, _ := strings.Cut(text, "\n")
		if len(text) > mcp.MaxResult {
			t.Fatalf("%d bytes at once", len(text))
		}
		if strings.Contains(head, "no new assistant text") {
			break
		}
		got.WriteString(rest)
	}
	if want := strings.ReplaceAll(all, "\x1b", `\x1b`); got.String() != want {
		t.Errorf("of %d bytes %d were told", len(want), got.Len())
	}
}

// TestWaits: a wait ends in time, and a turn that did not go well is told.
func TestWaits(t *testing.T) {
	w := newWorld(t)
	w.call("SpawnPod", `{"name":"w","task":"x","scope":[{"target":"docs","permission":"write"}],"command":["a"]}`)
	w.pods.waits, w.pods.status = true, wire.StatusRunning
	if got := w.call("ReadPodOutput", `{"name":"w","wait_seconds":1}`); got != "pod `w` running; no new assistant text" {
		t.Errorf("a wait: %q", got)
	}
	w.pods.waits, w.pods.status, w.pods.failed = false, wire.StatusIdle, "its command ended with 3: oh"
	if got := w.call("ReadPodOutput", `{"name":"w","wait_seconds":1}`); !strings.HasSuffix(got, "its newest task did not go well: its command ended with 3: oh\n") {
		t.Errorf("failed: %q", got)
	}
}

// TestManySpawns: a model that spawns and stops without end is held up.
func TestManySpawns(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		got := w.call("SpawnPod", fmt.Sprintf(`{"name":"w-%d","task":"x","scope":[{"target":"docs","permission":"write"}],"command":["a"]}`, i))
		if strings.Contains(got, "too many pods were spawned") {
			return
		}
	}
	t.Error("200 were spawned at once")
}
