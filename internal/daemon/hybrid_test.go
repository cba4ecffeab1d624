package daemon_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client/guest"
	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// A sandbox has a socket while it runs, from one daemon to the next, which leads to the
// agent's action protocol and to its ports.
func TestSandboxesHaveSockets(t *testing.T) {
	dirs, wall, g := newHome(t), sandboxtest.New("gvisor"), servertest.NewGuest()
	g.Actions = func(line []byte) string {
		if !strings.Contains(string(line), "list_shells") {
			return `{"error":"what?"}`
		}
		return `{"shells":[]}`
	}
	wall.SetServer(func(id string, port int, c net.Conn) {
		if port == 8000 {
			_, _ = io.WriteString(c, "it is "+id)
			_ = c.Close()
			return
		}
		g.Serve(id, port, c)
	})
	t.Cleanup(g.Die)
	r := run(t, daemon.DefaultConfig(dirs), deps(wall))
	c := dial(t, dirs)
	sb, err := c.Create(t.Context(), api.CreateRequest{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dirs.Run)
	socket := filepath.Join("vsock", sb.ID+".sock") // a test's directory may have a long name
	answers := func(when string) {
		t.Helper()
		now, err := c.Get(t.Context(), "web")
		if err != nil || now.Socket != filepath.Join(dirs.Run, socket) {
			t.Errorf("%s it is at %q, %v", when, now.Socket, err)
		}
		list, err := guest.New(guest.System{}).ListShells(t.Context(), guest.Address{Port: action.Port, Socket: socket})
		if err != nil || len(list.Shells) != 0 {
			t.Errorf("%s: %+v, %v", when, list, err)
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "CONNECT 8000\n")
		if all, err := io.ReadAll(conn); !strings.HasSuffix(string(all), "\nit is "+sb.ID) || err != nil {
			t.Errorf("%s the port says %q, %v", when, all, err)
		}
	}
	gone := func(when string) {
		t.Helper()
		if left, err := os.ReadDir("vsock"); len(left) != 0 || err != nil {
			t.Errorf("%s there is %v, %v", when, left, err)
		}
	}
	answers("created")
	if _, err := c.Stop(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	gone("stopped")
	if _, err := c.Start(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	answers("started again")
	r.stop()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	gone("without a daemon")
	if err := os.WriteFile("vsock/stale.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, daemon.DefaultConfig(dirs), deps(wall))
	answers("adopted")
	if err := c.Remove(t.Context(), "web", true); err != nil {
		t.Fatal(err)
	}
	gone("removed")
}
