package daemon_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

func newHome(t *testing.T) home.Dirs {
	t.Helper()
	base := t.TempDir()
	d, err := home.Find(func(name string) string {
		if strings.HasPrefix(name, "XDG_") {
			return filepath.Join(base, strings.ToLower(name))
		}
		return ""
	}, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// running is a daemon in this process.
type running struct {
	t     *testing.T
	addrs []net.Addr
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

func run(t *testing.T, cfg daemon.Config, deps daemon.Deps) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, stop: cancel, done: make(chan struct{})}
	ready := make(chan []net.Addr, 1)
	deps.Ready = func(a []net.Addr) { ready <- a }
	deps.CPUs = 4
	go func() {
		defer close(r.done)
		r.err = daemon.Run(ctx, cfg, deps)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	select {
	case r.addrs = <-ready:
	case <-r.done:
		t.Fatalf("Run = %v", r.err)
	}
	return r
}

// end waits for Run and returns what it returned.
func (r *running) end() error {
	<-r.done
	return r.err
}

func dial(t *testing.T, dirs home.Dirs) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: reach.Socket(dirs)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func deps(wall *sandboxtest.Fake) daemon.Deps {
	return daemon.Deps{Backends: []sandbox.Backend{wall}, Version: "v1"}
}

func TestRun(t *testing.T) {
	dirs, wall := newHome(t), sandboxtest.New("gvisor")
	r := run(t, daemon.DefaultConfig(dirs), deps(wall))
	c := dial(t, dirs)
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.PID != os.Getpid() || st.Home != dirs.State || st.Version != "v1" || st.Auto || !cmp.Equal(st.Backends, []string{"gvisor"}) {
		t.Errorf("status = %+v", st)
	}
	sb, err := c.Create(t.Context(), api.CreateRequest{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if _, err := c.Get(t.Context(), "web"); client.KindOf(err) != client.Unavailable {
		t.Errorf("Get without a daemon = %v, want unavailable", err)
	}
	// Sandboxes go on; the next daemon has them.
	run(t, daemon.DefaultConfig(dirs), deps(wall))
	got, err := c.Get(t.Context(), sb.ID)
	if err != nil || got.State != "running" || got.Starts != 1 {
		t.Errorf("after another start: %+v, %v, want it running, started once", got, err)
	}
}

func TestRunTwice(t *testing.T) {
	dirs, wall := newHome(t), sandboxtest.New("gvisor")
	run(t, daemon.DefaultConfig(dirs), deps(wall))
	err := daemon.Run(t.Context(), daemon.DefaultConfig(dirs), deps(wall))
	if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "pid") {
		t.Errorf("a second Run = %v, want a conflict that names the pid", err)
	}
	// Another home is another world.
	run(t, daemon.DefaultConfig(newHome(t)), deps(sandboxtest.New("gvisor")))
}

func TestShutdown(t *testing.T) {
	dirs, wall := newHome(t), sandboxtest.New("gvisor")
	r := run(t, daemon.DefaultConfig(dirs), deps(wall))
	c := dial(t, dirs)
	sb, err := c.Create(t.Context(), api.CreateRequest{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	// Streams that would never end by themselves don't keep it.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Hold(ctx, sb.ID) })
	servertest.Wait(t, "the hold", func() bool { return held(t, c, sb.ID) })
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	cancel()
	wg.Wait()
	if got := wall.Running(); !cmp.Equal(got, []string{sb.ID}) {
		t.Errorf("running boxes = %v, want %s to go on", got, sb.ID)
	}
}

func held(t *testing.T, c *client.Client, id string) bool {
	t.Helper()
	_, err := c.Get(t.Context(), id)
	return err == nil
}

// runBriefly starts a daemon that leaves after 50 ms without work, with a
// sandbox "web" that an earlier one has left to it: so that it has work from
// its beginning, however late the first request comes.
func runBriefly(t *testing.T, dirs home.Dirs, with daemon.Deps) (*running, *client.Client) {
	t.Helper()
	cfg := daemon.DefaultConfig(dirs)
	r := run(t, cfg, with)
	c := dial(t, dirs)
	if _, err := c.Create(t.Context(), api.CreateRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	cfg.Auto, cfg.IdleExit = true, daemon.Duration(50*time.Millisecond)
	return run(t, cfg, with), c
}

func TestIdleExit(t *testing.T) {
	dirs, wall := newHome(t), sandboxtest.New("gvisor")
	r, c := runBriefly(t, dirs, deps(wall))
	select {
	case <-r.done:
		t.Fatalf("it left while a sandbox ran: %v", r.err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := c.Remove(t.Context(), "web", true); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	// A daemon in the foreground stays.
	cfg := daemon.DefaultConfig(dirs)
	cfg.IdleExit = daemon.Duration(50 * time.Millisecond)
	r = run(t, cfg, deps(wall))
	select {
	case <-r.done:
		t.Errorf("a daemon that nobody started left: %v", r.err)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestTCP(t *testing.T) {
	dirs, wall := newHome(t), sandboxtest.New("gvisor")
	secret, hash, err := key.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(`{"id":"a","hash":"`+hash+`","host_image":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := daemon.DefaultConfig(dirs)
	cfg.Listen, cfg.APIKeyFile = "127.0.0.1:0", keys
	r := run(t, cfg, deps(wall))
	c, err := client.New(client.Options{URL: "http://" + r.addrs[1].String(), Key: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	sb, err := c.Create(t.Context(), api.CreateRequest{})
	if err != nil || sb.Owner != "key:a" {
		t.Errorf("Create over TCP = %+v, %v", sb, err)
	}
	if err := c.Shutdown(t.Context()); client.KindOf(err) != client.Denied {
		t.Errorf("Shutdown over TCP = %v, want denied", err)
	}
	st, err := dial(t, dirs).Status(t.Context())
	if err != nil || len(st.Listen) != 1 || st.Listen[0] != r.addrs[1].String() {
		t.Errorf("status = %+v, %v", st, err)
	}
}

func TestConfig(t *testing.T) {
	tests := []struct {
		name, file string
		want       string // of the error of ReadConfig or Validate; "" for none
	}{
		{"none", "", ""},
		{"all", `{"listen":"127.0.0.1:3000","api_key_file":"/k","domain":"b.example","hosts":["h"],"mount_dirs":["~","/srv"],"idle_exit":"1m"}`, ""},
		{"unknown", `{"listne":"x"}`, `"listne"`},
		{"case-beside", `{"listen":"127.0.0.1:3000","Listen":"0.0.0.0:3000"}`, `"Listen"`},
		{"case", `{"Listen":"127.0.0.1:3000"}`, `"Listen"`},
		{"case-below", `{"limits":{"default":{"Sandboxes":1}}}`, `"limits.default.Sandboxes"`},
		{"case-in-a-box", `{"box":{"Listen":"127.0.0.1:3001"}}`, `"box.Listen"`},
		{"case-in-a-profile", `{"box":{"profiles":{"p":{"Network":"on"}}}}`, `"Network"`},
		{"case-in-a-server", `{"mcp_servers":{"files":{"run":["x"],"Run":["y"]}}}`, `Run`},
		{"case-in-a-policy", `{"build_network":"policy","build_policy":{"Rules":[]}}`, `Rules`},
		{"twice", `{"listen":"127.0.0.1:3000","listen":"0.0.0.0:3000"}`, "twice"},
		{"not-json", `listen = 1`, "not JSON"},
		{"tcp-without-a-file", `{"listen":"127.0.0.1:3000"}`, ""},
		{"keys-without-tcp", `{"api_key_file":"/k"}`, "no address"},
		{"no-port", `{"listen":"127.0.0.1","api_key_file":"/k"}`, "not an address"},
		{"no-idle", `{"idle_exit":"0s"}`, "idle_exit"},
		{"bad-duration", `{"idle_exit":"soon"}`, "idle_exit: \"soon\" is not a duration"},
		{"bad-domain", `{"domain":"A b"}`, "domain"},
		{"host-with-port", `{"hosts":["h:1"]}`, "hosts"},
		{"mcp-servers", `{"mcp_servers":{"files":{"run":["files","{paths}"],"env":{"A":"{b?}"}}}}`, ""},
		{"mcp-server-without-a-program", `{"mcp_servers":{"files":{"run":[]}}}`, "mcp_servers"},
		{"mcp-server-unknown-field", `{"mcp_servers":{"files":{"run":["x"],"image":"y"}}}`, "mcp_servers"},
		{"mounts-everything", `{"mount_dirs":["/"]}`, "mount_dirs"},
		{"mounts-relative", `{"mount_dirs":["srv"]}`, "mount_dirs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dirs := newHome(t)
			if tt.file != "" {
				if err := os.MkdirAll(dirs.Config, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dirs.Config, "config.json"), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg, err := daemon.ReadConfig(dirs)
			if err == nil {
				err = cfg.Validate()
			}
			if tt.want == "" {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want an invalid with %q", err, tt.want)
			}
		})
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"listen":"127.0.0.1:1","api_key_file":"/k","idle_exit":"1m","mount_dirs":["~/x"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := daemon.ReadConfig(home.Dirs{Config: dir})
		if err != nil || cfg.Validate() != nil {
			return
		}
		if _, err := json.Marshal(cfg); err != nil {
			t.Error(err)
		}
	})
}
