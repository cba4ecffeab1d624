package e2b_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type rig struct {
	*fake
	samples samples
	caller  e2b.Caller
	h       http.Handler
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fake: &fake{now: epoch}, samples: samples{}, caller: e2b.Caller{
		Caller: sandbox.Caller{Owner: "key:a"}, Read: true, Manage: true, Exec: true, HostImage: true, PrivateNetwork: true,
	}}
	r.internet(true)
	return r
}

// internet makes the dialect anew, with the server's setting.
func (r *rig) internet(given bool) {
	r.h = e2b.New(e2b.Options{
		Manager: r.fake, Meter: r.samples, Domain: "boxes.example", Internet: given, PublicTraffic: true,
		Caller: func(*http.Request) e2b.Caller { return r.caller },
		Now:    func() time.Time { return r.now },
	})
}

func (r *rig) do(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, req)
	return rec
}

func (r *rig) json(t *testing.T, method, path, body string, status int, out any) *httptest.ResponseRecorder {
	t.Helper()
	rec := r.do(t, method, path, body)
	if rec.Code != status {
		t.Fatalf("%s %s = %d %s, want %d", method, path, rec.Code, rec.Body, status)
	}
	if out != nil {
		if err := json.Unmarshal(rec.Body.Bytes(), out); err != nil {
			t.Fatal(err)
		}
	}
	return rec
}

