package langbot_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// in is a workspace's context in one generation.
func in(workspace string, generation int) string {
	return fmt.Sprintf(`{"instance_uuid":"i","workspace_uuid":%q,"placement_generation":%d}`, workspace, generation)
}

// nsLen is that of a workspace's name: "ws-" and 24 digits.
const nsLen = 27

func TestWorkspacesAreApart(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	one := w.about("box_create_session", `{"session_id":" person:alice "}`, in("w", 1)).fields(t)
	if one["session_id"] != "person:alice" {
		t.Errorf("a host calls it %v, want what it called it", one["session_id"])
	}
	w.about("box_create_session", `{"session_id":"person:alice"}`, in("v", 1)).fields(t)
	plain := s.connect(t) // of a version without workspaces
	plain.call("box_create_session", `{"session_id":"person:alice"}`).fields(t)
	for about, by := range map[string]*wire{in("w", 1): w, in("v", 1): w, "": plain} {
		if n := len(by.about("box_get_sessions", `{}`, about).fields(t)["sessions"].([]any)); n != 1 {
			t.Errorf("%s has %d sessions", about, n)
		}
	}
	owners := 0
	for owner := range s.sessions.all {
		if ns, ok := strings.CutPrefix(owner, "box:"); ok {
			owners++
			if got := s.sessions.keys(owner); !slices.Equal(got, []string{ns + "-g1-person-alice~cGVyc29uOmFsaWNl"}) {
				t.Errorf("%s has %v", owner, got)
			}
		}
	}
	if owners != 2 {
		t.Errorf("%d workspaces have sessions, want 2", owners)
	}
	a := w.about("box_get_session", `{"session_id":"nope"}`, in("w", 1))
	if a.Message != "BoxSessionNotFoundError: session nope not found (carboy session ls)" {
		t.Errorf("a host is told of %q", a.Message)
	}
	w.about("box_get_session", `{"session_id":"::"}`, in("w", 1)).want(t, "BoxValidationError: ")
	if st := w.about("box_status", `{}`, in("w", 1)).fields(t); st["active_sessions"] != 1. {
		t.Errorf("status = %v", st)
	}
}

// An instance that said workspaces has to say one for whatever is a workspace's,
// also after the daemon was started again; until then it is served as one that
// has none.
func TestNoContextAmongWorkspaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	open := func() *server {
		return serve(t, func(o *langbot.Options) { o.Ledger = path })
	}
	tenants := []string{
		"box_exec", "box_create_session", "box_get_session", "box_get_sessions", "box_delete_session", "box_status",
		"box_start_managed_process", "box_get_managed_process", "box_stop_managed_process", "box_list_skills", "box_install_skill_zip",
	}
	const data = `{"session_id":"s","cmd":"id","spec":{"command":"cat"},"name":"x"}`
	refused := func(t *testing.T, w *wire) {
		for _, action := range tenants {
			w.call(action, data).want(t, "PermissionError: Box tenant action requires a trusted Workspace context")
		}
		for _, action := range []string{"__ping", "box_init", "box_health", "box_get_backend_info"} { // of the host itself
			w.call(action, `{}`).fields(t)
		}
		w.about("box_get_sessions", `{}`, in("w", 1)).fields(t)
	}
	s := open()
	w := s.connect(t, api.HeaderInstance, "i")
	w.call("box_exec", data).fields(t)
	w.call("box_get_session", data).fields(t)
	w.about("box_get_sessions", `{}`, in("w", 1)).fields(t)
	refused(t, w)
	refused(t, s.connect(t, api.HeaderInstance, "i"))
	s.connect(t).call("box_get_session", data).fields(t) // it says no instance
	refused(t, open().connect(t, api.HeaderInstance, "i"))
}

func TestContextsOfOthers(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	w.about("box_get_sessions", `{}`, `{"instance_uuid":"j","workspace_uuid":"w","placement_generation":1}`).want(t, "PermissionError: ")
	w.about("__ping", `{}`, `{"instance_uuid":"j","workspace_uuid":"w","placement_generation":1}`).want(t, "PermissionError: ")
	s.connect(t).about("box_get_sessions", `{}`, in("w", 1)).want(t, "PermissionError: Box action context needs a connection that says its instance")
	w.about("box_get_sessions", `{}`, in("w", 1)).fields(t) // the control
}

