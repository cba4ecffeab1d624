package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	envd "github.com/carboy-sandbox/carboy/api/envd/process"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func init() { runtime.LockOSThread() }

// TestMain is also the agent and its init.
func TestMain(m *testing.M) {
	if os.Getenv("CARBOY_TEST_AGENT") != "" {
		if err := beAgent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beAgent() error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	f := os.NewFile(control.ConfigFD, "configuration")
	defer f.Close()
	cfg, err := control.ParseConfig(f)
	if err != nil {
		return err
	}
	socket, err := control.Open(control.SocketFD, control.Key(cfg.Key))
	if err != nil {
		return err
	}
	return guest.Run(ctx, cfg, socket, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// instance is an agent that is pid 1, as in a sandbox.
type instance struct {
	t    *testing.T
	dir  string // hidden, with the name of the agent's socket in it
	http *http.Client
	h2   *http.Client
	exec guestv1connect.ExecServiceClient
	n    int
	wake func() // ends a suspension
}

const socketName = "agent.sock"

// start runs an agent whose configuration is changed by set, in another root
// where one is named.
func start(t *testing.T, set func(*control.Config), root string) *instance {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "carboy-agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Skip("mount:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })

	key := control.NewKey()
	cfg := control.Config{
		ID: "sb_test", Key: key[:], Hide: []string{dir},
		Cwd: "/tmp", Env: map[string]string{"FROM": "config"}, PIDs: 100, AllowRoot: true, PIDNamespace: true,
		DiskPaths: []string{"/"},
	}
	if set != nil {
		set(&cfg)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	handle, err := beneath.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	b := &instance{t: t, dir: dir}
	b.wake = func() {
		if err := control.Wake(t.Context(), handle, socketName, key); err != nil {
			t.Fatal(err)
		}
	}
	b.spawn(config, handle, root)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return control.Dial(ctx, handle, socketName, key)
	}
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	b.http = &http.Client{Transport: &http.Transport{DialContext: dial}}
	b.h2 = &http.Client{Transport: &http.Transport{DialContext: dial, Protocols: &h2}}
	b.exec = guestv1connect.NewExecServiceClient(b.h2, "http://agent")
	t.Cleanup(b.http.CloseIdleConnections)
	t.Cleanup(b.h2.CloseIdleConnections)
	b.await()
	return b
}

// spawn starts the agent in a pid and mount namespace, and ends it with the
// test: it must go by itself when it is asked to.
func (b *instance) spawn(config string, handle *beneath.Dir, root string) {
	program, err := os.Open("/dev/null") // it was executed by its path
	if err != nil {
		b.t.Fatal(err)
	}
	defer program.Close()
	socket, err := control.Bind(handle, socketName)
	if err != nil {
		b.t.Fatal(err)
	}
	defer socket.Close()
	told, err := os.Open(config)
	if err != nil {
		b.t.Fatal(err)
	}
	defer told.Close()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	// What the agent writes below /etc is no file of this machine.
	etc, err := os.MkdirTemp(filepath.Dir(config), "etc")
	if err == nil {
		err = errors.Join(os.Mkdir(etc+"/upper", 0o755), os.Mkdir(etc+"/work", 0o755))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	const apart = `mount -t overlay -o "lowerdir=/etc,upperdir=$0/upper,workdir=$0/work" etc /etc && exec "$1"`
	args := []string{"--mount", "--pid", "--ipc", "--fork", "--mount-proc", "sh", "-c", apart, etc, self}
	if root != "" {
		// The agent and its directory are where they are outside.
		dir := filepath.Dir(config)
		data, err := os.ReadFile(self)
		if err == nil {
			self = filepath.Join(dir, "agent")
			err = errors.Join(os.WriteFile(self, data, 0o755), os.MkdirAll(root+dir, 0o755), unix.Mount(dir, root+dir, "", unix.MS_BIND, ""))
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = unix.Unmount(root+dir, unix.MNT_DETACH) })
		const enter = `cd "$0" && pivot_root . mnt && cd / && mount -t proc proc /proc && umount -l /mnt && exec "$1"`
		args = []string{"--mount", "--pid", "--ipc", "--fork", "sh", "-c", enter, root, self}
	}
	log := &bytes.Buffer{}
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), "CARBOY_TEST_AGENT=yes")
	cmd.ExtraFiles = []*os.File{program, socket, told}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		if err == nil {
			var pid int
			if _, err = fmt.Sscan(string(children), &pid); err == nil {
				err = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if err != nil {
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("the agent ended with %v", err)
		}
		if b.t.Failed() {
			b.t.Logf("the agent's log:\n%s", log)
		}
	})
}

