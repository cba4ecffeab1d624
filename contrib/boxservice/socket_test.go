package boxservice_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// slow is a connection whose reading a test holds up.
type slow struct {
	rpc.Conn
	gate chan struct{} // a receive for each value, any number once it is closed
}

func (s *slow) Receive(ctx context.Context) ([]byte, error) {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Conn.Receive(ctx)
}

// TestGivenUpCall has a caller give up while half of its message is sent: the
// connection, which is everybody's, goes on.
func TestGivenUpCall(t *testing.T) {
	gate := make(chan struct{}, 1)
	gate <- struct{}{} // the handshake's
	connections := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections++
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		p := rpc.NewPeer(rpc.Options{
			Conn:  &slow{rpc.NewWebSocket(ws, rpc.WebSocketOptions{}), gate},
			Serve: func(_ context.Context, r *api.Request) (any, error) { return r.Data, nil },
		})
		_ = p.Run(context.Background())
	}))
	defer s.Close()
	c := newConnector(t, boxservice.Options{Endpoint: s.URL}, nil)
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := c.Client().Get(ctx, strings.Repeat("x", 15<<20)) // more than any buffer on its way holds
		given <- err
	}()
	other := make(chan error, 1)
	go func() {
		_, err := c.Client().Get(t.Context(), "other")
		other <- err
	}()
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was given up: %v", err)
	}
	close(gate)
	if err := <-other; err != nil {
		t.Errorf("a call beside it: %v", err)
	}
	if got, err := c.Client().Get(t.Context(), "next"); err != nil || got.SessionID != "next" || connections != 1 {
		t.Errorf("the next call: %v, %v, over connection %d", got.SessionID, err, connections)
	}
	c.Close()
}
