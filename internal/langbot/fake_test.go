package langbot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// fakeSessions remembers what was asked for, and runs nothing.
type fakeSessions struct {
	mu       sync.Mutex
	all      map[string]map[string]sessions.SessionInfo // by owner and key
	specs    []session.Spec
	cmd      session.Command         // of the last
	made     map[string]session.Spec // by owner and key
	declared map[string][]string
	result   *session.Result
	block    chan struct{} // Exec waits for it, or its context
	begun    chan struct{} // told when an Exec began to wait
	down     bool          // there is no wall
	stuck    bool          // DropAll fails
	held     string        // DropAll of that owner waits for its context
}

func newSessions() *fakeSessions {
	return &fakeSessions{all: map[string]map[string]sessions.SessionInfo{}, declared: map[string][]string{}, made: map[string]session.Spec{}, begun: make(chan struct{}, 16)}
}

var when = time.Date(2026, 6, 10, 12, 0, 0, 123456789, time.UTC)

func (s *fakeSessions) Declare(owner string, roots ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared[owner] = roots
}

func (s *fakeSessions) Create(_ context.Context, c sandbox.Caller, spec session.Spec) (sessions.SessionInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.specs = append(s.specs, spec)
	if is, ok := s.all[c.Owner][spec.Key]; ok {
		if differ := request.Differences(s.made[c.Owner+" "+spec.Key], spec); len(differ) > 0 {
			return is, fault.Conflict(spec.Key, differ)
		}
		return is, nil
	}
	if s.all[c.Owner] == nil {
		s.all[c.Owner] = map[string]sessions.SessionInfo{}
	}
	is := sessions.SessionInfo{
		SessionID: spec.Key, BackendName: "gvisor", BackendSessionID: "sb", Image: spec.Image, Network: spec.Network,
		HostPath: spec.Workspace.HostPath, HostPathMode: spec.Workspace.Mode, MountPath: spec.Workspace.Target, Persistent: spec.Persistent, CPUs: spec.CPUs,
		MemoryMB: int(spec.Memory >> 20), PIDsLimit: int(spec.PIDs), ReadOnlyRootFS: spec.ReadOnlyRoot, WorkspaceQuotaMB: int(spec.Workspace.Size >> 20),
		CreatedAt: when, LastUsedAt: when,
	}
	s.all[c.Owner][spec.Key], s.made[c.Owner+" "+spec.Key] = is, spec
	return is, nil
}

