package gvisor_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/boot"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"

	"connectrpc.com/connect"
)

// The roles of a wall are this binary too.
// init keeps the first thread for the main goroutine: unlike others it would
// not end with a test that is locked to it, and a mount namespace that such a
// test makes would stay.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	role.Become(instance.Roles(), boot.Roles(nil))
	os.Exit(m.Run())
}

func open(t *testing.T, state string) *gvisor.Backend {
	t.Helper()
	b, err := gvisor.Open(t.Context(), gvisor.Options{State: state, Cache: filepath.Join(filepath.Dir(state), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// stateDir is not below the test's name: ids are, and both are in paths.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-gvisor-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "state")
}

func sandboxOf(id string) *sandbox.Sandbox {
	return &sandbox.Sandbox{ID: id, Owner: "uid:0", Spec: sandbox.Spec{
		Isolation: "gvisor", Image: "host", User: "user", Network: "off",
		Workspace: sandbox.Workspace{Mode: sandbox.WorkspacePrivate},
		Limits:    sandbox.Limits{CPUs: 2, Memory: 256 << 20, PIDs: 100, Disk: 64 << 20, Inodes: 10000},
	}}
}

func start(t *testing.T, b *gvisor.Backend, sb *sandbox.Sandbox) {
	t.Helper()
	if _, err := b.Start(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Remove(context.Background(), sb.ID); err != nil {
			t.Error(err)
		}
	})
}

// sh runs a script in an instance and returns its output and how it ended.
func sh(t *testing.T, b *gvisor.Backend, id, script string) (string, *guestv1.Exit) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.Dial(ctx, id, sandbox.GuestPort)
	}}
	defer transport.CloseIdleConnections()
	c := guestv1connect.NewExecServiceClient(&http.Client{Transport: transport}, "http://guest")
	stream, err := c.Start(t.Context(), connect.NewRequest(&guestv1.StartRequest{
		Id: "x" + strings.ReplaceAll(t.Name(), "/", "-") + string(rune('a'+len(script)%26)), Command: &guestv1.Command{Argv: []string{"sh", "-c", script}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out bytes.Buffer
	for stream.Receive() {
		if o := stream.Msg().GetOutput(); o != nil {
			out.Write(o.Data)
		}
		if e := stream.Msg().GetExit(); e != nil {
			return out.String(), e
		}
	}
	return out.String(), nil // the instance ended first
}

func hostDir(t *testing.T, path string) sandbox.HostDir {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(real, &st); err != nil {
		t.Fatal(err)
	}
	return sandbox.HostDir{Path: real, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid}
}

func TestWorkspaceOverLives(t *testing.T) {
	ws := t.TempDir()
	if err := os.WriteFile(filepath.Join(ws, "base"), []byte("base\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, stateDir(t))
	sb := sandboxOf("sb_cow")
	sb.Spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: hostDir(t, ws)}
	start(t, b, sb)
	if out, _ := sh(t, b, sb.ID, "cd /workspace && cat base && echo more >> base && echo new > new && rm -f gone"); out != "base\n" {
		t.Errorf("inside: %q", out)
	}
	want := []string{"base", "new"}
	if got := changed(t, b, sb); !equal(got, want) {
		t.Errorf("changes of a running instance: %q, want %q", got, want)
	}
	if _, err := b.Stop(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := changed(t, b, sb); !equal(got, want) {
		t.Errorf("changes of a stopped instance: %q, want %q", got, want)
	}
	if _, err := b.Start(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, b, sb.ID, "cat /workspace/base /workspace/new"); out != "base\nmore\nnew\n" {
		t.Errorf("after stop and start: %q", out)
	}
	if host, err := os.ReadFile(filepath.Join(ws, "base")); err != nil || string(host) != "base\n" {
		t.Errorf("the host's file: %q, %v", host, err)
	}
}

func changed(t *testing.T, b *gvisor.Backend, sb *sandbox.Sandbox) []string {
	t.Helper()
	var buf bytes.Buffer
	if err := b.Changes(t.Context(), sb, sandbox.ChangesOptions{}, &buf); err != nil {
		t.Fatal(err)
	}
	var names []string
	for c, err := range workspace.Read(&buf) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, c.Path)
	}
	return names
}

func equal(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

// Another process's backend over the same state knows the instance again.
func TestAdoption(t *testing.T) {
	state := stateDir(t)
	first := open(t, state)
	sb := sandboxOf("sb_adopted")
	start(t, first, sb)
	second := open(t, state)
	if ids, err := second.Instances(t.Context()); err != nil || !equal(ids, []string{sb.ID}) {
		t.Errorf("boxes: %q, %v", ids, err)
	}
	if !second.Alive(t.Context(), sb.ID) {
		t.Error("the instance is not alive for another backend")
	}
	if out, _ := sh(t, second, sb.ID, "id -u"); out != "1000\n" {
		t.Errorf("id -u: %q", out)
	}
	other := open(t, stateDir(t))
	if ids, err := other.Instances(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("boxes of another home: %q, %v", ids, err)
	}
}

func TestOutOfMemory(t *testing.T) {
	b := open(t, stateDir(t))
	sb := sandboxOf("sb_hog")
	start(t, b, sb)
	end := make(chan sandbox.EndReason, 1)
	go func() {
		r, err := b.Wait(context.Background(), sb.ID)
		if err != nil {
			t.Error(err)
		}
		end <- r
	}()
	sh(t, b, sb.ID, `python3 -c "x = [bytearray(b'x' * (8 << 20)) for _ in range(1000)]"`)
	if got := <-end; got != sandbox.EndOutOfMemory {
		t.Errorf("ended by %s, want %s", got, sandbox.EndOutOfMemory)
	}
}

func TestRefusals(t *testing.T) {
	b := open(t, stateDir(t))
	tests := []struct {
		name   string
		change func(*sandbox.Spec)
	}{
		{"root-over-writable", func(s *sandbox.Spec) {
			s.User = "root"
			s.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceWritable, Source: hostDir(t, t.TempDir())}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sb := sandboxOf("sb_refused")
			tt.change(&sb.Spec)
			if _, err := b.Check(t.Context(), sb.Spec); sandbox.KindOf(err) != sandbox.Unsupported {
				t.Errorf("Check = %v, want %s", err, sandbox.Unsupported)
			}
			if _, err := b.Start(t.Context(), sb); sandbox.KindOf(err) != sandbox.Unsupported {
				t.Errorf("Start = %v, want %s", err, sandbox.Unsupported)
			}
		})
	}
	if ids, _ := b.Instances(t.Context()); len(ids) != 0 {
		t.Errorf("refused instances left %q", ids)
	}
}

// A directory that was swapped for another since it was accepted is refused.
func TestReplacedWorkspace(t *testing.T) {
	b := open(t, stateDir(t))
	parent := t.TempDir()
	ws := filepath.Join(parent, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf("sb_swapped")
	sb.Spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: hostDir(t, ws)}
	if err := os.Rename(ws, ws+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := b.Start(t.Context(), sb)
	if err == nil || !strings.Contains(err.Error(), "not the directory that was named") {
		t.Errorf("Start = %v", err)
	}
	if err := b.Remove(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}
