package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/agent"
)

// guestOf is a client of an agent that answers with h.
func guestOf(t *testing.T, h http.HandlerFunc) *agent.Guest {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	g := agent.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	})
	t.Cleanup(g.Close)
	return g
}

// An agent's words are escaped and bounded where they are shown, and not shown
// elsewhere.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		code   int
		body   string
		want   string // of the error; "" is none
		longer bool   // than want
	}{
		{"good", http.StatusNoContent, "", "", false},
		{"no-user", http.StatusPreconditionFailed, "s3cret", "guest agent: GET /health: status 412", false},
		{"conflict", http.StatusConflict, "/tmp/\x1b[2Jx\n", `guest agent: /tmp/\x1b[2Jx`, false},
		{"endless-conflict", http.StatusConflict, strings.Repeat("x", 1<<20), "guest agent: xxx", true},
		{"redirect", http.StatusFound, "", "guest agent: GET /health: status 302", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := guestOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.code)
				_, _ = io.WriteString(w, tt.body)
			}).Health(t.Context())
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, ok := errors.AsType[*agent.StatusError](err)
			if !ok || e.Code != tt.code {
				t.Fatalf("got %v", err)
			}
			if got := err.Error(); got != tt.want && !(tt.longer && strings.HasPrefix(got, tt.want) && len(got) < 300) {
				t.Errorf("got %.400q, want %q", got, tt.want)
			}
		})
	}
}

// A redirect is an answer, wherever it leads.
func TestDoFollowsNoRedirect(t *testing.T) {
	g := guestOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/asked" {
			t.Errorf("it was asked for %s", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	resp, err := g.Do(t.Context(), http.MethodGet, "/asked", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A hold lasts until it is released, and no longer.
func TestHold(t *testing.T) {
	over := make(chan struct{})
	g := guestOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(over)
	})
	release, err := g.Hold(t.Context(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
		t.Error("it is over already")
	default:
	}
	release()
	<-over
}
