package agent_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/agent"
)

// The agent is asked for its actions by their name. One that knows none is too old.
func TestActions(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		ok, old      bool
	}{
		{"answers", "HTTP/1.1 200 OK\r\n\r\n{\"shells\":[]}\n", true, false},
		{"knows-none", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", false, true},
		{"goes-away", "", false, false},
		{"is-broken", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			asked := make(chan string, 1)
			go func() {
				defer theirs.Close()
				req, err := http.ReadRequest(bufio.NewReader(theirs))
				if err != nil {
					asked <- err.Error()
					return
				}
				asked <- req.Method + " " + req.Host
				_, _ = io.WriteString(theirs, tt.answer)
			}()
			c, err := agent.Actions(t.Context(), ours)
			if got := <-asked; got != "CONNECT actions.carboy:5005" {
				t.Errorf("asked for %q", got)
			}
			if (err == nil) != tt.ok || errors.Is(err, agent.ErrOld) != tt.old {
				t.Fatalf("the error is %v", err)
			}
			if err != nil {
				return
			}
			defer c.Close()
			if raw, err := io.ReadAll(c); err != nil || string(raw) != "{\"shells\":[]}\n" {
				t.Errorf("read %q, %v", raw, err)
			}
		})
	}
}