func (s *fakeSessions) Exec(ctx context.Context, c sandbox.Caller, spec session.Spec, cmd session.Command) (*session.Result, error) {
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	is, err := s.Create(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	if s.block != nil {
		s.begun <- struct{}{}
		select {
		case <-s.block:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	zero := 0
	r := session.Result{Backend: "gvisor", Status: sessions.StatusCompleted, ExitCode: &zero, Stdout: []byte("hello"), StdoutBytes: 5, Duration: 12 * time.Millisecond}
	if s.result != nil {
		r = *s.result
	}
	r.SessionID = is.SessionID
	return &r, nil
}

func (s *fakeSessions) Get(_ context.Context, c sandbox.Caller, id string) (sessions.SessionInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, ok := s.all[c.Owner][id]
	if !ok {
		return is, fault.NotFound(id)
	}
	return is, nil
}

func (s *fakeSessions) List(_ context.Context, c sandbox.Caller) (out []sessions.SessionInfo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, is := range s.all[c.Owner] {
		out = append(out, is)
	}
	slices.SortFunc(out, func(a, b sessions.SessionInfo) int { return strings.Compare(a.SessionID, b.SessionID) })
	return out, nil
}

func (s *fakeSessions) Delete(ctx context.Context, c sandbox.Caller, id string) error {
	if _, err := s.Get(ctx, c, id); err != nil {
		return err
	}
	return s.DropAll(ctx, c.Owner, func(key string) bool { return key == id })
}

// hold has DropAll of an owner wait for its context.
func (s *fakeSessions) hold(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = owner
}

func (s *fakeSessions) jam(stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck
}

func (s *fakeSessions) DropAll(ctx context.Context, owner string, match func(id string) bool) error {
	s.mu.Lock()
	held := s.held != "" && s.held == owner
	s.mu.Unlock()
	if held {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		return sandbox.Errorf(sandbox.Unavailable, "a session did not end")
	}
	for o, all := range s.all {
		for id := range all {
			if (owner == "" || owner == o) && (match == nil || match(id)) {
				delete(all, id)
			}
		}
	}
	return nil
}

func (s *fakeSessions) StartProcess(ctx context.Context, c sandbox.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	is, err := s.Get(ctx, c, id)
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	p := sessions.ProcessInfo{SessionID: id, ProcessID: spec.ProcessID, Status: sessions.ProcessRunning, Command: spec.Command, Cwd: spec.Cwd, StartedAt: when}
	if spec.Command == "gone" {
		p.Status = sessions.ProcessExited
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is.Processes = map[string]sessions.ProcessInfo{spec.ProcessID: p}
	s.all[c.Owner][id] = is
	return p, nil
}

func (s *fakeSessions) Process(ctx context.Context, c sandbox.Caller, id, pid string) (sessions.ProcessInfo, error) {
	is, err := s.Get(ctx, c, id)
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	p, ok := is.Processes[pid]
	if !ok {
		return p, fault.ProcessNotFound(id, pid)
	}
	return p, nil
}

func (s *fakeSessions) StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error {
	_, err := s.Process(ctx, c, id, pid)
	return err
}

func (s *fakeSessions) Status(ctx context.Context, c sandbox.Caller) (sessions.RuntimeStatus, error) {
	all, err := s.List(ctx, c)
	return sessions.RuntimeStatus{Backend: s.Backend(ctx), ActiveSessions: len(all), SessionTTLSec: 300}, err
}

func (s *fakeSessions) Backend(ctx context.Context) sessions.Backend {
	if s.down || ctx.Err() != nil {
		return sessions.Backend{}
	}
	name := "gvisor"
	return sessions.Backend{Name: &name, Available: true}
}

func (s *fakeSessions) keys(owner string) (out []string) {
	all, _ := s.List(context.Background(), sandbox.Caller{Owner: owner})
	for _, is := range all {
		out = append(out, is.SessionID)
	}
	return out
}

func (s *fakeSessions) last() session.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.specs[len(s.specs)-1]
}

// echoing is a process that writes what it reads.
type echoing struct {
	lines chan []byte
	done  context.Context
}

func (e *echoing) ReadLine(ctx context.Context) ([]byte, error) {
	select {
	case l, ok := <-e.lines:
		if !ok {
			return nil, io.EOF
		}
		return l, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.done.Done():
		return nil, context.Cause(e.done)
	}
}

func (e *echoing) WriteLine(ctx context.Context, l []byte) error {
	if string(l) == "end" {
		close(e.lines)
		return nil
	}
	select {
	case e.lines <- l:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *echoing) Close() error { return nil }

// server is a Handler over HTTP.
type server struct {
	*httptest.Server
	h        *langbot.Handler
	sessions *fakeSessions
}

const token = "0123456789abcdef0123456789abcdef"

func serve(t *testing.T, change func(*langbot.Options)) *server {
	t.Helper()
	s := newSessions()
	o := langbot.Options{
		Sessions: s, Owner: "uid:0", Limits: session.Config{}.WithDefaults().Limits,
		Attach: func(context.Context, sandbox.Caller, string, string, bool) (langbot.Attachment, error) {
			return &echoing{make(chan []byte, 8), context.Background()}, nil
		},
	}
	if change != nil {
		change(&o)
	}
	h, err := langbot.New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return &server{srv, h, s}
}

// wire is a client that knows nothing but text messages.
type wire struct {
	t   *testing.T
	c   *websocket.Conn
	seq int
}

func (s *server) dial(t *testing.T, path string, headers ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+path, &websocket.DialOptions{HTTPHeader: h, Host: h.Get("Host"), Subprotocols: []string{"mcp"}})
	if c != nil {
		c.SetReadLimit(16 << 20)
		t.Cleanup(func() { _ = c.CloseNow() })
	}
	return c, resp, err
}

func (s *server) connect(t *testing.T, headers ...string) *wire {
	t.Helper()
	c, _, err := s.dial(t, "/rpc/ws", headers...)
	if err != nil {
		t.Fatal(err)
	}
	return &wire{t: t, c: c}
}

func (w *wire) send(action, data, about string) int {
	w.t.Helper()
	w.seq++
	m := fmt.Sprintf(`{"seq_id": %d, "action": %q, "data": %s`, w.seq, action, data)
	if about != "" {
		m += `, "context": ` + about
	}
	if err := w.c.Write(w.t.Context(), websocket.MessageText, []byte(m+"}")); err != nil {
		w.t.Fatal(err)
	}
	return w.seq
}

// answer is a response as a client that knows no types reads it.
type answer struct {
	Seq     int             `json:"seq_id"`
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (w *wire) receive() (a answer) {
	w.t.Helper()
	_, b, err := w.c.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		w.t.Fatalf("%.200s: %v", b, err)
	}
	return a
}

// about is call in a context.
func (w *wire) about(action, data, about string) answer {
	w.t.Helper()
	seq := w.send(action, data, about)
	a := w.receive()
	if a.Seq != seq {
		w.t.Fatalf("%s: the answer is for %d, want %d", action, a.Seq, seq)
	}
	return a
}

func (w *wire) call(action, data string) answer {
	w.t.Helper()
	return w.about(action, data, "")
}

func (a answer) fields(t *testing.T) map[string]any {
	t.Helper()
	if a.Code != 0 {
		t.Fatalf("refused: %s", a.Message)
	}
	var m map[string]any
	if err := json.Unmarshal(a.Data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (a answer) want(t *testing.T, message string) {
	t.Helper()
	if a.Code != 1 || !strings.Contains(a.Message, message) || string(a.Data) != "{}" {
		t.Errorf("answer %d %q %s, want an error with %q", a.Code, a.Message, a.Data, message)
	}
}
