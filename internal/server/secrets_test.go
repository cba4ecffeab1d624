package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// secretStore keeps secrets in memory, and what came with them.
type secretStore struct {
	mu   sync.Mutex
	kept map[string][]secret.Info // by owner
	came []secret.Source
}

var madeAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *secretStore) List(_ context.Context, owner string) ([]secret.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept[owner]), nil
}

func (s *secretStore) Put(_ context.Context, owner, name string, src secret.Source) (secret.Info, error) {
	if err := secret.CheckName(name); err != nil {
		return secret.Info{}, err
	}
	if name == "BROKEN" {
		return secret.Info{}, errors.New("write /root/hunter2: no")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, src)
	info := secret.Info{Name: name, Kind: secret.KindValue, File: src.File, Command: src.Command, TTL: src.TTL, CreatedAt: madeAt, RotatedAt: madeAt}
	switch {
	case src.File != "":
		info.Kind = secret.KindFile
	case src.Command != nil:
		info.Kind = secret.KindCommand
	}
	s.kept[owner] = append(s.kept[owner], info)
	return info, nil
}

func (s *secretStore) Rotate(_ context.Context, owner, name string, src *secret.Source) (secret.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.kept[owner] {
		if info := &s.kept[owner][i]; info.Name == name {
			if src != nil {
				s.came = append(s.came, *src)
			}
			info.RotatedAt = madeAt.Add(time.Hour)
			info.Notes = []string{"one end of line was left out"}
			return *info, nil
		}
	}
	return secret.Info{}, sandbox.Errorf(sandbox.NotFound, "secret is not there")
}

func (s *secretStore) Remove(_ context.Context, owner, name string, force bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "USED" && !force {
		return sandbox.Errorf(sandbox.Conflict, "secret USED is used")
	}
	n := len(s.kept[owner])
	s.kept[owner] = slices.DeleteFunc(s.kept[owner], func(i secret.Info) bool { return i.Name == name })
	if len(s.kept[owner]) == n {
		return sandbox.Errorf(sandbox.NotFound, "secret is not there")
	}
	return nil
}

func secretWorld(t *testing.T) (*world, *secretStore) {
	t.Helper()
	w := newWorld(t)
	store := &secretStore{kept: map[string][]secret.Info{}}
	w.Options.Secrets = store
	w.Restart()
	return w, store
}

func TestSecrets(t *testing.T) {
	w, store := secretWorld(t)
	do := func(method, path, body string, status int) string {
		t.Helper()
		resp, got := w.do(t, request{method: method, path: path, body: body})
		if resp.StatusCode != status || strings.Contains(got, "hunter2") {
			t.Fatalf("%s %s = %d %s, want %d", method, path, resp.StatusCode, got, status)
		}
		return got
	}
	if got := do("GET", "/v1/secrets", "", 200); strings.TrimSpace(got) != "[]" {
		t.Errorf("list = %s, want []", got)
	}
	var got api.Secret
	if err := json.Unmarshal([]byte(do("POST", "/v1/secrets", `{"name":"TOKEN","value":"hunter2"}`, 201)), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Secret{Name: "TOKEN", Source: "value", CreatedAt: madeAt}, got); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	do("POST", "/v1/secrets", `{"name":"FILED","file":"/run/token"}`, 201)
	do("POST", "/v1/secrets", `{"name":"USED","command":["/usr/bin/mint","-x"],"ttl_ms":60000}`, 201)
	do("POST", "/v1/secrets/TOKEN/rotate", `{"value":"hunter2-hunter2"}`, 200)
	got = api.Secret{}
	if err := json.Unmarshal([]byte(do("POST", "/v1/secrets/FILED/rotate", `{}`, 200)), &got); err != nil {
		t.Fatal(err)
	}
	want := api.Secret{Name: "FILED", Source: "file", File: "/run/token", CreatedAt: madeAt, RotatedAt: madeAt.Add(time.Hour), Notes: []string{"one end of line was left out"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rotated (-want +got):\n%s", diff)
	}
	var came []string
	for _, src := range store.came {
		came = append(came, fmt.Sprint(src.Value.Reveal(), src.File, src.Command, src.TTL))
	}
	if diff := cmp.Diff([]string{"hunter2[] 0s", "/run/token[] 0s", "[/usr/bin/mint -x] 1m0s", "hunter2-hunter2[] 0s"}, came); diff != "" {
		t.Errorf("the store got (-want +got):\n%s", diff)
	}
	if got := do("GET", "/v1/secrets", "", 200); count(t, got) != 3 || !strings.Contains(got, `"command":["/usr/bin/mint","-x"],"ttl_ms":60000`) {
		t.Errorf("list = %s", got)
	}
	do("DELETE", "/v1/secrets/USED", "", 409)
	do("DELETE", "/v1/secrets/USED?force=1", "", 204)
	do("DELETE", "/v1/secrets/USED?force=1", "", 404)
	if owner := fmt.Sprintf("uid:%d", os.Getuid()); len(store.kept[owner]) != 2 {
		t.Errorf("%s has %d secrets, want 2", owner, len(store.kept[owner]))
	}
}

func TestSecretRequests(t *testing.T) {
	w, store := secretWorld(t)
	for name, q := range map[string]request{
		"no-name":         {method: "POST", path: "/v1/secrets", body: `{"value":"hunter2"}`},
		"no-source":       {method: "POST", path: "/v1/secrets", body: `{"name":"A"}`},
		"bad-name":        {method: "POST", path: "/v1/secrets", body: `{"name":"hunter2 hunter2 hunter2","value":"hunter2"}`},
		"empty-value":     {method: "POST", path: "/v1/secrets", body: `{"name":"A","value":""}`},
		"value-type":      {method: "POST", path: "/v1/secrets", body: `{"name":"A","value":{"hunter2":1}}`},
		"unknown":         {method: "POST", path: "/v1/secrets", body: `{"name":"A","val":"hunter2"}`},
		"ttl-alone":       {method: "POST", path: "/v1/secrets", body: `{"name":"A","ttl_ms":5}`},
		"negative-ttl":    {method: "POST", path: "/v1/secrets", body: `{"name":"A","command":["/x"],"ttl_ms":-5}`},
		"parameter":       {method: "POST", path: "/v1/secrets?value=hunter2", body: `{"name":"A","value":"hunter2"}`},
		"list-parameter":  {method: "GET", path: "/v1/secrets?values=1"},
		"rotate-name":     {method: "POST", path: "/v1/secrets/A/rotate", body: `{"name":"B","value":"hunter2"}`},
		"rotate-no-body":  {method: "POST", path: "/v1/secrets/A/rotate"},
		"force-parameter": {method: "DELETE", path: "/v1/secrets/A?force=yes"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := w.do(t, q)
			if resp.StatusCode != 400 || strings.Contains(body, "hunter2") {
				t.Errorf("%s %s = %d %s, want 400", q.method, q.path, resp.StatusCode, body)
			}
		})
	}
	if resp, body := w.do(t, request{method: "POST", path: "/v1/secrets", body: `{"name":"BROKEN","value":"hunter2"}`}); resp.StatusCode != 500 || strings.Contains(body, "hunter2") {
		t.Errorf("a broken store = %d %s", resp.StatusCode, body)
	}
	if len(store.came) > 0 {
		t.Errorf("the store got %v", store.came)
	}
}

