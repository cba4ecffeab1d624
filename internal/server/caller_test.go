package server_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a page in a browser could send is refused, on the API and over the unix
// socket, whoever sends it; and each such request works without the header that
// gives it away. To sandboxes over TCP pages may speak: TestPages has those.
func TestBrowsersAreRefused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	requests := map[string]request{
		"unix-api":  {method: "GET", path: "/v1/version"},
		"tcp-api":   {tcp: true, method: "GET", path: "/v1/sandboxes", header: map[string]string{"X-API-KEY": w.full}},
		"tcp-guest": {tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/guest/health", header: map[string]string{"X-API-KEY": w.full}},
		"tcp-e2b":   {tcp: true, method: "GET", path: "/sandboxes", header: map[string]string{"X-API-KEY": w.full}},
		"unix-envd": {method: "GET", path: "/health", header: map[string]string{"E2b-Sandbox-Id": sb.ID}},
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
		{"shared-domain", true, "sandbox." + domain, 200},
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
		{"missing", w.full, outside + "/none", 403},
		{"missing-below", w.full, inside + "/none", 403},
		{"none-listed-missing", w.other, outside + "/none", 403},
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
