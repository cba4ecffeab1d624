package agent_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
)

// fakeAgent sends events with nothing in them, and then, if it ends at all, an
// exit.
type fakeAgent struct {
	guestv1connect.UnimplementedExecServiceHandler
	events int // 0: without end
}

func (a fakeAgent) send(s *connect.ServerStream[guestv1.Event]) error {
	for i := 0; a.events == 0 || i < a.events; i++ {
		if err := s.Send(&guestv1.Event{}); err != nil {
			return err
		}
	}
	return s.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: &guestv1.Exit{Code: 7}}})
}

// Start implements the service.
func (a fakeAgent) Start(_ context.Context, _ *connect.Request[guestv1.StartRequest], s *connect.ServerStream[guestv1.Event]) error {
	return a.send(s)
}

// Follow implements the service.
func (a fakeAgent) Follow(_ context.Context, _ *connect.Request[guestv1.FollowRequest], s *connect.ServerStream[guestv1.Event]) error {
	return a.send(s)
}

// TestStallingAgent holds that an agent which goes on for ever without saying
// anything keeps nobody in the daemon.
func TestStallingAgent(t *testing.T) {
	cmd := &guestv1.Command{Argv: []string{"x"}}
	calls := map[string]func(g *agent.Guest) (*guestv1.Exit, error){
		"run": func(g *agent.Guest) (*guestv1.Exit, error) { return g.Run(t.Context(), cmd, nil) },
		"exec": func(g *agent.Guest) (*guestv1.Exit, error) {
			o, err := g.Exec(t.Context(), cmd, nil, agent.Keep{Head: 10})
			return o.Exit, err
		},
		"output": func(g *agent.Guest) (*guestv1.Exit, error) {
			g.Output(t.Context(), "x", 1<<40, func(bool, []byte) {})
			return nil, nil
		},
	}
	for name, call := range calls {
		for _, tt := range []struct {
			name   string
			events int
			err    error
		}{
			{"/for-ever", 0, stall.Err},
			{"/some", 100, nil},
		} {
			t.Run(name+tt.name, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.Handle(guestv1connect.NewExecServiceHandler(fakeAgent{events: tt.events}))
				srv := httptest.NewServer(mux)
				defer srv.Close()
				g := agent.New(func(ctx context.Context) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
				})
				defer g.Close()
				exit, err := call(g)
				if name == "output" {
					return // that it returns is all
				}
				if !errors.Is(err, tt.err) || (exit.GetCode() == 7) != (tt.err == nil) {
					t.Errorf("%v, %v; want %v", exit, err, tt.err)
				}
			})
		}
	}
}
