package boxservice_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

const testToken = "0123456789abcdef0123456789abcdef"

// relayed is a client whose relay is handler.
func relayed(t *testing.T, handler http.HandlerFunc) *boxservice.Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return newConnector(t, boxservice.Options{Endpoint: s.URL, Token: testToken, Instance: "me"}, nil).Client()
}

func TestAttach(t *testing.T) {
	asked := make(chan *http.Request, 1)
	c := relayed(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		for {
			kind, line, err := ws.Read(r.Context())
			if err != nil || kind != websocket.MessageText {
				return
			}
			if string(line) == "bye" {
				_ = ws.Close(websocket.StatusNormalClosure, "")
				return
			}
			if string(line) == "fail" {
				_ = ws.Close(websocket.StatusGoingAway, "the runtime ends")
				return
			}
			if ws.Write(r.Context(), websocket.MessageText, line) != nil {
				return
			}
		}
	})
	a, err := c.Attach(t.Context(), "person/x y", "p/1")
	if err != nil {
		t.Fatal(err)
	}
	r := <-asked
	if r.URL.EscapedPath() != "/v1/sessions/person%2Fx%20y/managed-process/p%2F1/ws" {
		t.Errorf("it attached to %s", r.URL.EscapedPath())
	}
	if r.Header.Get(api.HeaderControlToken) != testToken || r.Header.Get(api.HeaderInstance) != "me" {
		t.Errorf("it said %v", r.Header)
	}
	for _, line := range []string{"", `{"a": "ü"}`, strings.Repeat("x", 3<<20)} {
		if err := a.WriteLine(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
		got, err := a.ReadLine(t.Context())
		if err != nil || string(got) != line {
			t.Fatalf("%d bytes came back, of %d: %v", len(got), len(line), err)
		}
	}
	if err := a.WriteLine(t.Context(), []byte("a\nb")); boxservice.Class(err) != api.ClassValidation {
		t.Errorf("two lines at once: %v", err)
	}
	_ = a.WriteLine(t.Context(), []byte("bye"))
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("at its end: %v", err)
	}
	a.Close()

	scope := boxservice.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 7}
	b, err := c.For(scope).Attach(t.Context(), "s", "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r = <-asked
	if want := "/v1/sessions/" + rpc.KeyPrefix(scope) + "s" + "/managed-process/ws"; r.URL.Path != want {
		t.Errorf("it attached to %s, want %s", r.URL.Path, want)
	}
	if r.Header.Get(api.HeaderWorkspace) != "w" || r.Header.Get(api.HeaderGeneration) != "7" || r.Header.Get(api.HeaderInstance) != "i" {
		t.Errorf("it said %v", r.Header)
	}
	_ = b.WriteLine(t.Context(), []byte("fail"))
	if _, err := b.ReadLine(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) || !strings.Contains(err.Error(), "the runtime ends") {
		t.Errorf("when the runtime ends: %v", err)
	}
}

func TestAttachmentEnds(t *testing.T) {
	for reason, end := range map[string]bool{"": true, api.RelayEnded: true, "another one took over": false} {
		c := relayed(t, func(w http.ResponseWriter, r *http.Request) {
			if ws, err := websocket.Accept(w, r, nil); err == nil {
				_ = ws.Close(websocket.StatusNormalClosure, reason)
			}
		})
		a, err := c.Attach(t.Context(), "s", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = a.ReadLine(t.Context()); errors.Is(err, io.EOF) != end || !end && !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", reason, err)
		}
		// Who writes at that moment is told the same.
		if werr := a.WriteLine(t.Context(), []byte("x")); werr != err {
			t.Errorf("%q: who writes is told: %v", reason, werr)
		}
		a.Close()
	}
}

func TestAttachRefused(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		class      string
		is         error
	}{
		{"no-session", `{"error": {"code": "BoxSessionNotFoundError", "message": "session x not found"}}`, 400, api.ClassSessionNotFound, boxservice.ErrNotFound},
		{"no-process", `{"error": {"code": "BoxManagedProcessNotFoundError", "message": "no"}}`, 400, api.ClassProcessNotFound, boxservice.ErrProcessNotFound},
		{"ended", `{"error": {"code": "BoxManagedProcessConflictError", "message": "no"}}`, 400, api.ClassProcessConflict, boxservice.ErrProcessConflict},
		{"token", `no`, 401, api.ClassValidation, nil},
		{"elsewhere", ``, 307, api.ClassError, nil},
		{"other", strings.Repeat("x", 1<<20), 500, api.ClassError, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := relayed(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("the token went elsewhere")
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Attach(t.Context(), "x", "")
			if boxservice.Class(err) != tt.class || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v of class %s", err, boxservice.Class(err))
			}
			if strings.Contains(err.Error(), testToken) {
				t.Error("the token is in the error")
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		c := newConnector(t, boxservice.Options{Endpoint: s.URL}, nil).Client()
		if _, err := c.Attach(context.Background(), "x", ""); !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRefusedAtTheDoor has a runtime refuse the connection itself.
func TestRefusedAtTheDoor(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	c := newConnector(t, boxservice.Options{Endpoint: s.URL, Token: testToken}, nil)
	err := c.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "control token") || strings.Contains(err.Error(), testToken) {
		t.Errorf("got %v", err)
	}
}
