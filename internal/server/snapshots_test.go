package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
)

func TestSnapshots(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	as := func(secret, method, path, body string) (*http.Response, string) {
		t.Helper()
		return w.do(t, request{tcp: true, method: method, path: path, body: body, header: map[string]string{"X-API-KEY": secret}})
	}
	snapshots := "/v1/sandboxes/" + sb.ID + "/snapshots"
	resp, body := as(w.full, "POST", snapshots, "")
	var made api.Snapshot
	if err := json.Unmarshal([]byte(body), &made); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s, %v", resp.StatusCode, body, err)
	}
	if made.Source != sb.ID || made.Image != "host" || made.Owner != sb.Owner || made.Size == 0 || made.CreatedAt.IsZero() {
		t.Errorf("snapshot %+v", made)
	}
	_, body = as(w.full, "POST", "/v1/sandboxes", `{"name":"over","snapshot":"`+made.ID+`"}`)
	var over api.Sandbox
	if err := json.Unmarshal([]byte(body), &over); err != nil || over.Snapshot != made.ID || over.Image != "host" {
		t.Errorf("create = %s", body)
	}
	one := "/v1/snapshots/" + made.ID
	from := `{"snapshot":"` + made.ID + `"}`
	for _, tt := range []struct {
		who, secret, method, path, body string
		status                          int
	}{
		{"owner", w.full, "GET", "/v1/snapshots", "", 200},
		{"owner", w.full, "GET", one, "", 200},
		{"owner", w.full, "GET", "/v1/snapshots/sn_none", "", 404},
		{"owner", w.full, "GET", "/v1/snapshots/..%2f..%2fetc", "", 404},
		{"owner", w.full, "POST", "/v1/sandboxes/none/snapshots", "", 404},
		{"owner", w.full, "POST", "/v1/sandboxes", `{"snapshot":"sn_none"}`, 404},
		{"owner", w.full, "POST", "/v1/sandboxes", `{"snapshot":7}`, 400},

		{"reader", w.reader, "GET", one, "", 200},
		{"reader", w.reader, "POST", snapshots, "", 403},
		{"reader", w.reader, "DELETE", one, "", 403},

		// Who may not use the host's programs may not by way of a snapshot.
		{"bare", w.bare, "GET", one, "", 200},
		{"bare", w.bare, "POST", "/v1/sandboxes", from, 403},

		{"other", w.other, "GET", one, "", 404},
		{"other", w.other, "POST", snapshots, "", 404},
		{"other", w.other, "POST", "/v1/sandboxes", from, 404},
		{"other", w.other, "DELETE", one, "", 404},

		{"owner", w.full, "DELETE", one, "", 204},
		{"owner", w.full, "DELETE", one, "", 404},
		{"owner", w.full, "POST", "/v1/sandboxes", from, 404},
	} {
		resp, body := as(tt.secret, tt.method, tt.path, tt.body)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s %s %s = %d %s, want %d", tt.who, tt.method, tt.path, tt.body, resp.StatusCode, body, tt.status)
		}
	}
	for _, secret := range []string{w.full, w.other} {
		if _, body := as(secret, "GET", "/v1/snapshots", ""); body != "[]\n" {
			t.Errorf("list = %s", body)
		}
	}
}
