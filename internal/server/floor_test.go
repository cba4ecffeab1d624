package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// Over TCP nobody gets the process wall whom nobody has allowed it, by whichever
// door. The daemon here has gVisor's alone: who may have another is told that.
func TestWeakestWall(t *testing.T) {
	for _, tt := range []struct {
		name     string
		book     *team.Book
		key      string // what the key says
		owner    string // the team; "": new
		open     bool
		settings []string // in the error
	}{
		{"unsaid", nil, "", "", false, []string{"weakest_isolation"}},
		{"key", nil, "process", "", true, nil},
		{"daemon", team.NewBookOver("process", team.Limits{}, nil), "", "", true, nil},
		{"daemon-and-key", team.NewBookOver("process", team.Limits{}, nil), "gvisor", "", false, []string{"the key's isolation"}},
		{"team", team.NewBook(team.Limits{}, map[string]team.Limits{"key:new": {Isolation: "process"}}), "", "", true, nil},
		{"team-before-key", team.NewBook(team.Limits{}, map[string]team.Limits{"key:new": {Isolation: "gvisor"}}), "process", "", false, []string{"limits.key:new.isolation"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newTeams(t, tt.book)
			w.Kill()
			w.E2B.Isolation = sandbox.WallProcess
			w.Start()
			machine := func(path, body string) string {
				t.Helper()
				resp, got := w.do(t, request{method: "POST", path: path, body: body})
				if resp.StatusCode != http.StatusCreated {
					t.Fatalf("%s = %d %s", path, resp.StatusCode, got)
				}
				return got
			}
			secret := decode[api.NewKey](t, machine("/v1/keys", `{"name":"x","team":"new","host_image":true,"isolation":"`+tt.key+`"}`)).Secret
			for _, q := range [][2]string{
				{"/v1/sandboxes", `{"isolation":"process"}`},
				{"/v1/sandboxes", `{"isolation":"process","stronger":["gvisor"]}`},
				{"/sandboxes", `{"templateID":"base"}`},
			} {
				resp, got := w.ask(t, secret, "POST", q[0], q[1])
				if denied := resp.StatusCode == http.StatusForbidden; denied == tt.open {
					t.Errorf("%s %s = %d %s", q[0], q[1], resp.StatusCode, got)
				}
				for _, part := range append(tt.settings, "isolation") {
					if !strings.Contains(got, part) && !tt.open {
						t.Errorf("%s %s = %s, want %q in it", q[0], q[1], got, part)
					}
				}
			}
			w.want(t, http.StatusCreated, secret, "POST", "/v1/sandboxes", `{"isolation":"gvisor"}`)
		})
	}
}