func TestCreate(t *testing.T) {
	r := newRig(t)
	var got map[string]any
	r.json(t, "POST", "/v2/sandboxes",
		`{"templateID":"base","metadata":{"app":"x"},"envVars":{"K":"V"},"allow_internet_access":false}`, 201, &got)
	want := map[string]any{
		"templateID": "base", "sandboxID": r.instances[0].ID, "alias": "box-0", "clientID": "carboy",
		"envdVersion": e2b.EnvdVersion, "envdAccessToken": "token", "domain": "boxes.example",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","secure":true,"autoPause":false,"network":{},"mcp":null}`, 201, nil)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","timeout":0}`, 201, nil)
	wantSpecs := []sandbox.Spec{
		{Image: "host", Labels: map[string]string{"app": "x"}, Env: map[string]string{"K": "V"}, TTL: 300 * time.Second, OnExpiry: sandbox.OnExpiryRemove},
		{Image: "host", TTL: 15 * time.Second, OnExpiry: sandbox.OnExpiryRemove},
		{Image: "host", TTL: time.Second, OnExpiry: sandbox.OnExpiryRemove},
	}
	if diff := cmp.Diff(wantSpecs, r.specs); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"no-template", `{}`, 400, "templateID"},
		{"other-template", `{"templateID":"code-interpreter-v1"}`, 404, "template"},
		{"pause-memory-without-pause", `{"templateID":"base","autoPauseMemory":false}`, 400, "autoPauseMemory"},
		{"pause-memory-and-resume", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, "autoResume"},
		{"proxy", `{"templateID":"base","network":{"egressProxy":{"address":"192.0.2.1:1080","password":"hunter2"}}}`, 501, "egressProxy"},
		{"unknown-network", `{"templateID":"base","network":{"allowIn":[]}}`, 400, "allowIn"},
		{"names-without-deny", `{"templateID":"base","network":{"allowOut":["a.example"]}}`, 400, "allowOut"},
		{"deny-a-name", `{"templateID":"base","network":{"denyOut":["a.example"]}}`, 400, "denyOut[0]"},
		{"bad-header", `{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"Authorization":"Digest hunter2"}}}]}}}`, 400, "scheme"},
		{"mcp", `{"templateID":"base","mcp":["x"]}`, 400, "mcp"},
		{"iam", `{"templateID":"base","iam":{"tokens":{}}}`, 501, "iam"},
		{"volumes", `{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`, 501, "volumes"},
		{"unknown", `{"templateID":"base","cpuCount":4}`, 400, "cpuCount"},
		{"negative-timeout", `{"templateID":"base","timeout":-1}`, 400, "timeout"},
		{"endless-timeout", `{"templateID":"base","timeout":2147483647}`, 400, "timeout"},
		{"timeout-overflow", `{"templateID":"base","timeout":99999999999}`, 400, "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			var got struct {
				Code    int
				Message string
			}
			r.json(t, "POST", "/v2/sandboxes", tt.body, tt.status, &got)
			if got.Code != tt.status || !strings.Contains(got.Message, tt.want) || strings.Contains(got.Message, "hunter2") {
				t.Errorf("error = %+v, want code %d and %q", got, tt.status, tt.want)
			}
			if len(r.specs) > 0 {
				t.Error("it was created all the same")
			}
		})
	}
}

func TestScopes(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	id := r.instances[0].ID
	r.caller.Manage, r.caller.Exec, r.caller.HostImage = false, false, false
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 403, nil)
	r.json(t, "DELETE", "/sandboxes/"+id, "", 403, nil)
	if rec := r.json(t, "GET", "/sandboxes/"+id, "", 200, nil); strings.Contains(rec.Body.String(), "token") {
		t.Errorf("a key that may not exec got the token: %s", rec.Body)
	}
	r.caller.Manage = true
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 403, nil) // the host image is closed to it
	r.caller.Read = false
	r.json(t, "GET", "/sandboxes/"+id, "", 403, nil)
	r.caller.Read, r.caller.Owner = true, "key:b"
	for _, c := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"GET", "/logs"}} {
		r.json(t, c[0], "/sandboxes/"+id+c[1], "", 404, nil)
	}
	for path, body := range map[string]string{
		"/timeout": `{"timeout":9}`, "/connect": `{"timeout":9}`, "/refreshes": `{"duration":9}`,
	} {
		r.json(t, "POST", "/sandboxes/"+id+path, body, 404, nil)
	}
}

func TestUnbuilt(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/sandboxes/metrics", 400},
		{"GET", "/sandboxes/sb_x/metrics", 404},
		{"POST", "/sandboxes/sb_x/pause", 404},
		{"PUT", "/sandboxes/sb_x/network", 400},
		{"POST", "/sandboxes/sb_x/snapshots", 400},
		{"GET", "/templates/aliases/x", 501},
		{"GET", "/templates/x/tags", 501},
		{"GET", "/templates/x/builds/y/status", 501},
		{"POST", "/v3/templates", 501},
		{"GET", "/volumes", 501},
		{"GET", "/nope", 404},
		{"PATCH", "/sandboxes", 404},
	} {
		var got struct {
			Code    int
			Message string
		}
		r.json(t, c.method, c.path, "", c.want, &got)
		if got.Code != c.want || got.Message == "" {
			t.Errorf("%s %s: error = %+v, want code %d", c.method, c.path, got, c.want)
		}
	}
	r.json(t, "GET", "/health", "", 204, nil)
}

func TestLists(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.json(t, "POST", "/sandboxes", fmt.Sprintf(`{"templateID":"base","metadata":{"a b":"x&%d"}}`, i%2), 201, nil)
	}
	r.instances[1].State = sandbox.StateStopped
	r.instances[2].State = sandbox.StateRemoving
	tests := []struct{ name, path, want string }{
		{"v1-running", "/sandboxes", "430"},
		{"v2-both", "/v2/sandboxes", "4310"},
		{"ascending", "/v2/sandboxes?order=asc", "0134"},
		{"paused", "/v2/sandboxes?state=paused", "1"},
		{"states", "/v2/sandboxes?state=paused,running", "4310"},
		{"metadata", "/v2/sandboxes?metadata=a%252520b%3Dx%2525260", "40"},
		{"metadata-v1", "/sandboxes?metadata=a%252520b%3Dx%2525261", "3"},
		{"template", "/v2/sandboxes?template=other", ""},
		{"after", "/v2/sandboxes?startedAfter=2026-01-02T03:04:08Z", "43"},
		{"limit", "/v2/sandboxes?limit=3", "431"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := r.list(t, tt.path, nil); got != tt.want {
				t.Errorf("%s = %q, want %q", tt.path, got, tt.want)
			}
		})
	}
	all, next := "", ""
	for range 10 {
		var rec *httptest.ResponseRecorder
		all += r.list(t, "/v2/sandboxes?limit=1&nextToken="+next, &rec)
		if next = rec.Header().Get("X-Next-Token"); next == "" {
			break
		}
	}
	if all != "4310" {
		t.Errorf("by pages of one: %q, want 4310", all)
	}
	for _, bad := range []string{"limit=0", "limit=101", "state=dead", "order=up", "nextToken=x", "startedAfter=now", "metadata=%25zz", "page=1", "limit=1&limit=2", "a;b"} {
		r.json(t, "GET", "/v2/sandboxes?"+bad, "", 400, nil)
	}
}

// list returns the numbers of the listed sandboxes' names.
func (r *rig) list(t *testing.T, path string, rec **httptest.ResponseRecorder) string {
	t.Helper()
	var got []struct{ Alias string }
	res := r.json(t, "GET", path, "", 200, &got)
	if rec != nil {
		*rec = res
	}
	s := ""
	for _, sb := range got {
		s += strings.TrimPrefix(sb.Alias, "box-")
	}
	return s
}

func TestDetail(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60}`, 201, nil)
	var got map[string]any
	r.json(t, "GET", "/sandboxes/"+r.instances[0].ID, "", 200, &got)
	want := map[string]any{
		"templateID": "base", "sandboxID": r.instances[0].ID, "alias": "box-0", "clientID": "carboy",
		"startedAt": "2026-01-02T03:04:05Z", "endAt": "2026-01-02T03:05:05Z",
		"cpuCount": 2.0, "memoryMB": 2048.0, "diskSizeMB": 8192.0, "metadata": map[string]any{},
		"state": "running", "envdVersion": e2b.EnvdVersion, "envdAccessToken": "token", "volumeMounts": []any{},
		"allowInternetAccess": false, "domain": "boxes.example",
		"lifecycle": map[string]any{"autoResume": false, "onTimeout": "kill"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("metadata=a%3Db&state=running&limit=1")
	f.Add("nextToken=MTcuc2JfYWFhYWFhYWFhYWFhYWFhYWFhYWE")
	r := &rig{fake: &fake{now: epoch}}
	h := e2b.New(e2b.Options{Manager: r.fake, Caller: func(*http.Request) e2b.Caller {
		return e2b.Caller{Caller: sandbox.Caller{Owner: "key:a"}, Read: true}
	}})
	f.Fuzz(func(t *testing.T, query string) {
		req := httptest.NewRequest("GET", "/v2/sandboxes", nil)
		req.URL.RawQuery = query
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code != 200 && rec.Code != 400 {
			t.Errorf("%q = %d %s", query, rec.Code, rec.Body)
		}
	})
}