func TestGenerations(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	w.about("box_create_session", `{"session_id":"a"}`, in("w", 1)).fields(t)
	w.about("box_create_session", `{"session_id":"a"}`, in("v", 1)).fields(t)
	w.about("box_create_session", `{"session_id":"b"}`, in("w", 2)).fields(t)
	var w1, v1 int
	for owner := range s.sessions.all {
		for _, k := range s.sessions.keys(owner) {
			switch {
			case strings.HasSuffix(k, "-g1-a"):
				v1++
			case strings.HasSuffix(k, "-g2-b"):
				w1++
			}
		}
	}
	if w1 != 1 || v1 != 1 {
		t.Errorf("%d of the newer generation and %d of another workspace are there, want 1 and 1", w1, v1)
	}
	w.about("box_get_sessions", `{}`, in("w", 1)).want(t, "PermissionError: Stale Box placement generation")
	w.about("box_get_sessions", `{}`, in("w", 2)).fields(t) // the control
}

// Sessions of an older generation that could not be ended are not forgotten.
func TestOlderSessionsAreEndedAgain(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	w.about("box_create_session", `{"session_id":"a"}`, in("w", 1)).fields(t)
	s.sessions.jam(true)
	w.about("box_get_sessions", `{}`, in("w", 2)).want(t, "BoxError: a session did not end")
	s.sessions.jam(false)
	w.about("box_get_sessions", `{}`, in("w", 2)).fields(t)
	for owner := range s.sessions.all {
		if got := s.sessions.keys(owner); len(got) != 0 {
			t.Errorf("of the older generation there is %v", got)
		}
	}
}

// A caller that gave up says nothing of whether sandboxes can be had.
func TestReadinessIsNotOfWhoGaveUp(t *testing.T) {
	s := serve(t, nil)
	ready := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/readyz", nil))
		return w.Code
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if code := ready(gone); code != http.StatusServiceUnavailable {
		t.Errorf("a caller that gave up was answered %d", code)
	}
	if code := ready(t.Context()); code != http.StatusOK {
		t.Errorf("the next one was answered %d", code)
	}
}

func TestNewerGenerationEndsCommands(t *testing.T) {
	s := serve(t, nil)
	s.sessions.block = make(chan struct{})
	w := s.connect(t, api.HeaderInstance, "i")
	old := w.send("box_exec", `{"session_id":"a","cmd":"x"}`, in("w", 1))
	<-s.sessions.begun
	now := w.send("box_get_sessions", `{}`, in("w", 2))
	for range 2 {
		switch a := w.receive(); a.Seq {
		case old:
			a.want(t, "PermissionError: Stale Box placement generation")
		case now:
			a.fields(t)
		default:
			t.Errorf("an answer for %d", a.Seq)
		}
	}
	for owner := range s.sessions.all {
		if got := s.sessions.keys(owner); len(got) != 0 {
			t.Errorf("of the older generation there is %v", got)
		}
	}
}

func TestGenerationsOutliveTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	open := func(t *testing.T) *server {
		return serve(t, func(o *langbot.Options) { o.Ledger = path })
	}
	t.Run("first", func(t *testing.T) {
		w := open(t).connect(t, api.HeaderInstance, "i")
		w.about("box_get_sessions", `{}`, in("w", 5)).fields(t)
		w.about("box_get_sessions", `{}`, in("w", 6)).fields(t)
	})
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"instance":"i","workspace":"w","gener`); err != nil { // the machine went down
		t.Fatal(err)
	}
	_ = f.Close()
	t.Run("second", func(t *testing.T) {
		w := open(t).connect(t, api.HeaderInstance, "i")
		w.about("box_get_sessions", `{}`, in("w", 5)).want(t, "PermissionError: Stale")
		w.about("box_get_sessions", `{}`, in("w", 6)).fields(t)
		w.about("box_get_sessions", `{}`, in("other", 1)).fields(t)
	})
	if err := os.WriteFile(path, []byte("garbage\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := langbot.New(langbot.Options{Sessions: newSessions(), Owner: "uid:0", Ledger: path}); err == nil {
		t.Error("a damaged ledger was taken for an empty one")
	}
}

func TestGenerationRecordsAreBounded(t *testing.T) {
	s := serve(t, func(o *langbot.Options) { o.Limits.MaxAdmissions = 2 })
	w := s.connect(t, api.HeaderInstance, "i")
	w.about("box_get_sessions", `{}`, in("a", 1)).fields(t)
	w.about("box_get_sessions", `{}`, in("b", 1)).fields(t)
	w.about("box_get_sessions", `{}`, in("c", 1)).want(t, "PermissionError: Box generation fence capacity reached")
	w.about("box_get_sessions", `{}`, in("a", 2)).fields(t)
}

