package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// boxWorld is a home whose daemon serves Box.
type boxWorld struct {
	*home
	addr   string
	root   string // a directory of the host that sessions may be given
	client *boxservice.Client
	conn   *boxservice.Connector
	daemon *exec.Cmd
	ended  chan struct{} // the daemon did
}

// newBoxWorld makes one whose sessions are behind a wall. settings are further
// ones of the section "box".
func newBoxWorld(t *testing.T, wall string, settings map[string]any) *boxWorld {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w := &boxWorld{home: newHome(t), root: filepath.Join(t.TempDir(), "root")}
	if err := os.MkdirAll(w.root, 0o755); err != nil {
		t.Fatal(err)
	}
	w.addr = freeAddr(t)
	section := map[string]any{"isolation": wall, "allowed_mount_roots": []string{w.root}}
	for k, v := range settings {
		section[k] = v
	}
	all := map[string]any{"box": section}
	if pool, ok := section["pool"]; ok { // which is the daemon's
		all["pool"] = pool
		delete(section, "pool")
	}
	config, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.dir, "config", "carboy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	w.serve()
	w.conn = w.connect(t, boxservice.Options{})
	w.client = w.conn.Client()
	t.Cleanup(func() { w.drop(t) })
	return w
}

// freeAddr is one at which nobody listens, for a daemon that is to be found
// there again after its end. The kernel gives its port to nobody who asks for
// any port, which would be taken while no daemon has it.
func freeAddr(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	const lowest = 10000
	first := 0
	if _, err := fmt.Sscan(string(text), &first); err != nil || first <= lowest {
		t.Fatalf("the kernel gives away ports from %q on: none is left for a test, %v", text, err)
	}
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(first-lowest)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// serve starts the daemon, and waits until it answers.
func (w *boxWorld) serve() {
	w.t.Helper()
	w.daemon = w.command(context.Background(), "langbot", "serve", "--listen", w.addr)
	log, err := os.OpenFile(filepath.Join(w.dir, "serve.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.daemon.Stdout, w.daemon.Stderr = log, log
	if err := w.start(w.daemon); err != nil {
		w.t.Fatal(err)
	}
	daemon, ended := w.daemon, make(chan struct{})
	w.ended = ended
	go func() {
		defer close(ended)
		_ = daemon.Wait()
	}()
	until(w.t, func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			w.t.Fatalf("carboy langbot serve ended:\n%s", tail(text, 4000))
		default:
		}
		resp, err := http.Get("http://" + w.addr + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// kill kills the daemon with -9.
func (w *boxWorld) kill() {
	w.t.Helper()
	if err := w.daemon.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	<-w.ended
}

// connect returns a connector of one's own.
func (w *boxWorld) connect(t *testing.T, o boxservice.Options) *boxservice.Connector {
	t.Helper()
	o.Endpoint = "ws://" + w.addr
	c, err := boxservice.NewConnector(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// service returns a service over a connection of its own.
func (w *boxWorld) service(t *testing.T, c boxservice.Config) *boxservice.Service {
	t.Helper()
	c.Connect.Endpoint = "ws://" + w.addr
	here := true
	c.SharesFilesystem = &here
	s, err := boxservice.NewService(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.Open(t.Context())
	if !s.Available() {
		t.Fatalf("the service is not available: %s", s.Status(t.Context()).ConnectorError)
	}
	return s
}

// run runs a subtest that finds no sessions, and leaves none.
func (w *boxWorld) subtest(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() { w.drop(t) })
		f(t)
	})
}

// drop ends all sessions.
func (w *boxWorld) drop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(time.Minute))
	defer cancel()
	if err := w.client.Shutdown(ctx); err != nil {
		t.Errorf("drop the sessions: %v", err)
	}
}

// dirs makes directories below the root, and returns their paths.
func (w *boxWorld) dirs(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(w.root, filepath.Base(t.Name()), name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// sessions are those that there are, by key.
func (w *boxWorld) sessions(t *testing.T) map[string]boxservice.SessionInfo {
	t.Helper()
	list, err := w.client.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]boxservice.SessionInfo{}
	for _, s := range list {
		m[s.SessionID] = s
	}
	return m
}

// exec runs a command that is to end with 0, and returns its output.
func (w *boxWorld) exec(t *testing.T, session, cmd string) string {
	t.Helper()
	r, err := w.client.Exec(t.Context(), boxservice.NewSpec(session, cmd))
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%s: %+v", cmd, r)
	}
	return r.Stdout
}

// chat is a query as a chat's message is one.
func chat(id string) boxservice.Query {
	return boxservice.Query{
		ID: id, LauncherType: "person", LauncherID: "test_user", SenderID: "test_user",
		Variables: map[string]string{"launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user", "query_id": id},
	}
}

// runTool runs a command for an agent.
func runTool(t *testing.T, s *boxservice.Service, q boxservice.Query, command string) boxservice.ToolResult {
	t.Helper()
	r, err := s.ExecuteTool(t.Context(), q, map[string]any{"command": command})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return r
}
