package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
)

// A read-only root and directories of the sandbox's own are asked for, kept and
// shown; what makes no sense with them is refused.
func TestCreateReadOnly(t *testing.T) {
	w := newWorld(t)
	resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{
		"read_only_root":true,"mounts":[{"own":true,"target":"/workspace/.skills"}]}`})
	var got api.Sandbox
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("create = %d %s, %v", resp.StatusCode, body, err)
	}
	if d := cmp.Diff([]api.Mount{{Own: true, Target: "/workspace/.skills"}}, got.Mounts); d != "" || !got.ReadOnlyRoot {
		t.Errorf("read-only %t; mounts (-want +got):\n%s", got.ReadOnlyRoot, d)
	}
	for name, bad := range map[string]string{
		"own-and-source":        `{"mounts":[{"own":true,"source":"/srv","target":"/mnt/x"}]}`,
		"own-and-volume":        `{"mounts":[{"own":true,"volume":"data","target":"/mnt/x"}]}`,
		"own-read-only":         `{"mounts":[{"own":true,"read_only":true,"target":"/mnt/x"}]}`,
		"own-over-workspace":    `{"mounts":[{"own":true,"target":"/workspace"}]}`,
		"volume-without-one":    `{"workspace":{"mode":"volume"}}`,
		"volume-where-none-are": `{"workspace":{"volume":"data"}}`,
		"cache-without-dir":     `{"caches":["go"]}`,
		"cache-of-a-volume":     `{"caches":["go"],"workspace":{"volume":"data"}}`,
		"no-such-cache":         `{"caches":["make"]}`,
		"cache-twice":           `{"caches":["go","go"]}`,
		"project-without-file":  `{"project":{"digest":"x"}}`,
		"project-of-controls":   `{"project":{"file":"/a\u001b","digest":"` + strings.Repeat("0", 64) + `"}}`,
		"project-unknown-field": `{"project":{"text":"x"}}`,
		"no-such-wall":          `{"isolation":"process","stronger":["microvm"]}`,
		"no-such-wall-alone":    `{"isolation":"microvm"}`,
		"private-read-only":     `{"workspace":{"mode":"private","read_only":true}}`,
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