// clock is one that a test moves.
type clock struct{ now chan time.Time }

func newClock(t time.Time) *clock {
	c := &clock{make(chan time.Time, 1)}
	c.now <- t
	return c
}

func (c *clock) Now() time.Time {
	t := <-c.now
	c.now <- t
	return t
}

func (c *clock) set(t time.Time) { <-c.now; c.now <- t }

func (c *clock) After(time.Duration) <-chan time.Time { return nil }

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// admitting is a server that needs grants, all of whose checks hold.
func admitting(t *testing.T, change func(*langbot.Options)) (*server, *wire, *clock) {
	c := newClock(noon)
	s := serve(t, func(o *langbot.Options) {
		o.Clock = c
		o.Readiness = func(context.Context) map[string]bool {
			return map[string]bool{
				"workspace_mount": true, "cgroup_v2": true, "namespace_isolation": true, "mount_isolation": true, "network_isolation": true,
				"hard_workspace_quota": true, "hard_skill_storage_quota": true, "bounded_ephemeral_storage": true, "inode_quota": true,
			}
		}
		o.Admission = []byte(`{"required":true,"max_timeout_sec":60,"memory_mb":256,"readiness_cache_sec":0}`)
		if change != nil {
			change(o)
		}
	})
	return s, s.connect(t, api.HeaderInstance, "i"), c
}

func grantOf(workspace string, generation, revision, sessions int, expires time.Time) string {
	return fmt.Sprintf(`{"instance_uuid":"i","workspace_uuid":%q,"execution_generation":%d,"entitlement_revision":%d,"expires_at":%q,"max_sessions":%d,"max_managed_processes":0}`,
		workspace, generation, revision, expires.Format(time.RFC3339), sessions)
}

const (
	upsert   = "box_upsert_sandbox_admission_grant"
	withdraw = "box_revoke_sandbox_admission_grant"
)

