package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
)

// TestRemotesOfKeys: who comes by a key of the API names no file and no socket of the machine. A user of it
// does, and sees where the key is, and everybody names a secret.
func TestRemotesOfKeys(t *testing.T) {
	remote := func(key string) string {
		return `{"remotes":[{"name":"app","url":"ssh://git@git.example/app.git","key":` + key + `}]}`
	}
	for _, tt := range []struct {
		name, line string // of the key file; "": over the unix socket
		key        string
		want       int
	}{
		{"key-file", `,"host_image":true,"paths":["/root"]`, `{"provider":"static","path":"/root/.ssh/id"}`, 403},
		{"key-agent", `,"host_image":true`, `{"provider":"agent","path":"/run/agent"}`, 403},
		{"key-secret", `,"host_image":true`, `{"provider":"secret","name":"DEPLOY"}`, 201},
		{"user-file", "", `{"provider":"static","path":"/root/.ssh/id"}`, 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, secret := keyWorld(t, tt.line)
			resp, body := w.do(t, request{tcp: tt.line != "", method: "POST", path: "/v1/sandboxes", body: remote(tt.key), header: map[string]string{"X-API-KEY": secret}})
			if resp.StatusCode != tt.want {
				t.Fatalf("create = %d %s, want %d", resp.StatusCode, body, tt.want)
			}
			if tt.want == 403 && !strings.Contains(body, "carboy secret add") {
				t.Errorf("the refusal says not what would do: %s", body)
			}
			var sb api.Sandbox
			if tt.want == 201 && (json.Unmarshal([]byte(body), &sb) != nil || len(sb.Remotes) != 1 || sb.Remotes[0].Key.Provider == "") {
				t.Errorf("create answers %s", body)
			}
		})
	}
}
