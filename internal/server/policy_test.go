package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// netManager has one sandbox, "web" of uid:N or of key:full, which reaches
// nothing but has a policy and records.
type netManager struct {
	server.Manager
	mu      sync.Mutex
	owner   string
	spec    sandbox.Spec
	values  sandbox.SecretValues
	records []netlog.Record
	asked   []sandbox.NetLogOptions
	before  func()        // SetNetwork looks at the policy
	fail    error         // of NetLog, after the records
	more    chan struct{} // a follower gets one more record for each
}

func (m *netManager) Published(string) []sandbox.PortState { return nil }

func (m *netManager) find(c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ref != "web" && ref != "sb_web" || c.Owner != m.owner {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", ref)
	}
	return &sandbox.Sandbox{ID: "sb_web", Owner: c.Owner, Spec: m.spec.Clone(), State: sandbox.StateRunning}, nil
}

func (m *netManager) Create(_ context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error) {
	m.mu.Lock()
	m.owner, m.spec, m.values = c.Owner, spec, values
	m.mu.Unlock()
	return m.find(c, "web")
}

func (m *netManager) Get(_ context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	return m.find(c, ref)
}

func (m *netManager) Policy(_ context.Context, c sandbox.Caller, ref string) (policy.Policy, error) {
	sb, err := m.find(c, ref)
	if err != nil || sb.Spec.Policy == nil {
		return policy.Policy{}, err
	}
	return *sb.Spec.Policy, nil
}

func (m *netManager) SetPolicy(_ context.Context, c sandbox.Caller, ref string, p policy.Policy) (*sandbox.Sandbox, error) {
	if _, err := m.find(c, ref); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.spec.Policy = &p
	m.mu.Unlock()
	return m.find(c, ref)
}

// SetNetwork is SetPolicy, where nobody else was first.
func (m *netManager) SetNetwork(ctx context.Context, c sandbox.Caller, ref string, ch sandbox.NetworkChange) (*sandbox.Sandbox, error) {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		before()
	}
	p, err := m.Policy(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	set, err := policy.Compile(p, nil)
	if err != nil || ch.If != "" && ch.If != set.Revision() {
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox web: its policy has changed meanwhile")
	}
	if ch.Add {
		if ch.Policy, err = policy.Add(p, ch.Policy); err != nil {
			return nil, err
		}
	}
	return m.SetPolicy(ctx, c, ref, ch.Policy)
}

func (m *netManager) NetUse(_ context.Context, c sandbox.Caller, ref string) (sandbox.NetUse, error) {
	if _, err := m.find(c, ref); err != nil {
		return sandbox.NetUse{}, err
	}
	return sandbox.NetUse{Connections: 3, Counters: []sandbox.NetCounter{
		{Protocol: "https", Verdict: netlog.Allow, Count: 7, Sent: 11, Received: 13},
		{Protocol: "dns", Verdict: netlog.Deny, Code: "not_allowed", Count: 2},
	}}, nil
}

func (m *netManager) NetLog(ctx context.Context, c sandbox.Caller, ref string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	if _, err := m.find(c, ref); err != nil {
		return err
	}
	m.mu.Lock()
	m.asked = append(m.asked, o)
	m.mu.Unlock()
	seq := o.After
	for _, rec := range m.records {
		if rec.Seq <= o.After || o.Denied && rec.Verdict != netlog.Deny {
			continue
		}
		seq = rec.Seq
		if err := yield(rec); err != nil {
			return err
		}
	}
	for o.Follow {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, ok := <-m.more:
			if !ok {
				return m.fail
			}
			seq++
			if err := yield(netlog.Record{Seq: seq, Verdict: netlog.Allow, Protocol: "tcp"}); err != nil {
				return err
			}
		}
	}
	return m.fail
}