func TestAdmission(t *testing.T) {
	s, w, c := admitting(t, nil)
	soon := noon.Add(4 * time.Minute)
	exec := func(about string) answer { return w.about("box_exec", `{"session_id":"x","cmd":"id"}`, about) }
	// Hosts that ask for admission insist on the backend that their policy names.
	if got := w.call("box_get_backend_info", "{}").fields(t); got["name"] != "nsjail" || got["wall"] != "gvisor" || got["available"] != true {
		t.Errorf("the backend is %v", got)
	}
	exec("").want(t, "BoxAdmissionError: ")
	exec(in("w", 1)).want(t, "BoxAdmissionError: Sandbox admission grant is missing")
	w.call(upsert, grantOf("w", 1, 1, 1, noon)).want(t, "BoxAdmissionError: Cannot install an expired")
	w.call(upsert, grantOf("w", 1, 1, 1, noon.Add(6*time.Minute))).want(t, "BoxAdmissionError: Sandbox admission grant lifetime")
	w.call(upsert, grantOf("w", 1, 1, 2, soon)).want(t, "BoxAdmissionError: Sandbox admission grant exceeds the session cap")
	w.call(upsert, strings.Replace(grantOf("w", 1, 1, 1, soon), `"i"`, `"j"`, 1)).want(t, "PermissionError: ")
	w.call(upsert, strings.Replace(grantOf("w", 1, 1, 1, soon), `"max_sessions":1`, `"max_sessions":true`, 1)).want(t, "BoxValidationError: ")
	w.call(upsert, strings.Replace(grantOf("w", 1, 1, 1, soon), `{`, `{"plan":"pro",`, 1)).want(t, `BoxValidationError: grant: field "plan" is not known`)
	w.call(upsert, strings.Replace(grantOf("w", 1, 1, 1, soon), "Z", "", 1)).want(t, "BoxValidationError: grant: expires_at")
	got := w.call(upsert, grantOf("w", 1, 1, 1, soon)).fields(t)
	if got["installed"] != true || got["expires_at"] != "2026-08-01T12:04:00+00:00" {
		t.Errorf("installed %v", got)
	}
	out := exec(in("w", 1)).fields(t)
	spec := s.sessions.last()
	if out["session_id"] != "global" || !spec.Persistent || spec.Memory != 256<<20 || s.sessions.cmd.Timeout != 30*time.Second || spec.Workspace.Quota != sessions.QuotaHard || spec.Workspace.HostPath == "" {
		t.Errorf("the session is %v, of %+v", out["session_id"], spec)
	}
	for _, bad := range []string{
		`{"session_id":"x","cmd":"id","network":"on"}`,
		`{"session_id":"x","cmd":"id","extra_mounts":[{"host_path":"/tmp","mount_path":"/m"}]}`,
		`{"session_id":"x","cmd":"id","mount_path":"/other"}`,
		`{"session_id":"x","cmd":"id","workdir":"/workspace/../etc"}`,
		`{"session_id":"x","cmd":"id","host_path":"/srv"}`,
		`{"session_id":"x","cmd":"id","skill_name":"greet"}`,
		`{"session_id":"x","cmd":"id","isolation":"process"}`,
	} {
		w.about("box_exec", bad, in("w", 1)).want(t, "BoxAdmissionError: ")
	}
	w.about("box_get_session", `{"session_id":"other"}`, in("w", 1)).want(t, "BoxAdmissionError: Managed sandbox session_id is runtime-owned")
	w.about("box_get_session", `{"session_id":"global"}`, in("w", 1)).fields(t)
	w.about("box_start_managed_process", `{"session_id":"global","spec":{"command":"cat"}}`, in("w", 1)).want(t, "BoxAdmissionError: ")
	exec(in("w", 2)).want(t, "BoxAdmissionError: Sandbox admission grant belongs to another execution generation")

	// A replica renews it with a clock that is behind: the longer one stays.
	got = w.call(upsert, grantOf("w", 1, 1, 1, soon.Add(-time.Minute))).fields(t)
	if got["expires_at"] != "2026-08-01T12:04:00+00:00" {
		t.Errorf("a shorter renewal is %v", got)
	}
	w.call(upsert, grantOf("w", 1, 1, 0, soon)).want(t, "BoxAdmissionError: Sandbox admission limits changed")
	w.call(upsert, grantOf("w", 2, 2, 1, soon)).fields(t)
	if n := len(s.sessions.keys("box:" + spec.Key[:nsLen])); n != 0 {
		t.Errorf("%d sessions of the older generation are left", n)
	}
	w.call(upsert, grantOf("w", 1, 2, 1, soon)).want(t, "BoxAdmissionError: Sandbox admission execution generation is stale")
	w.call(upsert, grantOf("w", 2, 1, 1, soon)).want(t, "BoxAdmissionError: Sandbox admission grant revision is stale")
	exec(in("w", 2)).fields(t)

	const revoke = `{"instance_uuid":"i","workspace_uuid":"w","entitlement_revision":%d}`
	w.call(withdraw, fmt.Sprintf(revoke, 1)).want(t, "BoxAdmissionError: Sandbox admission revocation is stale")
	w.call(withdraw, fmt.Sprintf(revoke, 2)).fields(t)
	exec(in("w", 2)).want(t, "BoxAdmissionError: Sandbox admission grant is missing")
	w.call(upsert, grantOf("w", 2, 2, 1, soon)).want(t, "BoxAdmissionError: Sandbox admission grant revision was revoked")
	w.call(upsert, grantOf("w", 2, 3, 1, soon)).fields(t)
	exec(in("w", 2)).fields(t)
	c.set(soon)
	exec(in("w", 2)).want(t, "BoxAdmissionError: Sandbox admission grant has expired")
}

