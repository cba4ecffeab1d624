package langbot_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// turns gives one echoing process to one attachment at a time.
type turns struct {
	mu     sync.Mutex
	turn   chan struct{} // has one while nobody is attached
	cancel context.CancelCauseFunc
	lines  chan []byte
}

var errTaken = sandbox.Errorf(sandbox.Conflict, "another reader took over")

func (a *turns) attach(ctx context.Context, _ sandbox.Caller, _, _ string, takeover bool) (langbot.Attachment, error) {
	if takeover {
		a.mu.Lock()
		a.cancel(errTaken)
		a.mu.Unlock()
	}
	select {
	case <-a.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	done, cancel := context.WithCancelCause(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel = cancel
	return &attached{echoing{a.lines, done}, a}, nil
}

type attached struct {
	echoing
	of *turns
}

func (a *attached) Close() error {
	a.of.turn <- struct{}{}
	return nil
}

func relaying(t *testing.T) (*server, *wire) {
	a := &turns{turn: make(chan struct{}, 1), lines: make(chan []byte, 8)}
	a.turn <- struct{}{}
	s := serve(t, func(o *langbot.Options) { o.Attach = a.attach })
	w := s.connect(t, api.HeaderInstance, "i")
	w.call("box_create_session", `{"session_id":"s"}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
	return s, w
}

func say(t *testing.T, c *websocket.Conn, line string) string {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(line)); err != nil {
		t.Fatal(err)
	}
	return hear(t, c)
}

func hear(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_, b, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const relayPath = "/v1/sessions/s/managed-process/default/ws"

func TestRelay(t *testing.T) {
	s, _ := relaying(t)
	attach := func(path string) *websocket.Conn {
		t.Helper()
		c, _, err := s.dial(t, path)
		if err != nil {
			t.Fatal(err)
		}
		if c.Subprotocol() != "mcp" {
			t.Errorf("subprotocol %q", c.Subprotocol())
		}
		return c
	}
	first := attach(relayPath)
	for _, line := range []string{`{"id":1}`, "", "é", strings.Repeat("x", 1<<20)} {
		if got := say(t, first, line); got != line {
			t.Errorf("%d bytes came back as %d", len(line), len(got))
		}
	}
	if got := say(t, first, "a\xffb"); got != "a\ufffdb" {
		t.Errorf("what is no UTF-8 came as %q", got)
	}
	// Another waits its turn, and what it said waits with it.
	second := attach("/v1/sessions/s/managed-process/ws")
	if err := second.Write(t.Context(), websocket.MessageText, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if got := say(t, first, "still me"); got != "still me" {
		t.Errorf("the first reads %q", got)
	}
	_ = first.Close(websocket.StatusNormalClosure, "")
	if got := hear(t, second); got != "mine" {
		t.Errorf("the second reads %q", got)
	}
	// Who takes over does not wait.
	third := attach(relayPath + "?takeover=1")
	if _, _, err := second.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure || !strings.Contains(err.Error(), errTaken.Msg) {
		t.Errorf("the one before ends with %v", err)
	}
	if got := say(t, third, "now me"); got != "now me" {
		t.Errorf("who took over reads %q", got)
	}
	if err := third.Write(t.Context(), websocket.MessageText, []byte("end")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := third.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("a process that ended its output: %v", err)
	}
}

// deaf is a process that has closed its input, and writes more than it was
// asked for.
type deaf struct {
	echoing
	told chan struct{} // has one for each line that was not taken
}

func (d *deaf) WriteLine(context.Context, []byte) error {
	d.told <- struct{}{}
	return &sandbox.Error{Kind: sandbox.Conflict, Msg: "it reads no more", Err: io.ErrClosedPipe}
}

// Who writes to a process that ends at that moment has all it wrote, and is
// told that it ended in order.
func TestRelayAfterTheInput(t *testing.T) {
	d := &deaf{echoing{make(chan []byte, 8), context.Background()}, make(chan struct{}, 8)}
	s := serve(t, func(o *langbot.Options) {
		o.Attach = func(context.Context, sandbox.Caller, string, string, bool) (langbot.Attachment, error) { return d, nil }
	})
	w := s.connect(t)
	w.call("box_create_session", `{"session_id":"s"}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
	c, _, err := s.dial(t, relayPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-d.told
	for _, line := range []string{"one", "two"} {
		d.lines <- []byte(line)
		if err := c.Write(t.Context(), websocket.MessageText, []byte("more")); err != nil {
			t.Fatal(err)
		}
		if got := hear(t, c); got != line {
			t.Errorf("read %q, want %q", got, line)
		}
	}
	close(d.lines)
	var closed websocket.CloseError
	if _, _, err := c.Read(t.Context()); !errors.As(err, &closed) || closed.Reason != api.RelayEnded {
		t.Errorf("the relay ends with %v", err)
	}
}

// Who waited for a process's output that another has read to its end is told
// that the process ended in order.
func TestRelayThatWaited(t *testing.T) {
	s := serve(t, func(o *langbot.Options) {
		o.Attach = func(context.Context, sandbox.Caller, string, string, bool) (langbot.Attachment, error) {
			return nil, &sandbox.Error{Kind: sandbox.Conflict, Msg: "it is not running", Err: io.EOF}
		}
	})
	w := s.connect(t)
	w.call("box_create_session", `{"session_id":"s"}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
	c, _, err := s.dial(t, relayPath)
	if err != nil {
		t.Fatal(err)
	}
	var closed websocket.CloseError
	if _, _, err := c.Read(t.Context()); !errors.As(err, &closed) || closed.Reason != api.RelayEnded {
		t.Errorf("the relay ends with %v", err)
	}
}

func TestRelayRefusals(t *testing.T) {
	s, w := relaying(t)
	w.call("box_create_session", `{"session_id":"u"}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"u","spec":{"command":"gone"}}`).fields(t)
	w.about("box_create_session", `{"session_id":"t"}`, in("w", 2)).fields(t)
	w.about("box_start_managed_process", `{"session_id":"t","spec":{"command":"cat"}}`, in("w", 2)).fields(t)
	var owner string
	for o := range s.sessions.all {
		if strings.HasPrefix(o, "box:") {
			owner = o
		}
	}
	theirs := "/v1/sessions/" + s.sessions.keys(owner)[0] + "/managed-process/default/ws"
	headers := func(instance, workspace, generation string) []string {
		return []string{api.HeaderInstance, instance, api.HeaderWorkspace, workspace, api.HeaderGeneration, generation}
	}
	tests := []struct {
		name, path string
		headers    []string
		status     int
		body       string
	}{
		{"no-session", "/v1/sessions/x/managed-process/default/ws", nil, 400, `"code":"BoxSessionNotFoundError"`},
		{"no-process", "/v1/sessions/s/managed-process/x/ws", nil, 400, `"code":"BoxManagedProcessNotFoundError"`},
		{"not-running", "/v1/sessions/u/managed-process/default/ws", nil, 400, `"code":"BoxManagedProcessConflictError"`},
		{"page", relayPath, []string{"Origin", "http://127.0.0.1"}, 403, ""},
		{"another-instance", theirs, headers("j", "w", "2"), 401, ""},
		{"older-generation", theirs, headers("i", "w", "1"), 401, ""},
		{"newer-generation", theirs, headers("i", "w", "3"), 401, ""},
		{"another-workspace", theirs, headers("i", "v", "2"), 401, ""},
		{"without-the-workspace", theirs, []string{api.HeaderInstance, "i"}, 401, ""},
		{"of-no-workspace-by-an-instance-with-some", relayPath, []string{api.HeaderInstance, "i"}, 401, ""},
		{"without-the-generation", theirs, []string{api.HeaderInstance, "i", api.HeaderWorkspace, "w"}, 401, ""},
		{"generation-otherwise-written", theirs, headers("i", "w", "+2"), 401, ""},
		{"a-session-of-no-workspace", relayPath, headers("i", "w", "2"), 401, ""},
		{"the-control", theirs, headers("i", "w", "2"), 101, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, resp, err := s.dial(t, tt.path, tt.headers...)
			if resp == nil || resp.StatusCode != tt.status {
				t.Fatalf("%v, %v, want %d", resp, err, tt.status)
			}
			if tt.body != "" {
				b, _ := io.ReadAll(resp.Body)
				if !strings.Contains(string(b), tt.body) {
					t.Errorf("body %s, want %s", b, tt.body)
				}
			}
		})
	}
}

func TestNewerGenerationEndsRelays(t *testing.T) {
	s, w := relaying(t)
	w.about("box_create_session", `{"session_id":"t"}`, in("w", 1)).fields(t)
	w.about("box_start_managed_process", `{"session_id":"t","spec":{"command":"cat"}}`, in("w", 1)).fields(t)
	var path string
	for o := range s.sessions.all {
		if strings.HasPrefix(o, "box:") {
			path = "/v1/sessions/" + s.sessions.keys(o)[0] + "/managed-process/default/ws"
		}
	}
	c, _, err := s.dial(t, path, api.HeaderInstance, "i", api.HeaderWorkspace, "w", api.HeaderGeneration, "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, c, "x"); got != "x" {
		t.Errorf("read %q", got)
	}
	w.about("box_get_sessions", `{}`, in("w", 2)).fields(t)
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the relay ends with %v", err)
	}
}

func TestRelayNeedsTheToken(t *testing.T) {
	s := serve(t, func(o *langbot.Options) { o.Token = token })
	w := s.connect(t, api.HeaderControlToken, token)
	w.call("box_create_session", `{"session_id":"s"}`).fields(t)
	w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
	if _, resp, err := s.dial(t, relayPath); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %v", err)
	}
	if _, _, err := s.dial(t, relayPath, api.HeaderControlToken, token); err != nil {
		t.Errorf("with it: %v", err)
	}
}

func TestClosingEndsRelays(t *testing.T) {
	s, _ := relaying(t)
	c, _, err := s.dial(t, relayPath)
	if err != nil {
		t.Fatal(err)
	}
	say(t, c, "x")
	closed := make(chan error, 1)
	go func() { closed <- s.h.Close() }()
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the relay ends with %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