// serveManager serves m on a unix socket.
func serveManager(t *testing.T, m server.Manager, o server.Options) *world {
	t.Helper()
	o.Manager = m
	s := server.New(o)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := s.Unix(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done; s.Close() })
	return &world{Daemon: &servertest.Daemon{Socket: socket}}
}

func netWorld(t *testing.T) (*world, *netManager) {
	t.Helper()
	m := &netManager{more: make(chan struct{})}
	return serveManager(t, m, server.Options{}), m
}

func TestCreateWithNetwork(t *testing.T) {
	rule := func(host string) policy.Rule { return policy.Rule{Hosts: []string{host}} }
	tests := []struct {
		name, body string
		network    string
		want       *policy.Policy
		secrets    []string
		values     sandbox.SecretValues
	}{
		{name: "none", body: `{}`},
		{name: "null", body: `{"policy":null}`},
		{name: "off", body: `{"network":"off"}`, network: "off"},
		{name: "on", body: `{"network":"on"}`, network: "on", want: &policy.Policy{Default: "public"}},
		{name: "policy", body: `{"policy":{"rules":[{"hosts":["a.example"]}]}}`, network: "policy", want: &policy.Policy{Rules: []policy.Rule{rule("a.example")}}},
		{
			name: "on-with-rules", body: `{"network":"on","policy":{"rules":[{"hosts":["a.example"]}]}}`,
			network: "on", want: &policy.Policy{Default: "public", Rules: []policy.Rule{rule("a.example")}},
		},
		{
			name:    "secrets",
			body:    `{"policy":{"rules":[{"hosts":["a.example"],"secrets":[{"name":"A","header":"X-A"},{"name":"B","header":"X-B"}]}]},"secrets":[{"name":"A"},{"name":"B","value":"hunter2"}]}`,
			network: "policy",
			want: &policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}, Secrets: []policy.Secret{
				{Name: "A", Header: "X-A"}, {Name: "B", Header: "X-B"},
			}}}},
			secrets: []string{"A", "B"}, values: sandbox.SecretValues{"B": "hunter2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, m := netWorld(t)
			resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: tt.body})
			if resp.StatusCode != 201 {
				t.Fatalf("create = %d %s", resp.StatusCode, body)
			}
			got := []any{m.spec.Network, m.spec.Policy, m.spec.Secrets, m.values}
			if diff := cmp.Diff([]any{tt.network, tt.want, tt.secrets, tt.values}, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if strings.Contains(body, "hunter2") || tt.secrets != nil && !strings.Contains(body, `"secrets":["A","B"]`) {
				t.Errorf("the answer is %s", body)
			}
		})
	}
}

