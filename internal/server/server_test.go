package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

const domain = "boxes.example"

// world is a daemon with three keys.
type world struct {
	*servertest.Daemon
	full, other, reader string // keys: all scopes, another owner's, one that reads
	bare                string // the first one's owner's, without the host's own programs
	shared              string // a directory of the host that full may name
	seen                chan *http.Request
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{shared: t.TempDir(), seen: make(chan *http.Request, 100)}
	var file bytes.Buffer
	add := func(id, more string) string {
		secret, hash, err := key.New(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&file, `{"id":%q,"hash":%q%s}`+"\n", id, hash, more)
		return secret
	}
	w.full = add("full", fmt.Sprintf(`,"host_image":true,"paths":[%q]`, w.shared))
	w.other = add("other", `,"host_image":true`)
	w.reader = add("reader", `,"owner":"key:full","scopes":["read"]`)
	w.bare = add("bare", `,"owner":"key:full"`)
	keys, err := key.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	g := servertest.NewGuest()
	echo := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.seen <- r
		rw.Header().Set("Carboy-Notice", "forged")
		rw.Header().Set("Carboy-Error", "internal")
		fmt.Fprintf(rw, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	})
	g.Agent, g.Ports = echo, echo
	g.Programs["true"] = func(context.Context, *servertest.Process) *guestv1.Exit { return &guestv1.Exit{} }
	w.Daemon = servertest.New(t, g, server.Options{Tenants: auth.Tenants{Keys: keys}, Domain: domain, Hosts: []string{"carboy.example"}})
	return w
}

// request is one request to a world. Over the unix socket where tcp is not set.
type request struct {
	tcp                bool
	method, path, body string
	host               string
	header             map[string]string
}