func TestSecretPermissions(t *testing.T) {
	w, store := secretWorld(t)
	as := func(secret, method, path, body string) request {
		return request{tcp: true, method: method, path: path, body: body, header: map[string]string{"X-API-KEY": secret}}
	}
	w.do(t, as(w.full, "POST", "/v1/secrets", `{"name":"MINE","value":"hunter2"}`))
	tests := []struct {
		name   string
		req    request
		status int
		list   int // secrets in the answer, -1: not a list
	}{
		{"owner-lists", as(w.full, "GET", "/v1/secrets", ""), 200, 1},
		{"reader-lists", as(w.reader, "GET", "/v1/secrets", ""), 200, 1},
		{"reader-adds", as(w.reader, "POST", "/v1/secrets", `{"name":"A","value":"hunter2"}`), 403, -1},
		{"reader-rotates", as(w.reader, "POST", "/v1/secrets/MINE/rotate", `{"value":"hunter2"}`), 403, -1},
		{"reader-removes", as(w.reader, "DELETE", "/v1/secrets/MINE", ""), 403, -1},
		{"reader-sets-a-policy", as(w.reader, "PUT", "/v1/sandboxes/x/policy", `{}`), 403, -1},
		{"other-lists", as(w.other, "GET", "/v1/secrets", ""), 200, 0},
		{"other-rotates", as(w.other, "POST", "/v1/secrets/MINE/rotate", `{"value":"hunter2"}`), 404, -1},
		{"other-removes", as(w.other, "DELETE", "/v1/secrets/MINE", ""), 404, -1},
		{"key-names-a-file", as(w.full, "POST", "/v1/secrets", `{"name":"A","file":"/etc/shadow"}`), 403, -1},
		{"key-names-a-command", as(w.full, "POST", "/v1/secrets", `{"name":"A","command":["/bin/sh"]}`), 403, -1},
		{"key-rotates-to-a-file", as(w.full, "POST", "/v1/secrets/MINE/rotate", `{"file":"/etc/shadow"}`), 403, -1},
		{"no-key", request{tcp: true, method: "GET", path: "/v1/secrets"}, 401, -1},
		{"user-lists", request{method: "GET", path: "/v1/secrets"}, 200, 0},
		{"user-names-a-file", request{method: "POST", path: "/v1/secrets", body: `{"name":"A","file":"/etc/shadow"}`}, 201, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, tt.req)
			if resp.StatusCode != tt.status || tt.list >= 0 && count(t, body) != tt.list {
				t.Errorf("%s %s = %d %s, want %d", tt.req.method, tt.req.path, resp.StatusCode, body, tt.status)
			}
		})
	}
	if len(store.came) != 2 {
		t.Errorf("the store got %d secrets, want 2", len(store.came))
	}
}

func TestNoSecrets(t *testing.T) {
	w := newWorld(t)
	for _, q := range []request{
		{method: "GET", path: "/v1/secrets"},
		{method: "POST", path: "/v1/secrets", body: `{"name":"A","value":"x"}`},
		{method: "POST", path: "/v1/secrets/A/rotate", body: `{"value":"x"}`},
		{method: "DELETE", path: "/v1/secrets/A"},
	} {
		if resp, body := w.do(t, q); resp.StatusCode != http.StatusNotImplemented || !strings.Contains(body, "hint") {
			t.Errorf("%s %s = %d %s, want 501 with a hint", q.method, q.path, resp.StatusCode, body)
		}
	}
}

var _ server.Secrets = (*secretStore)(nil)