func TestCreateRefusesNetworks(t *testing.T) {
	long := `{"secrets":[` + strings.TrimSuffix(strings.Repeat(`{"name":"A"},`, 65), ",") + `]}`
	tests := []struct{ name, body, want, hint string }{
		{"unknown", `{"network":"host"}`, "network", "off, on or policy"},
		{"off-with-policy", `{"network":"off","policy":{}}`, "can't go with a policy", ""},
		{"policy-without", `{"network":"policy"}`, "there is no policy", ""},
		{"on-and-deny", `{"network":"on","policy":{"default":"deny"}}`, "default is deny", ""},
		{"field", `{"policy":{"ruels":[]}}`, "ruels", ""},
		{"field-of-a-rule", `{"policy":{"rules":[{"hosts":["a.example"],"prot":"tcp"}]}}`, "prot", ""},
		{"spelling", `{"Policy":{"rules":[]}}`, `no field "Policy"`, ""},
		{"port", `{"policy":{"rules":[{"hosts":["a.example"]},{"hosts":["a.example"],"ports":["0"]}]}}`, "rules[1].ports", ""},
		{"two", `{"policy":{"rules":[{"hosts":["*"]},{"hosts":["a.example"],"ports":["0"]}]}}`, "rules[0].hosts", ""},
		{"not-given", `{"policy":{"rules":[{"hosts":["a.example"],"secrets":[{"name":"A","header":"X-A"}]}]}}`, "A", "--secret A"},
		{"no-place", `{"network":"on","secrets":[{"name":"A","value":"hunter2"}]}`, "no rule has a place for it", "header: Authorization"},
		{"no-network", `{"secrets":[{"name":"OPENAI_API_KEY","value":"hunter2"}]}`, "no rule has a place", "--allow openai"},
		{"empty-value", `{"network":"on","secrets":[{"name":"A","value":""}]}`, "its value is empty", ""},
		{"bad-name", `{"network":"on","secrets":[{"name":"hunter2 hunter2"}]}`, "none that can be", ""},
		{"twice", `{"network":"on","secrets":[{"name":"A","value":"x"},{"name":"A","value":"y"}]}`, "A is there twice", ""},
		{"many", long, "more than 64", ""},
		{"value-type", `{"secrets":[{"name":"A","value":["hunter2"]}]}`, "can't be a JSON array", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, m := netWorld(t)
			resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: tt.body})
			var e api.Error
			if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode != 400 || e.Code != "invalid" {
				t.Fatalf("create = %d %s, want 400", resp.StatusCode, body)
			}
			if !strings.Contains(e.Message, tt.want) || !strings.Contains(e.Hint, tt.hint) || strings.Contains(body, "hunter2") {
				t.Errorf("error = %+v, want %q and hint %q", e, tt.want, tt.hint)
			}
			if m.owner != "" {
				t.Error("it was created all the same")
			}
		})
	}
}

