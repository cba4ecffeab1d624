package service_test

import (
	"context"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice/service"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// fakeRuntime answers as it is told to, and keeps what it was asked.
type fakeRuntime struct {
	stdout, stderr string
	stdoutBytes    int64
	exitCode       int
	timedOut       bool
	noBackend      bool
	err            error // of everything

	mu      sync.Mutex
	calls   int
	started []sessions.Spec // of sessions that were not there
	execs   []sessions.Spec
	deleted []string
}

func (f *fakeRuntime) use(spec sessions.Spec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.noBackend {
		return &sandbox.Error{Kind: sandbox.Unavailable, Msg: "no wall", Err: fault.ErrBackend}
	}
	if f.err != nil {
		return f.err
	}
	for _, s := range f.started {
		if s.SessionID == spec.SessionID {
			return nil
		}
	}
	f.started = append(f.started, spec)
	return nil
}

func (f *fakeRuntime) called() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.err
}

func (f *fakeRuntime) Exec(_ context.Context, spec sessions.Spec) (sessions.Result, error) {
	if err := f.use(spec); err != nil {
		return sessions.Result{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.execs = append(f.execs, spec)
	r := sessions.Result{
		SessionID: spec.SessionID, BackendName: "fake", Status: sessions.StatusCompleted, ExitCode: &f.exitCode, DurationMS: 12,
		Stdout: f.stdout, Stderr: f.stderr, StdoutBytes: max(f.stdoutBytes, int64(len(f.stdout))), StderrBytes: int64(len(f.stderr)),
		Notices: []string{"a notice"}, Limits: []string{"memory"},
	}
	if f.timedOut {
		r.Status, r.ExitCode = sessions.StatusTimedOut, nil
	}
	return r, nil
}

func (f *fakeRuntime) Create(_ context.Context, spec sessions.Spec) (sessions.SessionInfo, error) {
	return sessions.SessionInfo{SessionID: spec.SessionID, BackendName: "fake"}, f.use(spec)
}

func (f *fakeRuntime) Get(_ context.Context, id string) (sessions.SessionInfo, error) {
	return sessions.SessionInfo{SessionID: id}, f.called()
}

func (f *fakeRuntime) List(context.Context) ([]sessions.SessionInfo, error) {
	if err := f.called(); err != nil {
		return nil, err
	}
	return []sessions.SessionInfo{{SessionID: "test-session"}}, nil
}

func (f *fakeRuntime) Delete(_ context.Context, id string) error {
	f.deleted = append(f.deleted, id)
	return f.called()
}

func (f *fakeRuntime) StartProcess(_ context.Context, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	return sessions.ProcessInfo{SessionID: id, ProcessID: p.ProcessID}, f.called()
}

func (f *fakeRuntime) Process(_ context.Context, id, process string) (sessions.ProcessInfo, error) {
	return sessions.ProcessInfo{SessionID: id, ProcessID: process}, f.called()
}

func (f *fakeRuntime) StopProcess(context.Context, string, string) error { return f.called() }

func (f *fakeRuntime) Status(ctx context.Context) (sessions.RuntimeStatus, error) {
	b, err := f.Backend(ctx)
	return sessions.RuntimeStatus{Backend: b, ActiveSessions: len(f.started)}, err
}

func (f *fakeRuntime) Backend(context.Context) (sessions.Backend, error) {
	name := "fake"
	return sessions.Backend{Name: &name, Available: !f.noBackend}, f.called()
}

// fakeConnector connects to nothing.
type fakeConnector struct {
	webSocket      bool
	err            error
	onOpen         func()
	opened, closed int
}

func (c *fakeConnector) Open(context.Context) error {
	c.opened++
	if c.onOpen != nil {
		c.onOpen()
	}
	return c.err
}
func (c *fakeConnector) UsesWebSocket() bool { return c.webSocket }
func (c *fakeConnector) Close() error        { c.closed++; return nil }

func newService(t *testing.T, o service.Options) *service.Service {
	t.Helper()
	s, err := service.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// initialized returns a service that shares the file system of its runtime.
func initialized(t *testing.T, rt service.Runtime, change ...func(*service.Options)) *service.Service {
	t.Helper()
	o := service.Options{Runtime: rt, SharesFilesystem: func() bool { return true }}
	for _, f := range change {
		f(&o)
	}
	s := newService(t, o)
	s.Initialize(t.Context())
	return s
}

func roots(t *testing.T, c hostroot.Config) *hostroot.Roots {
	t.Helper()
	r, err := hostroot.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func query(id string) service.Query {
	return service.Query{
		ID: id, LauncherType: "person", LauncherID: "test_user", SenderID: "test_user",
		Variables: map[string]string{"launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user", "query_id": id},
	}
}
