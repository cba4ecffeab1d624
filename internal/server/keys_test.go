package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// A key grants nothing that its maker has not got, and only administrators
// make one of another team; the machine's own user makes the first of all.
func TestMakingKeys(t *testing.T) {
	w := newTeams(t, nil)
	for _, tt := range []struct {
		name, who, body string
		want            int
	}{
		{"own-team", "keeper", `{"name":"x"}`, 201},
		{"own-team-named", "keeper", `{"name":"x","team":"acme"}`, 201},
		{"fewer-scopes", "keeper", `{"name":"x","scopes":["read"]}`, 201},
		{"its-own-scope", "keeper", `{"name":"x","scopes":["keys"]}`, 201},
		{"host-image-it-has", "keeper", `{"name":"x","host_image":true}`, 201},
		{"another-team", "keeper", `{"name":"x","team":"other"}`, 403},
		{"scope-it-lacks", "keeper", `{"name":"x","scopes":["exec"]}`, 403},
		{"admin-it-lacks", "keeper", `{"name":"x","scopes":["admin"]}`, 403},
		{"network-it-lacks", "keeper", `{"name":"x","private_network":true}`, 403},
		{"path-it-lacks", "keeper", `{"name":"x","paths":["/srv"]}`, 403},
		{"wall-it-lacks", "keeper", `{"name":"x","isolation":"process"}`, 403},
		{"wall-it-has", "keeper", `{"name":"x","isolation":"gvisor"}`, 201},
		{"wall-that-there-is-not", "keeper", `{"name":"x","isolation":"paper"}`, 400},
		{"admin-wall-it-lacks", "admin", `{"name":"x","team":"new","isolation":"process"}`, 403},
		{"long-s", "keeper", `{"name":"x","scopes":["read"],"ſcopes":["read","manage"]}`, 400},
		{"case", "keeper", `{"name":"x","NAME":"y"}`, 400},
		{"scopes-twice", "keeper", `{"name":"x","scopes":["read"],"\u0073copes":["manage"]}`, 400},
		{"unknown-scope", "keeper", `{"name":"x","scopes":["write"]}`, 400},
		{"no-name", "keeper", `{}`, 400},
		{"control-in-name", "keeper", `{"name":"a\u0007"}`, 400},
		{"long-name", "keeper", `{"name":"` + strings.Repeat("x", 300) + `"}`, 400},
		{"unknown-field", "keeper", `{"name":"x","owner":"y"}`, 400},
		{"usual-scopes", "acme", `{"name":"x"}`, 403},
		{"admin-any-team", "admin", `{"name":"x","team":"new","scopes":["admin"]}`, 201},
		{"admin-odd-team", "admin", `{"name":"x","team":"a b"}`, 400},
		{"admin-path", "admin", `{"name":"x","team":"new","paths":["/srv"]}`, 403},
		{"machine", "machine", `{"name":"x","team":"new","scopes":["read","admin"],"paths":["/srv/a"],"private_network":true}`, 201},
		{"machine-wall", "machine", `{"name":"x","team":"new","isolation":"process"}`, 201},
		{"machine-odd-path", "machine", `{"name":"x","team":"new","paths":["/srv/../etc"]}`, 400},
		{"machine-without-team", "machine", `{"name":"x"}`, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := request{tcp: tt.who != "machine", method: "POST", path: "/v1/keys", body: tt.body}
			if q.tcp {
				q.header = map[string]string{"X-API-KEY": w.keys[tt.who]}
			}
			resp, body := w.do(t, q)
			if resp.StatusCode != tt.want {
				t.Fatalf("make = %d %s, want %d", resp.StatusCode, body, tt.want)
			}
			if tt.want != http.StatusCreated {
				return
			}
			made := decode[api.NewKey](t, body)
			if strings.Contains(made.Mask, strings.TrimPrefix(made.Secret, "e2b_")) || made.TeamID != team.ID("key:"+made.Team) {
				t.Errorf("made %+v", made)
			}
			list := w.want(t, 200, "admin", "GET", "/v1/keys", "")
			if !strings.Contains(list, made.ID) || strings.Contains(list, made.Secret) {
				t.Errorf("list = %s", list)
			}
			mine := strings.Contains(w.want(t, 200, "keeper", "GET", "/v1/keys", ""), made.ID)
			if mine != (made.Team == "acme") {
				t.Errorf("the keeper of acme sees the key of %s: %v", made.Team, mine)
			}
			if made.Team != "acme" {
				w.want(t, 404, "keeper", "DELETE", "/v1/keys/"+made.ID, "")
			}
			w.want(t, 204, "admin", "DELETE", "/v1/keys/"+made.ID, "")
			w.want(t, 401, made.Secret, "GET", "/sandboxes", "")
		})
	}
}

