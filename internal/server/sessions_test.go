package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	by "github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

// fakeSessions is a server.Sessions without sandboxes: it remembers keys by
// owner.
type fakeSessions struct {
	mu     sync.Mutex
	keys   map[string]bool // "owner id"
	upload by.Upload
	caller by.Caller // the last one
}

func (f *fakeSessions) find(c by.Caller, id string) (sessions.SessionInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller = c
	if !f.keys[c.Owner+" "+id] {
		return sessions.SessionInfo{}, sandbox.Errorf(sandbox.NotFound, "session %s not found", id)
	}
	return sessions.SessionInfo{SessionID: id, Owner: c.Owner}, nil
}

func (f *fakeSessions) make(c by.Caller, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = map[string]bool{}
	}
	f.caller, f.keys[c.Owner+" "+id] = c, true
}

func (f *fakeSessions) Exec(_ context.Context, c by.Caller, id string, req sessions.ExecRequest) (sessions.ToolResult, error) {
	f.make(c, id)
	return sessions.ToolResult{SessionID: id, Stdout: req.Command, OK: true}, nil
}

func (f *fakeSessions) Create(_ context.Context, c by.Caller, req sessions.CreateRequest) (sessions.CreateResponse, error) {
	f.make(c, req.SessionID)
	return sessions.CreateResponse{SessionInfo: sessions.SessionInfo{SessionID: req.SessionID}}, nil
}

func (f *fakeSessions) Get(_ context.Context, c by.Caller, id string) (sessions.SessionInfo, error) {
	return f.find(c, id)
}

func (f *fakeSessions) List(_ context.Context, c by.Caller) (all []sessions.SessionInfo, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.keys {
		if owner, id, _ := strings.Cut(k, " "); owner == c.Owner || c.Admin {
			all = append(all, sessions.SessionInfo{SessionID: id})
		}
	}
	return all, nil
}

func (f *fakeSessions) Delete(_ context.Context, c by.Caller, id string) error {
	_, err := f.find(c, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, c.Owner+" "+id)
	return err
}

func (f *fakeSessions) StartProcess(_ context.Context, c by.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	_, err := f.find(c, id)
	return sessions.ProcessInfo{SessionID: id, ProcessID: spec.ProcessID}, err
}

func (f *fakeSessions) Process(_ context.Context, c by.Caller, id, process string) (sessions.ProcessInfo, error) {
	_, err := f.find(c, id)
	return sessions.ProcessInfo{SessionID: id, ProcessID: process}, err
}

func (f *fakeSessions) StopProcess(_ context.Context, c by.Caller, id, _ string) error {
	_, err := f.find(c, id)
	return err
}

func (*fakeSessions) Status(context.Context, by.Caller) sessions.Status {
	return sessions.Status{Available: true, Enabled: true, Profile: "default"}
}

func (f *fakeSessions) Tool(_ context.Context, c by.Caller, id, name string, request []byte) (any, error) {
	_, err := f.find(c, id)
	return map[string]string{name: string(request)}, err
}

func (f *fakeSessions) Deliver(_ context.Context, c by.Caller, id string, in tools.AttachmentsIn) (tools.AttachmentsDelivered, error) {
	_, err := f.find(c, id)
	var out tools.AttachmentsDelivered
	for _, a := range in.Files {
		out.Attachments = append(out.Attachments, tools.Delivered{Name: a.Name, Size: int64(len(a.Data))})
	}
	return out, err
}

func (f *fakeSessions) Collect(_ context.Context, c by.Caller, id string, _ tools.CollectRequest) (tools.Collected, error) {
	_, err := f.find(c, id)
	return tools.Collected{}, err
}

func (f *fakeSessions) Purge(_ context.Context, c by.Caller, id string) (tools.Purged, error) {
	_, err := f.find(c, id)
	return tools.Purged{Notices: []string{"purged " + id}}, err
}

func (*fakeSessions) Errors(by.Caller) []sessions.ErrorRecord { return nil }