func TestExpiredGrantEndsItsSession(t *testing.T) {
	s, w, c := admitting(t, nil)
	w.call(upsert, grantOf("w", 1, 1, 1, noon.Add(time.Minute))).fields(t)
	w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)).fields(t)
	owner := "box:" + s.sessions.last().Key[:nsLen]
	c.set(noon.Add(time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it looks once
	if err := s.h.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.sessions.keys(owner); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// A workspace whose sessions take long to end keeps those of no other, and one
// whose grant was renewed meanwhile keeps its own.
func TestExpiredGrantsAreApart(t *testing.T) {
	s, w, c := admitting(t, nil)
	owners := map[string]string{}
	for _, name := range []string{"slow", "quick", "renewed"} {
		w.call(upsert, grantOf(name, 1, 1, 1, noon.Add(time.Minute))).fields(t)
		w.about("box_create_session", `{"session_id":"x"}`, in(name, 1)).fields(t)
		owners[name] = "box:" + s.sessions.last().Key[:nsLen]
	}
	s.sessions.hold(owners["slow"])
	c.set(noon.Add(time.Minute))
	w.call(upsert, grantOf("renewed", 1, 2, 1, noon.Add(2*time.Minute))).fields(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.h.Run(ctx) }()
	if !patience.Until(10*time.Second, func() bool { return len(s.sessions.keys(owners["quick"])) == 0 }) {
		t.Error("a workspace waits for another's session to end")
	}
	if got := s.sessions.keys(owners["renewed"]); len(got) != 1 {
		t.Errorf("of the one that was renewed there is %v", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRevocationsOutliveTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	soon := noon.Add(time.Minute)
	with := func(o *langbot.Options) { o.Ledger = path }
	t.Run("first", func(t *testing.T) {
		_, w, _ := admitting(t, with)
		w.call(upsert, grantOf("w", 1, 4, 1, soon)).fields(t)
		w.call(withdraw, `{"instance_uuid":"i","workspace_uuid":"w","entitlement_revision":4}`).fields(t)
	})
	t.Run("second", func(t *testing.T) {
		_, w, _ := admitting(t, with)
		w.call(upsert, grantOf("w", 1, 4, 1, soon)).want(t, "was revoked")
		w.call(upsert, grantOf("w", 1, 5, 1, soon)).fields(t)
	})
}

func TestAdmissionIsNotSwitchedOff(t *testing.T) {
	plain := func(o *langbot.Options) { o.Admission = nil }
	create := func(w *wire) answer { return w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)) }
	tests := []struct {
		name, init, want string
		change           func(*langbot.Options)
	}{
		{"never-asked-for", `{}`, "", plain},
		{"asked-for-by-a-host", `{"admission":{"required":true}}`, "BoxAdmissionError: Sandbox admission grant is missing", plain},
		{"malformed", `{"admission":{"required":false,"max_sessions":7}}`, "BoxReadinessError: ", plain},
		{"no-object", `{"admission":"off"}`, "BoxReadinessError: ", plain},
		{"unknown-field", `{"admission":{"required":false,"Required":false}}`, "BoxReadinessError: ", plain},
		{"another-wall", `{"admission":{"required":true,"required_backend":"docker"}}`, "BoxReadinessError: ", plain},
		{"operator-stands-above", `{"admission":{"required":false}}`, "BoxAdmissionError: Sandbox admission grant is missing", nil},
		{"operator's-malformed", `{}`, "BoxReadinessError: ", func(o *langbot.Options) { o.Admission = []byte(`{"required":0}`) }},
		{"a-check-does-not-hold", `{}`, "BoxReadinessError: Managed sandbox isolation is not ready (failed checks: bounded_ephemeral_storage, cgroup_v2", func(o *langbot.Options) { o.Readiness = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, w, _ := admitting(t, tt.change)
			w.call("box_init", tt.init).fields(t)
			if tt.want == "" {
				create(w).fields(t)
				return
			}
			create(w).want(t, tt.want)
			w.call("box_init", `{"admission":null}`).fields(t)
			if a := create(w); a.Code == 0 {
				t.Error("it was switched off")
			}
		})
	}
}

func TestReadinessWithAdmission(t *testing.T) {
	s, w, _ := admitting(t, func(o *langbot.Options) { o.Readiness = nil })
	w.call("box_health", `{}`).want(t, "BoxReadinessError: ")
	resp, err := http.Get(s.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %d", resp.StatusCode)
	}
	_, w, _ = admitting(t, nil) // the control
	if got := w.call("box_health", `{}`).fields(t); got["ready"] != true || got["mode"] != "grant_enforced" {
		t.Errorf("health = %v", got)
	}
}

func TestVerifyShared(t *testing.T) {
	dir := t.TempDir()
	probe := ".langbot-box-volume-probe-" + strings.Repeat("0a", 16)
	if err := os.WriteFile(filepath.Join(dir, probe), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := ".langbot-box-volume-probe-" + strings.Repeat("0b", 16)
	if err := os.Symlink(probe, filepath.Join(dir, link)); err != nil {
		t.Fatal(err)
	}
	w := serve(t, func(o *langbot.Options) { o.Shared = dir }).connect(t)
	ask := func(name string) answer {
		return w.call("box_verify_shared_workspace", fmt.Sprintf(`{"marker_name":%q}`, name))
	}
	got := ask(probe).fields(t)
	if got["sha256"] != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || got["size"] != 3. {
		t.Errorf("answer %v", got)
	}
	for _, bad := range []string{link, probe + "x", "../" + probe, "/etc/passwd", ""} {
		ask(bad).want(t, "BoxReadinessError: ")
	}
	serve(t, nil).connect(t).call("box_verify_shared_workspace", fmt.Sprintf(`{"marker_name":%q}`, probe)).want(t, "BoxReadinessError: ")
}
