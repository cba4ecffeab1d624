package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/key"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

const domain = "boxes.example"

// world is a daemon with three keys.
type world struct {
	*servertest.Daemon
	full, other, reader string // keys: all scopes, another owner's, one that reads
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
	w.Daemon = servertest.New(t, g, server.Options{Keys: keys, Domain: domain, Hosts: []string{"carboy.example"}})
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

// What a page in a browser could send is refused, on the API and on the way
// to guests, whoever sends it; and each such request works without the header
// that gives it away.
func TestBrowsersAreRefused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	requests := map[string]request{
		"unix-api":   {method: "GET", path: "/v1/version"},
		"tcp-api":    {tcp: true, method: "GET", path: "/v1/sandboxes", header: map[string]string{"X-API-KEY": w.full}},
		"tcp-e2b":    {tcp: true, method: "GET", path: "/sandboxes", header: map[string]string{"X-API-KEY": w.full}},
		"unix-envd":  {method: "GET", path: "/health", header: map[string]string{"E2b-Sandbox-Id": sb.ID}},
		"tcp-envd":   {tcp: true, method: "GET", path: "/health", header: map[string]string{"E2b-Sandbox-Id": sb.ID, "X-Access-Token": sb.Token}},
		"tcp-domain": {tcp: true, method: "GET", path: "/health", host: "49983-" + sb.ID + "." + domain, header: map[string]string{"X-Access-Token": sb.Token}},
	}
	giveaways := map[string]string{
		"Origin": "https://evil.example", "Referer": "https://evil.example/", "Sec-Fetch-Site": "cross-site", "Host": "evil.example",
	}
	for name, q := range requests {
		t.Run(name, func(t *testing.T) {
			if resp, body := w.do(t, q); resp.StatusCode != http.StatusOK {
				t.Fatalf("without a giveaway: %d %s", resp.StatusCode, body)
			}
			for h, v := range giveaways {
				bad := q
				bad.header = map[string]string{}
				for k, v := range q.header {
					bad.header[k] = v
				}
				if h == "Host" {
					bad.host = v
				} else {
					bad.header[h] = v
				}
				if resp, body := w.do(t, bad); resp.StatusCode != http.StatusForbidden {
					t.Errorf("with %s: %d %s, want 403", h, resp.StatusCode, body)
				}
			}
		})
	}
	// An empty Origin is one too, and so is "null".
	for _, origin := range []string{"", "null"} {
		q := requests["unix-api"]
		q.header = map[string]string{"Origin": origin}
		if resp, _ := w.do(t, q); resp.StatusCode != http.StatusForbidden {
			t.Errorf("Origin %q: %d, want 403", origin, resp.StatusCode)
		}
	}
}

