package server_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// teams is a daemon that several teams share.
type teams struct {
	*world
	db   *store.SQLite
	keys map[string]string // by name: acme, reader, keeper, other, admin, bare
}

const acme, other = "key:acme", "key:other"

func newTeams(t *testing.T, book *team.Book) *teams {
	t.Helper()
	var file bytes.Buffer
	w := &teams{world: &world{}, keys: map[string]string{}}
	for name, more := range map[string]string{
		"acme":   `,"host_image":true,"owner":"key:acme","paths":["/srv"]`,
		"reader": `,"owner":"key:acme","scopes":["read"]`,
		"keeper": `,"owner":"key:acme","scopes":["read","manage","keys"],"host_image":true`,
		"other":  `,"host_image":true,"owner":"key:other"`,
		"admin":  `,"scopes":["read","manage","exec","approve","keys","admin"],"host_image":true`,
		"bare":   `,"scopes":["admin"]`,
	} {
		secret, hash, err := key.New(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		w.keys[name] = secret
		fmt.Fprintf(&file, `{"id":%q,"hash":%q%s}`+"\n", name, hash, more)
	}
	set, err := key.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if w.db, err = store.Open(t.Context(), filepath.Join(dir, "state.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close() })
	values, err := secret.Open(secret.Options{Dir: filepath.Join(dir, "secrets"), KeyFile: filepath.Join(dir, "secrets.key")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { values.Close() })
	w.Daemon = servertest.NewWith(t, servertest.NewGuest(), server.Options{Tenants: auth.Tenants{Keys: set, Book: book}, Secrets: values},
		func(m *sandbox.Manager, o *server.Options, d *e2b.Options) {
			d.Teams.Secrets = w.db
			if o.Ring, err = team.OpenRing(t.Context(), team.RingOptions{File: set, Keys: w.db, Rand: rand.Reader}); err != nil {
				t.Error(err)
			}
			if d.Teams.Node, err = node.Open(t.Context(), node.Options{Manager: m, Settings: w.db, Dir: dir, Version: "v1", Commit: "c"}); err != nil {
				t.Error(err)
			}
		})
	return w
}

// ask sends a request with a key of w, or with what is none of its names.
func (w *teams) ask(t *testing.T, who, method, path, body string, more ...string) (*http.Response, string) {
	t.Helper()
	h := map[string]string{}
	if secret, ok := w.keys[who]; ok {
		h["X-API-KEY"] = secret
	} else if who != "" {
		h["X-API-KEY"] = who
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	if h["X-API-KEY"] == "-" {
		delete(h, "X-API-KEY")
	}
	return w.do(t, request{tcp: true, method: method, path: path, body: body, header: h})
}

// want asks, and fails where the status is another.
func (w *teams) want(t *testing.T, status int, who, method, path, body string, more ...string) string {
	t.Helper()
	resp, got := w.ask(t, who, method, path, body, more...)
	if resp.StatusCode != status {
		t.Fatalf("%s %s as %s = %d %s, want %d", method, path, who, resp.StatusCode, got, status)
	}
	return got
}

func decode[T any](t *testing.T, body string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return v
}

// Each path lets in whom it is for, and nobody else.
func TestWhoMayAskForTeams(t *testing.T) {
	w := newTeams(t, team.NewBook(team.Limits{}, nil))
	mine, uuid := team.ID(acme), "00000000-0000-4000-8000-000000000000"
	for _, tt := range []struct {
		method, path, body                   string
		acme, reader, keeper, other, byAdmin int
	}{
		{"GET", "/teams", "", 200, 200, 200, 200, 200},
		{"GET", "/teams/" + mine + "/metrics", "", 200, 200, 200, 403, 403},
		{"GET", "/teams/" + mine + "/metrics/max?metric=concurrent_sandboxes", "", 200, 200, 200, 403, 403},
		{"GET", "/api-keys", "", 403, 403, 200, 403, 200},
		{"POST", "/api-keys", `{}`, 403, 403, 400, 403, 400},
		{"PATCH", "/api-keys/" + uuid, `{"name":"x"}`, 403, 403, 404, 403, 404},
		{"DELETE", "/api-keys/" + uuid, "", 403, 403, 404, 403, 404},
		{"POST", "/access-tokens", `{"name":"x"}`, 410, 410, 410, 410, 410},
		{"DELETE", "/access-tokens/" + uuid, "", 404, 404, 404, 404, 404},
		{"GET", "/secrets", "", 200, 200, 200, 200, 200},
		{"POST", "/secrets", `{}`, 400, 403, 400, 400, 400},
		{"GET", "/secrets/none", "", 404, 404, 404, 404, 404},
		{"POST", "/secrets/none", `{"value":"0123456789"}`, 404, 403, 404, 404, 404},
		{"DELETE", "/secrets/none", "", 404, 403, 404, 404, 404},
		{"GET", "/nodes", "", 401, 401, 401, 401, 200},
		{"GET", "/nodes/" + uuid, "", 401, 401, 401, 401, 404},
		{"POST", "/nodes/" + uuid, `{"status":"ready"}`, 401, 401, 401, 401, 404},
		{"GET", "/admin/sandboxes/running-counts", "", 401, 401, 401, 401, 200},
		{"POST", "/admin/teams/" + mine + "/sandboxes/kill", "", 401, 401, 401, 401, 200},
		{"POST", "/admin/teams/" + uuid + "/sandboxes/kill", "", 401, 401, 401, 401, 404},
		{"POST", "/admin/teams/" + mine + "/builds/cancel", "", 401, 401, 401, 401, 200},
		{"POST", "/admin/teams/" + uuid + "/api-keys", `{"name":"x"}`, 401, 401, 401, 401, 404},
		{"DELETE", "/admin/teams/" + mine + "/api-keys/" + uuid, "", 401, 401, 401, 401, 404},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			for who, want := range map[string]int{
				"": 401, "e2b_" + strings.Repeat("0", 40): 401, "sk_e2b_" + strings.Repeat("0", 40): 401,
				"acme": tt.acme, "reader": tt.reader, "keeper": tt.keeper, "other": tt.other, "admin": tt.byAdmin,
			} {
				resp, body := w.ask(t, who, tt.method, tt.path, tt.body)
				if resp.StatusCode != want {
					t.Errorf("as %q = %d %s, want %d", who, resp.StatusCode, body, want)
				}
				if resp.StatusCode >= 400 {
					e := decode[struct {
						Code    int    `json:"code"`
						Message string `json:"message"`
					}](t, body)
					if e.Code != resp.StatusCode || e.Message == "" {
						t.Errorf("as %q the error is %s", who, body)
					}
				}
			}
			// The administrator's header is for administrators, and does as the key.
			if resp, body := w.ask(t, "", tt.method, tt.path, tt.body, "X-Admin-Token", w.keys["admin"]); resp.StatusCode != tt.byAdmin {
				t.Errorf("with X-Admin-Token = %d %s, want %d", resp.StatusCode, body, tt.byAdmin)
			}
			if resp, _ := w.ask(t, "", tt.method, tt.path, tt.body, "X-Admin-Token", w.keys["acme"]); resp.StatusCode != 401 {
				t.Errorf("with another's key as X-Admin-Token = %d, want 401", resp.StatusCode)
			}
		})
	}
}

type madeKey struct {
	ID, Name, Key string
	Mask          struct {
		Prefix, MaskedValuePrefix, MaskedValueSuffix string
		ValueLength                                  int
	}
	CreatedBy *struct{ ID string }
	CreatedAt time.Time
	LastUsed  *time.Time
}

func TestKeysAreMadeAndDeleted(t *testing.T) {
	w := newTeams(t, nil)
	k := decode[madeKey](t, w.want(t, 201, "keeper", "POST", "/api-keys", `{"name":"ci"}`))
	digits := strings.TrimPrefix(k.Key, "e2b_")
	if !key.Looks(k.Key) || k.Mask.Prefix != "e2b_" || k.Mask.ValueLength != 40 ||
		k.Mask.MaskedValuePrefix != digits[:2] || k.Mask.MaskedValueSuffix != digits[36:] || k.CreatedBy == nil || k.LastUsed != nil {
		t.Fatalf("made %+v", k)
	}
	w.keys["made"] = k.Key
	// It is of the team, allows what its maker does, and no more.
	w.want(t, 200, "made", "GET", "/sandboxes", "")
	sb := decode[struct{ SandboxID, EnvdAccessToken string }](t, w.want(t, 201, "made", "POST", "/sandboxes", `{"templateID":"base"}`))
	if sb.EnvdAccessToken != "" {
		t.Error("a key without exec is told the guest's token, for its maker has not got exec")
	}
	w.want(t, 200, "acme", "GET", "/sandboxes/"+sb.SandboxID, "")
	w.want(t, 404, "other", "GET", "/sandboxes/"+sb.SandboxID, "")
	w.want(t, 403, "made", "GET", "/api-keys", "")
	w.want(t, 401, "made", "GET", "/nodes", "")

	list := w.want(t, 200, "keeper", "GET", "/api-keys", "")
	if strings.Contains(list, digits) || strings.Contains(list, key.Hash(k.Key)) {
		t.Errorf("the list gives the key away: %s", list)
	}
	if l := decode[[]madeKey](t, list); len(l) != 1 || l[0].ID != k.ID || l[0].LastUsed == nil || l[0].LastUsed.Before(l[0].CreatedAt) {
		t.Errorf("list = %s", list)
	}
	w.want(t, 202, "keeper", "PATCH", "/api-keys/"+k.ID, `{"name":"renamed"}`)
	if l := decode[[]madeKey](t, w.want(t, 200, "keeper", "GET", "/api-keys", "")); l[0].Name != "renamed" {
		t.Errorf("the name is %q", l[0].Name)
	}
	// Nobody else's administration reaches it.
	w.want(t, 404, "admin", "DELETE", "/api-keys/"+k.ID, "")
	w.want(t, 404, "admin", "DELETE", "/admin/teams/"+team.ID(other)+"/api-keys/"+k.ID, "")

	// It is there after a restart, and gone for good once it is deleted.
	w.Restart()
	w.want(t, 200, "made", "GET", "/sandboxes", "")
	w.want(t, 204, "keeper", "DELETE", "/api-keys/"+k.ID, "")
	w.want(t, 401, "made", "GET", "/sandboxes", "")
	w.Restart()
	w.want(t, 401, "made", "GET", "/sandboxes", "")
	w.want(t, 404, "keeper", "DELETE", "/api-keys/"+k.ID, "")
}

// What a key holds open ends with it; what another holds does not.
func TestDeletingAKeyEndsItsStreams(t *testing.T) {
	w := newTeams(t, nil)
	sb := w.create(t, w.keys["acme"])
	var ids []string
	var bodies []*http.Response
	for range 2 {
		k := decode[madeKey](t, w.want(t, 201, "keeper", "POST", "/api-keys", `{"name":"x"}`))
		ids = append(ids, k.ID)
		req, err := http.NewRequestWithContext(t.Context(), "GET", w.URL+"/v1/sandboxes/"+sb.ID+"/hold", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-KEY", k.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		defer resp.Body.Close()
		bodies = append(bodies, resp)
	}
	holds := func() int {
		_, n := w.Manager.Idle()
		return n
	}
	servertest.Wait(t, "two holds", func() bool { return holds() == 2 })
	w.want(t, 204, "keeper", "DELETE", "/api-keys/"+ids[0], "")
	servertest.Wait(t, "one hold", func() bool { return holds() == 1 })
	if _, err := bodies[0].Body.Read(make([]byte, 1<<10)); err == nil {
		for err == nil {
			_, err = bodies[0].Body.Read(make([]byte, 1<<10))
		}
	}
	if holds() != 1 {
		t.Error("the other key's stream ended too")
	}
}

// An administrator makes keys of a team within its own rights, and acts for
// it; what has only the scope admin gives nothing away that it has not got.
func TestAdministratorActsForTeams(t *testing.T) {
	w := newTeams(t, nil)
	mine := team.ID(acme)
	w.want(t, 403, "bare", "POST", "/admin/teams/"+mine+"/api-keys", `{"name":"x"}`)
	k := decode[madeKey](t, w.want(t, 201, "admin", "POST", "/admin/teams/"+mine+"/api-keys", `{"name":"x"}`))
	if k.CreatedBy != nil {
		t.Error("an administrator is named")
	}
	w.keys["made"] = k.Key
	one := decode[struct{ SandboxID string }](t, w.want(t, 201, "made", "POST", "/sandboxes", `{"templateID":"base"}`)).SandboxID
	w.want(t, 201, "other", "POST", "/sandboxes", `{"templateID":"base"}`)

	as := func(id string) []string { return []string{"X-Admin-Token", w.keys["bare"], "X-Team-ID", id} }
	w.want(t, 200, "", "GET", "/sandboxes/"+one, "", as(mine)...)
	w.want(t, 404, "", "GET", "/sandboxes/"+one, "", as(team.ID(other))...)
	w.want(t, 404, "", "GET", "/sandboxes/"+one, "", as("00000000-0000-4000-8000-000000000000")...)
	if got := w.want(t, 200, "", "GET", "/sandboxes/"+one, "", as(mine)...); strings.Contains(got, "envdAccessToken") {
		t.Error("an administrator without exec is told the guest's token")
	}
	if got := w.want(t, 200, "", "GET", "/teams", "", as(mine)...); strings.Contains(got, "e2b_") {
		t.Errorf("the administrator's key is shown as the team's: %s", got)
	}
	w.want(t, 403, "acme", "GET", "/sandboxes", "", "X-Team-ID", team.ID(other))
	w.want(t, 200, "acme", "GET", "/sandboxes", "", "X-Team-ID", mine)

	counts := decode[map[string]int](t, w.want(t, 200, "admin", "GET", "/admin/sandboxes/running-counts", ""))
	if counts[mine] != 1 || counts[team.ID(other)] != 1 || len(counts) != 2 {
		t.Errorf("counts = %v", counts)
	}
	if got := w.want(t, 200, "admin", "POST", "/admin/teams/"+mine+"/sandboxes/kill", ""); !strings.Contains(got, `"killedCount":1,"failedCount":0`) {
		t.Errorf("kill = %s", got)
	}
	w.want(t, 404, "acme", "GET", "/sandboxes/"+one, "")
	counts = decode[map[string]int](t, w.want(t, 200, "admin", "GET", "/admin/sandboxes/running-counts", ""))
	if counts[team.ID(other)] != 1 || len(counts) != 1 {
		t.Errorf("counts after the kill = %v: another team's went too", counts)
	}
	w.want(t, 204, "admin", "DELETE", "/admin/teams/"+mine+"/api-keys/"+k.ID, "")
	w.want(t, 401, "made", "GET", "/sandboxes", "")
}