func TestPolicy(t *testing.T) {
	w, m := netWorld(t)
	if resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"policy":{"rules":[{"id":"a","hosts":["a.example"]}]}}`}); resp.StatusCode != 201 {
		t.Fatalf("create = %d %s", resp.StatusCode, body)
	}
	const path = "/v1/sandboxes/web/policy"
	if resp, body := w.do(t, request{method: "GET", path: path}); resp.StatusCode != 200 || strings.TrimSpace(body) != `{"rules":[{"id":"a","hosts":["a.example"]}]}` {
		t.Errorf("get = %d %s", resp.StatusCode, body)
	}
	yaml := map[string]string{"Content-Type": "application/yaml"}
	for _, q := range []request{
		{body: `{"rules":[{"id":"b","hosts":["b.example"],"ports":[443]}]}`},
		{body: "rules:\n  - {id: b, hosts: [b.example], ports: [443]}\n", header: yaml},
	} {
		q.method, q.path = "PUT", path
		m.spec.Policy = nil
		if resp, body := w.do(t, q); resp.StatusCode != 200 || !strings.Contains(body, `"id":"sb_web"`) {
			t.Errorf("put = %d %s", resp.StatusCode, body)
		}
		want := &policy.Policy{Rules: []policy.Rule{{ID: "b", Hosts: []string{"b.example"}, Ports: []string{"443"}}}}
		if diff := cmp.Diff(want, m.spec.Policy); diff != "" {
			t.Errorf("policy (-want +got):\n%s", diff)
		}
	}
	set := m.spec.Policy
	for name, q := range map[string]request{
		"unknown-field": {body: `{"rulez":[]}`},
		"mistake":       {body: `{"rules":[{"hosts":[]}]}`},
		"type":          {body: `{}`, header: map[string]string{"Content-Type": "text/plain"}},
		"empty":         {header: yaml},
		"not-yaml":      {body: "a: [", header: yaml},
		"large":         {body: `{"rules":[{"id":"` + strings.Repeat("a", 1<<20) + `"}]}`},
		"no-secret":     {body: `{"rules":[{"hosts":["a.example"],"secrets":[{"name":"A","header":"X-A"}]}]}`},
	} {
		q.method, q.path = "PUT", path
		if resp, body := w.do(t, q); resp.StatusCode != 400 {
			t.Errorf("%s: put = %d %s, want 400", name, resp.StatusCode, body)
		}
	}
	if m.spec.Policy != set {
		t.Error("a policy with a mistake was set")
	}
	if resp, body := w.do(t, request{method: "PUT", path: path + "?add=1", body: `{"rules":[{"id":"c","hosts":["c.example"]}]}`}); resp.StatusCode != 200 {
		t.Errorf("put of more = %d %s", resp.StatusCode, body)
	}
	if r := m.spec.Policy.Rules; len(r) != 2 || r[0].ID != "b" || r[1].ID != "c" {
		t.Errorf("with more the rules are %+v, want b and c", r)
	}
	for _, q := range []request{
		{method: "GET", path: "/v1/sandboxes/other/policy"},
		{method: "PUT", path: "/v1/sandboxes/other/policy", body: `{"rules":[]}`},
		{method: "POST", path: "/v1/sandboxes/other/policy/test", body: `{"request":"GET https://a.example/"}`},
		{method: "GET", path: "/v1/sandboxes/other/netlog"},
	} {
		if resp, body := w.do(t, q); resp.StatusCode != 404 {
			t.Errorf("%s %s = %d %s, want 404", q.method, q.path, resp.StatusCode, body)
		}
	}
}

func TestPolicyTest(t *testing.T) {
	w, m := netWorld(t)
	if resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{
		"policy":{"rules":[{"id":"a","hosts":["a.example"],"matches":[{"methods":["GET"]}],"secrets":[{"name":"A","header":"X-A"}]}]},
		"secrets":[{"name":"A","value":"hunter2"}]}`}); resp.StatusCode != 201 {
		t.Fatalf("create = %d %s", resp.StatusCode, body)
	}
	before := m.spec.Clone()
	for _, tt := range []struct {
		request string
		allowed bool
		code    string
		rule    string
		secrets []string
	}{
		{"GET https://a.example/x?y=z", true, "", "a", []string{"A"}},
		{"POST https://a.example/x", false, "request_refused", "", nil},
		{"GET https://evil.example/", false, "not_allowed", "", nil},
		{"dns:a.example", true, "", "a", nil},
		{"tcp://10.0.0.1:22", false, "closed_address", "", nil},
	} {
		b, _ := json.Marshal(api.PolicyTestRequest{Request: tt.request})
		resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes/web/policy/test", body: string(b)})
		var got api.PolicyVerdict
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", tt.request, resp.StatusCode, body)
		}
		if got.Allowed != tt.allowed || got.Code != tt.code || tt.rule != "" && got.Rule != tt.rule || !cmp.Equal(got.Secrets, tt.secrets) || got.Reason == "" || len(got.Steps) == 0 {
			t.Errorf("%s: %s", tt.request, body)
		}
		if strings.Contains(body, "hunter2") {
			t.Errorf("%s: the answer holds a value", tt.request)
		}
	}
	for _, bad := range []string{`{"request":""}`, `{"request":"GET ://"}`, `{"request":"GET /path"}`, `{}`, `{"requests":"x"}`} {
		if resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes/web/policy/test", body: bad}); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s, want 400", bad, resp.StatusCode, body)
		}
	}
	if diff := cmp.Diff(before, m.spec); diff != "" {
		t.Errorf("a test changed the sandbox:\n%s", diff)
	}
}

func TestPresets(t *testing.T) {
	w, _ := netWorld(t)
	resp, body := w.do(t, request{method: "GET", path: "/v1/policy/presets"})
	var got []api.PolicyPreset
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 200 || len(got) == 0 {
		t.Fatalf("presets = %d %s", resp.StatusCode, body)
	}
	for _, p := range got {
		if p.Name == "" || p.Summary == "" || len(p.Opens) == 0 || len(p.Rules) != len(p.Opens) {
			t.Errorf("preset %+v lacks something", p)
		}
	}
	if resp, _ := w.do(t, request{method: "GET", path: "/v1/policy/presets?name=npm"}); resp.StatusCode != 400 {
		t.Errorf("an unknown parameter = %d, want 400", resp.StatusCode)
	}
}