func (w *world) do(t *testing.T, q request) (*http.Response, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		if q.tcp {
			return d.DialContext(ctx, "tcp", strings.TrimPrefix(w.URL, "http://"))
		}
		return d.DialContext(ctx, "unix", w.Socket)
	}}
	base := "http://unix"
	if q.tcp {
		base = w.URL
	}
	req, err := http.NewRequestWithContext(t.Context(), q.method, base+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	if q.host != "" {
		req.Host = q.host
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// create makes a sandbox with a key and returns its record.
func (w *world) create(t *testing.T, secret string) *sandbox.Sandbox {
	t.Helper()
	resp, body := w.do(t, request{tcp: true, method: "POST", path: "/v1/sandboxes", body: `{}`, header: map[string]string{"X-API-KEY": secret}})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("create = %d %s", resp.StatusCode, body)
	}
	var v api.Sandbox
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	sb, err := w.Manager.Get(t.Context(), sandbox.Caller{Admin: true}, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(body, sb.Token) {
		t.Error("the answer holds the guest's token")
	}
	return sb
}

// restricted makes a sandbox that asks for a token on its ports too.
func (w *world) restricted(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return w.make(t, sandbox.Traffic{Restricted: true})
}

func (w *world) make(t *testing.T, traffic sandbox.Traffic) *sandbox.Sandbox {
	t.Helper()
	sb, err := w.Manager.Create(t.Context(), sandbox.Caller{Owner: "key:full"}, sandbox.Spec{Traffic: traffic}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{
		"name":"web","limits":{"cpus":1,"memory":536870912},"env":{"TOKEN":"hunter2","A":"b"},
		"labels":{"app":"x"},"ttl_ms":60000,"on_expiry":"remove"}`})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("create = %d %s", resp.StatusCode, body)
	}
	if strings.Contains(body, "hunter2") {
		t.Error("the answer holds the value of a variable")
	}
	var got api.Sandbox
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := api.Sandbox{
		ID: got.ID, Name: "web", Owner: fmt.Sprintf("uid:%d", os.Getuid()), State: "running",
		Isolation: "gvisor", IsolationAsked: "gvisor", IsolationReason: got.IsolationReason, Image: "host", User: "user", Network: "off",
		Workspace: api.Workspace{Mode: "private"}, Mounts: []api.Mount{},
		Limits: api.Limits{CPUs: 1, Memory: 512 << 20, PIDs: 1024, Disk: 8 << 30, Inodes: 1_000_000},
		Env:    []string{"A", "TOKEN"}, Labels: map[string]string{"app": "x"}, TTLMillis: 60000, OnExpiry: "remove",
		Enforced: got.Enforced, CreatedAt: got.CreatedAt, StartedAt: got.StartedAt,
		ExpiresAt: got.StartedAt.Add(time.Minute), Starts: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandbox (-want +got):\n%s", diff)
	}
	if len(got.Enforced) == 0 || got.StartedAt.IsZero() {
		t.Errorf("sandbox = %+v, want what was enforced, and when it started", got)
	}
	for name, bad := range map[string]string{
		"unknown": `{"nmae":"x"}`, "network": `{"network":"on"}`, "ttl": `{"ttl_ms":-1}`, "taken": `{"name":"web"}`,
		"expiry": `{"on_expiry":"explode"}`, "cpus": `{"limits":{"cpus":999}}`, "pids": `{"limits":{"pids":-5}}`,
		"rw-without-source": `{"workspace":{"mode":"rw"}}`, "relative": `{"workspace":{"source":"x"}}`,
	} {
		resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: bad})
		var e api.Error
		if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode < 400 || resp.StatusCode == 500 || e.Message == "" {
			t.Errorf("%s: %d %s, want an error that says why", name, resp.StatusCode, body)
		}
	}
	if _, body := w.do(t, request{method: "GET", path: "/v1/sandboxes"}); count(t, body) != 1 {
		t.Errorf("refused creates left something: %s", body)
	}
}

func TestParameters(t *testing.T) {
	w := newWorld(t)
	for name := range map[string]int{"a": 0, "b": 1} {
		w.do(t, request{method: "POST", path: "/v1/sandboxes", body: fmt.Sprintf(`{"name":%q,"labels":{"n":%q,"all":"1"}}`, name, name)})
	}
	for path, want := range map[string]int{
		"": 2, "?label=n=a": 1, "?label=n=a&label=all=1": 1, "?label=n=c": 0, "?state=running": 2, "?state=stopped": 0, "?state=stopped&state=running": 2,
	} {
		if _, body := w.do(t, request{method: "GET", path: "/v1/sandboxes" + path}); count(t, body) != want {
			t.Errorf("list %s = %s, want %d", path, body, want)
		}
	}
	for _, c := range [][2]string{
		{"GET", "/v1/sandboxes?label=n"},
		{"GET", "/v1/sandboxes?label=n=a&label=n=b"},
		{"GET", "/v1/sandboxes?state=dead"},
		{"GET", "/v1/sandboxes?limit=1"},
		{"GET", "/v1/sandboxes?a;b"},
		{"DELETE", "/v1/sandboxes/a?force=yes"},
		{"DELETE", "/v1/sandboxes/a?force=1&force=0"},
		{"GET", "/v1/sandboxes/a/events?follow=2"},
		{"GET", "/v1/sandboxes/a/changes?contents=1"},
	} {
		if resp, body := w.do(t, request{method: c[0], path: c[1]}); resp.StatusCode != 400 {
			t.Errorf("%s %s = %d %s, want 400", c[0], c[1], resp.StatusCode, body)
		}
	}
	if resp, _ := w.do(t, request{method: "DELETE", path: "/v1/sandboxes/a"}); resp.StatusCode != 409 {
		t.Errorf("delete of a running one = %d, want 409", resp.StatusCode)
	}
	if resp, _ := w.do(t, request{method: "PUT", path: "/v1/nope"}); resp.StatusCode != 404 {
		t.Errorf("a path that is not = %d, want 404", resp.StatusCode)
	}
}