func (b *instance) await() {
	b.t.Helper()
	var err error
	answers := patience.Until(20*time.Second, func() bool {
		var res *http.Response
		if res, err = b.http.Get("http://agent/health"); err != nil {
			return false
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNoContent {
			b.t.Fatalf("health: %s", res.Status)
		}
		return true
	})
	if !answers {
		b.t.Fatal(err)
	}
}

func (b *instance) get(path string, into any) {
	b.t.Helper()
	res, err := b.http.Get("http://agent" + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s, %v: %s", path, res.Status, err, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		b.t.Fatalf("%s: %v: %s", path, err, body)
	}
}

func (b *instance) post(path, body string) int {
	b.t.Helper()
	res, err := b.http.Post("http://agent"+path, "application/json", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// sh runs a script and returns its standard output and exit.
func (b *instance) sh(user, script string) (string, *guestv1.Exit) {
	b.t.Helper()
	b.n++
	stream, err := b.exec.Start(b.t.Context(), connect.NewRequest(&guestv1.StartRequest{
		Id: fmt.Sprint("c", b.n), Command: &guestv1.Command{Argv: []string{"sh", "-c", script}, User: user, TimeoutMs: 30_000},
	}))
	if err != nil {
		b.t.Fatal(err)
	}
	defer stream.Close()
	var out bytes.Buffer
	var end *guestv1.Exit
	for stream.Receive() {
		if o := stream.Msg().GetOutput(); o.GetStream() == guestv1.Stream_STREAM_STDOUT {
			out.Write(o.GetData())
		}
		if e := stream.Msg().GetExit(); e != nil {
			end = e
		}
	}
	if err := stream.Err(); err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return out.String(), end
}

func TestCommands(t *testing.T) {
	b := start(t, nil, "")
	out, end := b.sh("", "id -u; pwd; echo $FROM; exit 3")
	if out != "1000\n/tmp\nconfig\n" || end.GetCode() != 3 {
		t.Errorf("got %q, %v", out, end)
	}
	if out, _ := b.sh("root", "id -u"); out != "0\n" {
		t.Errorf("root: %q", out)
	}
}

// Nothing inside reaches the agent: not its files, processes nor socket.
func TestOutOfReach(t *testing.T) {
	b := start(t, nil, "")
	dialer := `import socket,sys
s=socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1]); print("reached")
except OSError as e: print("refused")`
	tests := []struct{ name, script, want string }{
		{"files", "ls -A " + b.dir, ""},
		{"processes", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[g]uest.test'", "0\n"},
		{"socket", "python3 -c '" + dialer + "' " + filepath.Join(b.dir, socketName), "refused\n"},
		{"init", "readlink /proc/1/fd/* /proc/1/exe /proc/1/root /proc/1/ns/mnt; cat /proc/1/environ", ""},
	}
	for _, user := range []string{"user", "root"} {
		for _, tt := range tests {
			t.Run(tt.name+"-of-"+user, func(t *testing.T) {
				if out, _ := b.sh(user, tt.script); out != tt.want {
					t.Errorf("got %q, want %q", out, tt.want)
				}
			})
		}
		b.sh(user, "kill -9 1; kill -9 -1")
		b.await()
	}
}

func TestInit(t *testing.T) {
	b := start(t, nil, "")
	body := `{"envVars":{"A":"1"},"accessToken":"t","timestamp":"2026-01-01T00:00:00Z","defaultUser":"root","defaultWorkdir":"/usr","unknown":[1],"DefaultUser":"user","ENVVARS":{"A":"2"}}`
	if got := b.post("/init", body); got != http.StatusNoContent {
		t.Errorf("status %d", got)
	}
	if out, _ := b.sh("", "echo $(id -u) $(pwd) $A $FROM"); out != "0 /usr 1 config\n" {
		t.Errorf("got %q", out)
	}
	if got := b.post("/init", `{"envVars":{"FROM":"init"},"defaultUser":"user"}`); got != http.StatusNoContent {
		t.Errorf("status %d", got)
	}
	if out, _ := b.sh("", "echo $(id -u) $(pwd) [$A] $FROM"); out != "1000 /usr [] init\n" {
		t.Errorf("got %q", out)
	}
	var env map[string]string
	b.get("/envs", &env)
	if _, old := env["A"]; old || env["FROM"] != "init" {
		t.Errorf("envs %v", env)
	}
	for _, bad := range []string{`{`, `{"envVars":{"A=B":"1"}}`, `{"defaultWorkdir":"rel"}`, `{"envVars":[]}`} {
		if got := b.post("/init", bad); got != http.StatusBadRequest {
			t.Errorf("%s: status %d", bad, got)
		}
	}
	if got := b.post("/init", ""); got != http.StatusNoContent {
		t.Errorf("empty: status %d", got)
	}
}

func TestMetricsAndStatus(t *testing.T) {
	b := start(t, nil, "")
	var m map[string]float64
	b.get("/metrics", &m)
	for _, name := range []string{"ts", "cpu_count", "mem_total", "mem_used", "disk_total", "disk_used", "mem_total_mib"} {
		if m[name] <= 0 {
			t.Errorf("%s = %v", name, m[name])
		}
	}
	if pct := m["cpu_used_pct"]; pct < 0 || pct > 100 {
		t.Errorf("cpu_used_pct = %v", pct)
	}
	var s struct {
		ID    string
		PIDs  bool
		Lacks []string
	}
	if b.get("/carboy/status", &s); s.ID != "sb_test" || s.PIDs == (len(s.Lacks) > 0) {
		t.Errorf("got %+v", s)
	}
	if got := b.post("/nothing", ""); got != http.StatusNotFound {
		t.Errorf("an unknown path: status %d", got)
	}
}

// The files service is there, and sees what commands see.
func TestFiles(t *testing.T) {
	b := start(t, nil, "")
	name := filepath.Join("/tmp", filepath.Base(b.dir)+"-file")
	defer os.Remove(name)
	res, err := b.http.Post("http://agent/files?username=user&path="+name, "application/octet-stream", strings.NewReader("hello"))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("upload: %v, %v", res, err)
	}
	_ = res.Body.Close()
	if out, _ := b.sh("", "cat "+name+"; stat -c %u "+name); out != "hello1000\n" {
		t.Errorf("got %q", out)
	}
}

func TestEnvdOverHTTP1(t *testing.T) {
	b := start(t, nil, "")
	c := processconnect.NewProcessClient(b.http, "http://agent")
	stream, err := c.Start(t.Context(), connect.NewRequest(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "echo", Args: []string{"hi"}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out, code := "", int32(-1)
	for stream.Receive() {
		out += string(stream.Msg().GetEvent().GetData().GetStdout())
		if end := stream.Msg().GetEvent().GetEnd(); end != nil {
			code = end.GetExitCode()
		}
	}
	if out != "hi\n" || code != 0 || stream.Err() != nil {
		t.Errorf("got %q, %d, %v", out, code, stream.Err())
	}
}

// What is hidden is there without being hidden: the test above tests it.
func TestNotHidden(t *testing.T) {
	b := start(t, func(c *control.Config) { c.Hide = nil }, "")
	if out, _ := b.sh("root", "ls "+b.dir); !strings.Contains(out, "agent.sock") {
		t.Errorf("got %q", out)
	}
}

func TestRootRefused(t *testing.T) {
	b := start(t, func(c *control.Config) { c.AllowRoot = false }, "")
	stream, err := b.exec.Start(t.Context(), connect.NewRequest(&guestv1.StartRequest{
		Id: "r", Command: &guestv1.Command{Argv: []string{"true"}, User: "root"},
	}))
	if err == nil {
		defer stream.Close()
		stream.Receive()
		err = stream.Err()
	}
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a command: %v", err)
	}
	res, err := b.http.Get("http://agent/files?username=root&path=/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a file: %s", res.Status)
	}
}

// Commands run without a pid namespace where the wall has none.
func TestWithoutPIDNamespace(t *testing.T) {
	b := start(t, func(c *control.Config) { c.PIDNamespace = false }, "")
	if out, end := b.sh("", "(sleep 0.1 &) ; echo up; exit 2"); out != "up\n" || end.GetCode() != 2 {
		t.Errorf("got %q, %v", out, end)
	}
}