func TestNetLog(t *testing.T) {
	w, m := netWorld(t)
	w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"network":"on"}`})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m.records = []netlog.Record{
		{Seq: 1, Time: at, Sandbox: "sb_web", Verdict: netlog.Allow, Protocol: "https", Host: "a.example", Method: "GET", Path: "/\x1b[2J", Status: 200},
		{Seq: 2, Time: at, Sandbox: "sb_web", Verdict: netlog.Deny, Code: "not_allowed", Protocol: "dns", Host: "b.example"},
	}
	for query, want := range map[string]string{"": "1 2", "?denied=1": "2", "?after=1": "2", "?after=2": "", "?denied=0&after=0": "1 2"} {
		resp, body := w.do(t, request{method: "GET", path: "/v1/sandboxes/web/netlog" + query})
		var got []string
		for line := range strings.Lines(body) {
			var rec api.NetRecord
			if err := json.Unmarshal([]byte(line), &rec); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(rec.Seq))
		}
		if resp.StatusCode != 200 || strings.Join(got, " ") != want || resp.Header.Get("Content-Type") != "application/jsonl" {
			t.Errorf("netlog%s = %d %s, want %s", query, resp.StatusCode, body, want)
		}
	}
	for _, query := range []string{"?after=x", "?after=-1", "?after=1&after=2", "?denied=yes", "?follow=2", "?limit=1"} {
		if resp, body := w.do(t, request{method: "GET", path: "/v1/sandboxes/web/netlog" + query}); resp.StatusCode != 400 {
			t.Errorf("netlog%s = %d %s, want 400", query, resp.StatusCode, body)
		}
	}
}

// TestNetLogCutShort holds that half a stream is not taken for a whole one.
func TestNetLogCutShort(t *testing.T) {
	w, m := netWorld(t)
	w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"network":"on"}`})
	m.fail = errors.New("the disk is on fire")
	if resp, body := w.do(t, request{method: "GET", path: "/v1/sandboxes/web/netlog"}); resp.StatusCode != 500 || strings.Contains(body, "fire") {
		t.Errorf("an error at once = %d %s", resp.StatusCode, body)
	}
	m.records = []netlog.Record{{Seq: 1, Verdict: netlog.Allow}}
	for range 5000 { // more than is held back
		m.records = append(m.records, m.records[0])
	}
	resp := w.open(t, "/v1/sandboxes/web/netlog")
	sc := bufio.NewScanner(resp.Body)
	n := 0
	for sc.Scan() {
		n++
	}
	if sc.Err() == nil || n == 0 {
		t.Errorf("an error later ended the stream after %d lines as if it were whole", n)
	}
}

func TestFollowNetLog(t *testing.T) {
	w, m := netWorld(t)
	w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"network":"on"}`})
	m.records = []netlog.Record{{Seq: 1, Verdict: netlog.Allow}}
	resp := w.open(t, "/v1/sandboxes/web/netlog?follow=1")
	sc := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if i > 0 {
			m.more <- struct{}{}
		}
		if !sc.Scan() || !strings.HasPrefix(sc.Text(), fmt.Sprintf(`{"seq":%d,`, i+1)) {
			t.Fatalf("line %d is %q, %v", i+1, sc.Text(), sc.Err())
		}
	}
	close(m.more) // the sandbox is gone
	if sc.Scan() || sc.Err() != nil {
		t.Errorf("at the end: %q, %v", sc.Text(), sc.Err())
	}
}

// open sends a request whose answer is read as it comes.
func (w *world) open(t *testing.T, path string) *http.Response {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.Socket)
	}}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://unix"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close(); tr.CloseIdleConnections() })
	return resp
}