func TestHosts(t *testing.T) {
	w := newWorld(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		tcp  bool
		host string
		want int
	}{
		{"address", true, "127.0.0.1:" + port, 200},
		{"localhost", true, "localhost:" + port, 200},
		{"upper-case", true, "LOCALHOST:" + port, 200},
		{"configured", true, "carboy.example", 200},
		{"domain", true, domain, 200},
		{"api-domain", true, "api." + domain, 200},
		{"other-address", true, "127.0.0.2:" + port, 403},
		{"mapped", true, "[::ffff:127.0.0.1]:" + port, 200},
		{"rebound-name", true, "localhost.evil.example", 403},
		{"below-domain", true, "x." + domain, 403},
		{"odd", true, "[::1", 403},
		{"unix", false, "unix", 200},
		{"unix-localhost", false, "localhost", 200},
		{"unix-other", false, "evil.example", 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: tt.tcp, method: "GET", path: "/v1/version", host: tt.host, header: map[string]string{"X-API-KEY": w.full}})
			if resp.StatusCode != tt.want {
				t.Errorf("host %q = %d %s, want %d", tt.host, resp.StatusCode, body, tt.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	mine := "/v1/sandboxes/" + sb.ID
	tests := []struct {
		name         string
		method, path string
		header       map[string]string
		want         int
	}{
		{"none", "GET", mine, nil, 401},
		{"wrong", "GET", mine, map[string]string{"X-API-KEY": "e2b_" + strings.Repeat("0", 40)}, 401},
		{"header", "GET", mine, map[string]string{"X-API-KEY": w.full}, 200},
		{"bearer", "GET", mine, map[string]string{"Authorization": "Bearer " + w.full}, 200},
		{"bearer-any-case", "GET", mine, map[string]string{"Authorization": "bearer " + w.full}, 200},
		{"two-keys", "GET", mine, map[string]string{"X-API-KEY": w.full, "Authorization": "Bearer " + w.other}, 401},
		{"token-is-no-key", "GET", mine, map[string]string{"X-API-KEY": sb.Token}, 401},
		{"others", "GET", mine, map[string]string{"X-API-KEY": w.other}, 404},
		{"others-delete", "DELETE", mine + "?force=1", map[string]string{"X-API-KEY": w.other}, 404},
		{"others-guest", "GET", mine + "/guest/health", map[string]string{"X-API-KEY": w.other}, 404},
		{"others-hold", "GET", mine + "/hold", map[string]string{"X-API-KEY": w.other}, 404},
		{"others-changes", "GET", mine + "/changes", map[string]string{"X-API-KEY": w.other}, 404},
		{"others-events", "GET", mine + "/events", map[string]string{"X-API-KEY": w.other}, 404},
		{"others-by-name", "GET", "/v1/sandboxes/" + sb.Spec.Name, map[string]string{"X-API-KEY": w.other}, 404},
		{"reader-reads", "GET", mine, map[string]string{"X-API-KEY": w.reader}, 200},
		{"reader-stops", "POST", mine + "/stop", map[string]string{"X-API-KEY": w.reader}, 403},
		{"reader-removes", "DELETE", mine, map[string]string{"X-API-KEY": w.reader}, 403},
		{"reader-execs", "GET", mine + "/guest/health", map[string]string{"X-API-KEY": w.reader}, 403},
		{"reader-removes-by-e2b", "DELETE", "/sandboxes/" + sb.ID, map[string]string{"X-API-KEY": w.reader}, 403},
		{"status-is-the-owners", "GET", "/v1/status", map[string]string{"X-API-KEY": w.full}, 403},
		{"shutdown-is-the-owners", "POST", "/v1/shutdown", map[string]string{"X-API-KEY": w.full}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: true, method: tt.method, path: tt.path, header: tt.header})
			if resp.StatusCode != tt.want {
				t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, resp.StatusCode, body, tt.want)
			}
		})
	}
	// The list of another owner is empty; over the unix socket one sees all.
	for path, want := range map[string]int{"/v1/sandboxes": 0, "/sandboxes": 0, "/v2/sandboxes": 0} {
		_, body := w.do(t, request{tcp: true, method: "GET", path: path, header: map[string]string{"X-API-KEY": w.other}})
		if got := count(t, body); got != want {
			t.Errorf("%s lists %d, want %d", path, got, want)
		}
		if _, body := w.do(t, request{method: "GET", path: path}); count(t, body) != 1 {
			t.Errorf("%s over the unix socket lists %s, want one", path, body)
		}
	}
}

func count(t *testing.T, body string) int {
	t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return len(list)
}

