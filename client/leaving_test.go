package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/home"
)

// A request of which a daemon that leaves has done nothing goes to the next one, and
// no other request does.
func TestLeavingDaemon(t *testing.T) {
	const leaving = `{"code":"unavailable","message":"the daemon is shutting down","again":true}`
	tests := []struct {
		name    string
		next    []func(http.ResponseWriter)
		absent  bool // nobody listens until Redial
		kind    client.Kind
		redials int
	}{
		{name: "refused", next: []func(http.ResponseWriter){says(503, leaving), says(201, `{"id":"sb_1"}`)}, redials: 1},
		{name: "absent", absent: true, next: []func(http.ResponseWriter){says(201, `{"id":"sb_1"}`)}, redials: 1},
		{name: "other", next: []func(http.ResponseWriter){says(503, `{"code":"unavailable","message":"no"}`)}, kind: client.Unavailable},
		{name: "cut", next: []func(http.ResponseWriter){func(http.ResponseWriter) { panic(http.ErrAbortHandler) }}, kind: client.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{next: tt.next}
			socket := filepath.Join(t.TempDir(), "s")
			var servers []*httptest.Server
			listen := func() {
				l, err := home.Listen(socket)
				if err != nil {
					t.Fatal(err)
				}
				srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: a}}
				srv.Start()
				servers = append(servers, srv)
				t.Cleanup(srv.Close)
			}
			if !tt.absent {
				listen()
			}
			redials := 0
			c, err := client.New(client.Options{Socket: socket, Redial: func(context.Context) error {
				if redials++; tt.absent {
					listen()
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			sb, err := c.Create(t.Context(), api.CreateRequest{Name: "web"})
			for _, srv := range servers { // what was asked is all there
				srv.Close()
			}
			if client.KindOf(err) != tt.kind || err == nil && sb.ID != "sb_1" || redials != tt.redials {
				t.Errorf("Create = %v, %v, after %d redials", sb, err, redials)
			}
			if len(a.next) != 0 || len(slices.Compact(a.body)) != 1 {
				t.Errorf("asked %q with %q", a.seen, a.body)
			}
		})
	}
}