func (*fakeSessions) Skills(context.Context, by.Caller) ([]sessions.Skill, error) {
	return nil, nil
}

func (f *fakeSessions) Skill(_ context.Context, c by.Caller, name string) (sessions.Skill, error) {
	_, err := f.find(c, name)
	return sessions.Skill{Name: name}, err
}

func (f *fakeSessions) RemoveSkill(_ context.Context, c by.Caller, name string) error {
	_, err := f.find(c, name)
	return err
}

func (f *fakeSessions) InstallSkills(_ context.Context, _ by.Caller, up by.Upload) ([]sessions.Skill, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.upload = up
	return []sessions.Skill{{Name: "one"}}, nil
}

// A key of any text is one segment of a path.
func TestSessionKeys(t *testing.T) {
	fake := &fakeSessions{}
	w := newTeams(t, nil)
	w.Kill()
	w.Options.Sessions = fake
	w.Start()
	for segment, id := range map[string]string{
		"person_alice": "person_alice", "a%20b": "a b", "~Li4": "..", "~YS8uLi9i": "a/../b", "~": "", "~4pi6": "☺",
	} {
		got := decode[sessions.ToolResult](t, w.want(t, 200, "acme", "POST", "/v1/sessions/"+segment+"/exec", `{"command":"true"}`))
		if got.SessionID != id {
			t.Errorf("segment %q is the key %q, want %q", segment, got.SessionID, id)
		}
	}
	longest := strings.Repeat("x", 1024)
	w.want(t, 200, "acme", "POST", "/v1/sessions/"+longest+"/exec", `{"command":"true"}`)
	for _, segment := range []string{"~%21", "~Li4=", "~_w", longest + "x", "~" + strings.Repeat("YWFh", 400)} {
		w.want(t, 400, "acme", "GET", "/v1/sessions/"+segment, "")
	}
	w.want(t, 400, "acme", "POST", "/v1/sessions/x/exec", `{"command":"true","nosuch":1}`)
}

// What a caller may have of a session goes by how it came.
func TestSessionCallers(t *testing.T) {
	fake := &fakeSessions{}
	w := newTeams(t, nil)
	w.Kill()
	w.Options.Sessions = fake
	w.Start()
	w.want(t, 200, "acme", "POST", "/v1/sessions", `{"session_id":"x"}`)
	if c := fake.caller; c.Owner != acme || c.Admin || c.HostPaths || !c.HostImage {
		t.Errorf("a key with host_image alone came as %+v", c)
	}
	w.want(t, 403, "reader", "POST", "/v1/sessions/x/exec", `{"command":"true"}`)
	if resp, body := w.do(t, request{method: "POST", path: "/v1/sessions", body: `{"session_id":"x"}`}); resp.StatusCode != 200 {
		t.Fatal(resp.Status, body)
	}
	if c := fake.caller; !c.Admin || !c.HostPaths || !c.HostImage {
		t.Errorf("the daemon's own user came as %+v", c)
	}
}

// An exec makes a session, so that it takes a key that may.
func TestSessionExecMakesOne(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	w.want(t, 403, "only "+string(key.Exec), "POST", "/v1/sessions/new/exec", `{"command":"true"}`)
	w.want(t, 200, "ours", "POST", "/v1/sessions/new/exec", `{"command":"true"}`)
}

func TestSkillUpload(t *testing.T) {
	fake := &fakeSessions{}
	w := newTeams(t, nil)
	w.Kill()
	w.Options.Sessions = fake
	w.Start()
	zip := []string{"Content-Type", "application/zip"}
	w.want(t, 200, "acme", "POST", "/v1/skills?filename=a.zip&source_path=x&source_path=y&preview=1", "PK", zip...)
	if up := fake.upload; string(up.Zip) != "PK" || up.Filename != "a.zip" || len(up.Paths) != 2 || !up.Preview {
		t.Errorf("the upload came as %+v", up)
	}
	w.want(t, 400, "acme", "POST", "/v1/skills?filename=a.zip&preview=yes", "PK", zip...)
	w.want(t, 400, "acme", "POST", "/v1/skills?nosuch=1", "PK", zip...)
	w.want(t, 400, "acme", "POST", "/v1/skills?filename=a.zip", strings.Repeat("x", 20<<20+1), zip...)
}