func TestHostPaths(t *testing.T) {
	w := newWorld(t)
	outside := t.TempDir()
	inside := filepath.Join(w.shared, "repo")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(w.shared, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, secret, source string
		want                 int
	}{
		{"listed", w.full, w.shared, 201},
		{"below-listed", w.full, inside, 201},
		{"not-listed", w.full, outside, 403},
		{"link-out", w.full, w.shared + "/link", 403},
		{"dots-out", w.full, w.shared + "/../..", 403},
		{"none-listed", w.other, w.shared, 403},
		{"system", w.full, "/etc", 403},
		{"over-unix", "", outside, 201},
		{"over-unix-system", "", "/etc", 403},
		{"over-unix-missing", "", outside + "/none", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := fmt.Sprintf(`{"workspace":{"source":%q}}`, tt.source)
			q := request{tcp: tt.secret != "", method: "POST", path: "/v1/sandboxes", body: body}
			if q.tcp {
				q.header = map[string]string{"X-API-KEY": tt.secret}
			}
			if resp, got := w.do(t, q); resp.StatusCode != tt.want {
				t.Errorf("create = %d %s, want %d", resp.StatusCode, got, tt.want)
			}
		})
	}
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
		Isolation: "gvisor", Image: "host", User: "user", Network: "off",
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
		{"GET", "/v1/sandboxes?label=n"}, {"GET", "/v1/sandboxes?label=n=a&label=n=b"}, {"GET", "/v1/sandboxes?state=dead"},
		{"GET", "/v1/sandboxes?limit=1"}, {"GET", "/v1/sandboxes?a;b"}, {"DELETE", "/v1/sandboxes/a?force=yes"},
		{"DELETE", "/v1/sandboxes/a?force=1&force=0"}, {"GET", "/v1/sandboxes/a/events?follow=2"}, {"GET", "/v1/sandboxes/a/changes?contents=1"},
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

// sign is E2B's signature of a link, version 1.
func sign(path, op, user, token, end string) string {
	text := path + ":" + op + ":" + user + ":" + token
	if end != "" {
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	return url.QueryEscape("v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="))
}

func TestEnvd(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	id := map[string]string{"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "49983"}
	with := func(more ...string) map[string]string {
		h := map[string]string{}
		for k, v := range id {
			h[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	token := with("X-Access-Token", sb.Token)
	far, past := "9999999999", "1000000000"
	tests := []struct {
		name         string
		tcp          bool
		method, path string
		header       map[string]string
		want         int
	}{
		{"token", true, "GET", "/files?path=/a", token, 200},
		{"no-token", true, "GET", "/files?path=/a", id, 401},
		{"wrong-token", true, "GET", "/files?path=/a", with("X-Access-Token", strings.Repeat("0", 64)), 401},
		{"empty-token", true, "GET", "/files?path=/a", with("X-Access-Token", ""), 401},
		{"a-key-is-no-token", true, "GET", "/files?path=/a", with("X-Access-Token", w.full), 401},
		{"a-key-does-not-help", true, "GET", "/files?path=/a", with("X-API-KEY", w.full), 401},
		{"owner-needs-none", false, "GET", "/files?path=/a", id, 200},
		{"rpc", true, "POST", "/process.Process/List", token, 200},
		{"unknown-sandbox", true, "GET", "/health", map[string]string{"E2b-Sandbox-Id": "sb_" + strings.Repeat("a", 20)}, 502},
		{"a-name-is-no-id", false, "GET", "/health", map[string]string{"E2b-Sandbox-Id": sb.Spec.Name}, 400},
		{"bad-port", true, "GET", "/health", with("X-Access-Token", sb.Token, "E2b-Sandbox-Port", "0x1"), 400},
		{"init", true, "POST", "/init", token, 404},
		{"init-for-the-owner", false, "POST", "/init", id, 404},
		{"init-spelt-oddly", false, "POST", "/%69nit", id, 404},
		{"init-behind-dots", false, "POST", "/files/../init", id, 404},
		{"archive", true, "GET", "/carboy/archive?path=/", token, 404},
		{"archive-for-the-owner", false, "GET", "/carboy/archive?path=/", id, 200},
		{"exec-service", true, "POST", "/carboy.guest.v1.ExecService/List", token, 404},
		{"exec-service-deeper", true, "POST", "/x/carboy.guest.v1.ExecService/List", token, 404},
		{"signed", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 200},
		{"signed-for-a-user", true, "GET", "/files?path=%2Fa&username=root&signature=" + sign("/a", "read", "root", sb.Token, ""), id, 200},
		{"signed-until", true, "GET", "/files?path=%2Fa&signature_expiration=" + far + "&signature=" + sign("/a", "read", "", sb.Token, far), id, 200},
		{"signed-too-long-ago", true, "GET", "/files?path=%2Fa&signature_expiration=" + past + "&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-end-moved", true, "GET", "/files?path=%2Fa&signature_expiration=" + far + "&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-end-dropped", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-other-path", true, "GET", "/files?path=%2Fb&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-two-paths", true, "GET", "/files?path=%2Fa&path=%2Fb&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-other-user", true, "GET", "/files?path=%2Fa&username=root&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-to-read", true, "POST", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-to-write", true, "POST", "/files?path=%2Fa&signature=" + sign("/a", "write", "", sb.Token, ""), id, 200},
		{"signed-for-a-port", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), with("E2b-Sandbox-Port", "3000"), 401},
		{"signed-elsewhere", true, "GET", "/envs?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"port", true, "GET", "/any/thing", with("X-Access-Token", sb.Token, "E2b-Sandbox-Port", "3000"), 200},
		{"port-without-token", true, "GET", "/any/thing", with("E2b-Sandbox-Port", "3000"), 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: tt.tcp, method: tt.method, path: tt.path, header: tt.header})
			if resp.StatusCode != tt.want {
				t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, resp.StatusCode, body, tt.want)
			}
		})
	}
	t.Run("by-host", func(t *testing.T) {
		for _, id := range []string{sb.ID, strings.Replace(sb.ID, "_", "-", 1)} {
			resp, body := w.do(t, request{tcp: true, method: "GET", path: "/x", host: "3000-" + id + "." + domain + ":80", header: map[string]string{"X-Access-Token": sb.Token}})
			if resp.StatusCode != 200 {
				t.Errorf("by host %s = %d %s", id, resp.StatusCode, body)
			}
		}
	})
	t.Run("stopped", func(t *testing.T) {
		if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/health", "/files?path=/a"} {
			resp, body := w.do(t, request{tcp: true, method: "GET", path: path, header: token})
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s of a stopped one = %d %s, want 502", path, resp.StatusCode, body)
			}
		}
	})
}