// Whoever a key acts for and however it asks, what it makes may do no more than
// itself: an administrator without other scopes makes administrators alone.
func TestKeysGrantNoMore(t *testing.T) {
	w := newTeams(t, nil)
	has := map[string][]string{
		"bare": {"admin"}, "keeper": {"read", "manage", "keys"}, "admin": {"read", "manage", "exec", "approve", "keys", "admin"},
		"ruler": {"keys", "admin"},
	}
	w.keys["ruler"] = decode[api.NewKey](t, w.want(t, 201, "admin", "POST", "/v1/keys", `{"name":"ruler","team":"acme","scopes":["keys","admin"]}`)).Secret
	made := map[string]int{}
	for who, own := range has {
		for _, header := range [][]string{nil, {"X-Team-ID", team.ID(acme)}, {"X-Team-ID", team.ID(other)}, {"X-Team-ID", team.ID(other), "X-Admin-Token", w.keys[who]}} {
			asks := map[string]string{"/api-keys": "", "/admin/teams/" + team.ID(other) + "/api-keys": ""}
			for _, sc := range append(has["admin"], "") {
				path := "/v1/keys"
				body := `{"name":"x"}`
				if sc != "" {
					body = `{"name":"x","scopes":["` + sc + `"]}`
				}
				for p := range asks {
					w.granted(t, who, p, `{"name":"x"}`, own, made, header)
				}
				w.granted(t, who, path, body, own, made, header)
			}
		}
	}
	if made["admin"] == 0 || made["keeper"] == 0 || made["ruler"] == 0 {
		t.Errorf("keys made: %v, want some by each that may", made)
	}
}

// granted makes a key, or is refused, and looks at what it may.
func (w *teams) granted(t *testing.T, who, path, body string, own []string, made map[string]int, header []string) {
	t.Helper()
	resp, answer := w.ask(t, who, "POST", path, body, header...)
	if resp.StatusCode != http.StatusCreated {
		return
	}
	made[who]++
	id := decode[struct{ ID string }](t, answer).ID
	for _, k := range decode[[]api.Key](t, w.want(t, 200, "admin", "GET", "/v1/keys", "")) {
		if k.ID != id {
			continue
		}
		for _, sc := range k.Scopes {
			if !slices.Contains(own, sc) {
				t.Errorf("%s with %q by POST %s %s %s made a key with %q", who, own, path, body, header, k.Scopes)
			}
		}
	}
}

// A key that was made by a command is in no file: the hint says how either kind gets host_image.
func TestHintOfHostImage(t *testing.T) {
	w := newTeams(t, nil)
	for more, status := range map[string]int{"": 403, `,"host_image":true`: 201} { // the second is the control
		w.keys["made"] = decode[api.NewKey](t, w.want(t, 201, "keeper", "POST", "/v1/keys", `{"name":"x"`+more+`}`)).Secret
		got := w.want(t, status, "made", "POST", "/v1/sandboxes", `{}`)
		if status == 403 && (!strings.Contains(got, "carboy key add --host-image") || !strings.Contains(got, `\"host_image\": true`)) {
			t.Errorf("POST /v1/sandboxes = %s, want a hint for keys made by a command and for the file", got)
		}
	}
}