func TestNoSessions(t *testing.T) {
	w := newTeams(t, nil)
	for _, path := range []string{"/v1/sessions", "/v1/sessions/x", "/v1/session-status", "/v1/skills"} {
		w.want(t, http.StatusNotImplemented, "acme", "GET", path, "")
	}
}

// Administrators alone are told what all owners' sessions did.
func TestSessionMetrics(t *testing.T) {
	w := newTeams(t, nil)
	w.Kill()
	w.Options.SessionMetrics = func() session.Metrics {
		return session.Metrics{Sessions: 2, Execs: 40, QueueTime: 1500 * time.Millisecond}
	}
	w.Start()
	_, body := w.do(t, request{method: "GET", path: "/v1/metrics"})
	for _, want := range []string{"carboy_sessions 2", "carboy_session_execs_total 40", "carboy_session_queue_seconds_total 1.5"} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
	if body := w.want(t, 200, "acme", "GET", "/v1/metrics", ""); strings.Contains(body, "carboy_session") {
		t.Errorf("a team is told of all:\n%s", body)
	}
}

// Bodies of tools and attachments may be larger than others, and no larger than
// is said.
func TestSessionTools(t *testing.T) {
	fake := &fakeSessions{}
	w := newTeams(t, nil)
	w.Kill()
	w.Options.Sessions = fake
	w.Start()
	const write, files = "/v1/sessions/x/tools/write", "/v1/sessions/x/attachments"
	w.want(t, 404, "acme", "POST", write, `{"path":"f"}`)
	w.want(t, 200, "acme", "POST", "/v1/sessions", `{"session_id":"x"}`)
	big := `{"path":"f","content":"` + strings.Repeat("x", 2<<20) + `"}`
	if got := decode[map[string]string](t, w.want(t, 200, "acme", "POST", write, big)); got["write"] != big {
		t.Errorf("%d bytes came, want %d", len(got["write"]), len(big))
	}
	w.want(t, 400, "acme", "POST", write, strings.Repeat(" ", 16<<20+1))
	w.want(t, 403, "reader", "POST", write, `{"path":"f"}`)
	in := `{"query_id":"1","files":[{"name":"a","base64":"` + strings.Repeat("AAAA", 1<<20) + `"}]}`
	got := decode[tools.AttachmentsDelivered](t, w.want(t, 200, "acme", "POST", files, in))
	if len(got.Attachments) != 1 || got.Attachments[0].Size != 3<<20 {
		t.Errorf("got %+v", got)
	}
	w.want(t, 400, "acme", "POST", files, `{"query_id":"1","file":[]}`)
	w.want(t, 200, "acme", "POST", files+"/collect", `{"query_id":"1"}`)
	w.want(t, 400, "acme", "POST", files+"/collect", `{"query_id":1}`)
}

// Sessions that someone does not want are said to be off, and asking is no
// error.
func TestSessionsOff(t *testing.T) {
	w := newTeams(t, nil)
	w.Kill()
	w.Options.SessionsOff = "they are off"
	w.Start()
	if body := w.want(t, 200, "acme", "GET", "/v1/session-status", ""); !strings.Contains(body, `"connector_error":"they are off"`) || strings.Contains(body, `"enabled":true`) {
		t.Errorf("status %s", body)
	}
	for _, path := range []string{"/v1/sessions", "/v1/sessions/k", "/v1/session-errors", "/v1/skills"} {
		if body := w.want(t, 501, "acme", "GET", path, ""); !strings.Contains(body, "sessions: they are off") {
			t.Errorf("%s: %s", path, body)
		}
	}
}