// A guest learns no secret from a request, and can't speak for the daemon.
func TestNothingLeaks(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	secrets := map[string]string{
		"X-Access-Token": sb.Token, "X-API-KEY": w.full, "Authorization": "Bearer " + w.full, "X-Mine": "stays",
	}
	for _, q := range []request{
		{tcp: true, method: "GET", path: "/files?path=/a&signature=s", header: map[string]string{"E2b-Sandbox-Id": sb.ID}},
		{tcp: true, method: "GET", path: "/files", header: map[string]string{"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "3000"}},
		{tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/guest/files?path=/a"},
	} {
		if q.header == nil {
			q.header = map[string]string{}
		}
		for k, v := range secrets {
			if k == "Authorization" && strings.HasPrefix(q.path, "/v1/") {
				continue // one key is enough
			}
			q.header[k] = v
		}
		resp, body := w.do(t, q)
		if resp.StatusCode != 200 {
			t.Fatalf("%s = %d %s", q.path, resp.StatusCode, body)
		}
		r := <-w.seen
		all := r.URL.String() + fmt.Sprint(r.Header) + r.Host
		for _, s := range []string{sb.Token, w.full, "E2b-Sandbox", "signature"} {
			if strings.Contains(all, s) {
				t.Errorf("%s: the guest saw %q in %s", q.path, s, all)
			}
		}
		if r.Header.Get("X-Mine") != "stays" {
			t.Errorf("%s: the guest saw %v, want the caller's own header", q.path, r.Header)
		}
		if n, e := resp.Header.Get(api.HeaderNotice), resp.Header.Get(api.HeaderError); n != "" || e != "" {
			t.Errorf("%s: the guest spoke for the daemon: %q, %q", q.path, n, e)
		}
		if got := resp.Header.Get(api.HeaderStarts); got != "1" {
			t.Errorf("%s: %s = %q, want 1", q.path, api.HeaderStarts, got)
		}
	}
	// envd's own way to name a user is passed on.
	w.do(t, request{method: "GET", path: "/files", header: map[string]string{"E2b-Sandbox-Id": sb.ID, "Authorization": "Basic dXNlcjo="}})
	if r := <-w.seen; r.Header.Get("Authorization") != "Basic dXNlcjo=" {
		t.Errorf("Authorization = %q, want it passed on", r.Header.Get("Authorization"))
	}
}

func TestGuestPathsForOwners(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	for path, want := range map[string]int{
		"/health": 200, "/carboy/archive?path=/x": 200, "/init": 404, "/": 404, "/carboy/": 404, "/carboy/secret": 404,
		"/process.Process/": 404, "/process.Process/List": 200, "/%69nit": 404, "/files%2f..%2finit": 404,
	} {
		resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes/" + sb.Spec.Name + "/guest" + path})
		if resp.StatusCode != want {
			t.Errorf("%q = %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
}

// Bytes pass while both bodies are still open.
func TestProxyStreams(t *testing.T) {
	w := newWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		_ = rc.EnableFullDuplex()
		buf := make([]byte, 16)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				_, _ = rw.Write(bytes.ToUpper(buf[:n]))
				_ = rc.Flush()
			}
			if err != nil {
				return
			}
		}
	})
	sb := w.create(t, w.full)
	for _, proto := range []string{"http1", "h2c"} {
		t.Run(proto, func(t *testing.T) {
			var p http.Protocols
			p.SetHTTP1(proto == "http1")
			p.SetUnencryptedHTTP2(proto == "h2c")
			tr := &http.Transport{Protocols: &p}
			defer tr.CloseIdleConnections()
			body, feed := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/talk", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("E2b-Sandbox-Id", sb.ID)
			req.Header.Set("E2b-Sandbox-Port", "3000")
			req.Header.Set("X-Access-Token", sb.Token)
			go func() { _, _ = io.WriteString(feed, "a") }()
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			buf := make([]byte, 1)
			for _, c := range "abc" {
				if c != 'a' {
					if _, err := io.WriteString(feed, string(c)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != strings.ToUpper(string(c)) {
					t.Fatalf("answer = %q, %v", buf, err)
				}
			}
			_ = feed.Close()
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("at the end: %q, %v", rest, err)
			}
		})
	}
}

// A stopped box's port must not be reached through a connection of its first
// life.
func TestProxyAfterRestart(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	q := request{method: "GET", path: "/health", header: map[string]string{"E2b-Sandbox-Id": sb.ID}}
	for life := 1; life <= 3; life++ {
		resp, body := w.do(t, q)
		if got := resp.Header.Get(api.HeaderStarts); resp.StatusCode != 200 || got != fmt.Sprint(life) {
			t.Errorf("life %d: %d %s, starts %s", life, resp.StatusCode, body, got)
		}
		w.Wall.Die(sb.ID, sandbox.EndOutOfMemory)
		w.Guest.Die()
		servertest.Wait(t, "the end of the sandbox", func() bool {
			got, err := w.Manager.Get(t.Context(), sandbox.Caller{Admin: true}, sb.ID)
			return err == nil && got.State == sandbox.StateStopped
		})
		if resp, _ := w.do(t, q); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("health after the end = %d, want 502: it must not start anything", resp.StatusCode)
		}
		resp, _ = w.do(t, request{method: "GET", path: "/files?path=/a", header: q.header})
		if n := resp.Header.Get(api.HeaderNotice); resp.StatusCode != 200 || !strings.Contains(n, "out of memory") {
			t.Errorf("files after the end = %d, notice %q", resp.StatusCode, n)
		}
	}
}
