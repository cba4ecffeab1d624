package pod_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/host"
	"github.com/carboy-sandbox/carboy/internal/pod/mirror"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/store"
)

// Variables by which this program is a daemon that is killed at a step.
const (
	killAt   = "CARBOY_TEST_POD_KILL"
	killHome = "CARBOY_TEST_POD_HOME"
)

// TestMain is three programs: the tests, a pod, and a daemon that kills itself.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "--adopt":
		if err := bePod(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(killAt) != "":
		fmt.Fprintln(os.Stderr, beDaemon(os.Getenv(killHome), pod.Step(os.Getenv(killAt))))
		os.Exit(3)
	default:
		os.Exit(m.Run())
	}
}

// bePod listens where it is told to and takes every task.
func bePod(config string) error {
	var c pod.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	l, err := home.Listen(c.Socket)
	if err != nil {
		return err
	}
	return wire.Serve(context.Background(), l, wire.HandlerFunc(func(_ context.Context, c *wire.Conn, _ wire.Method) error {
		return c.Tell(wire.Event{Name: wire.EventTurnStart})
	}), wire.Options{})
}

// daemon opens what lies in a home: records on the disk, and processes of this machine.
func daemon(ctx context.Context, dir string, step func(pod.Step) error) (*pod.Registry, func(), error) {
	s, err := store.Open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, killAt+"=") })
	b := host.New(host.Options{Getenv: func(name string) string { return map[string]string{host.CommandVariable: self}[name] }, Env: env})
	r, err := pod.Open(ctx, pod.Options{Store: s, Backend: b, Base: filepath.Join(dir, "run"), Step: step})
	if err != nil {
		return nil, nil, err
	}
	return r, func() { r.Close(); s.Close() }, nil
}

// beDaemon spawns and stops a pod, and is killed on the way.
func beDaemon(dir string, at pod.Step) error {
	ctx := context.Background()
	r, _, err := daemon(ctx, dir, func(s pod.Step) error {
		if s == at {
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := r.Install(ctx, pod.Top{Name: "root", Allow: []scope.Rule{rw("/w")}}); err != nil {
		return err
	}
	if _, err := r.Spawn(ctx, pod.Request{Spawner: "root", Name: "child", Task: "t", Allow: []scope.Rule{rw("/w/x")}}); err != nil {
		return err
	}
	return r.Release(ctx, "child")
}

// TestKilledAtEachStep: a daemon of real processes and records on the disk, killed between every two
// steps of a spawn and of an end. The next one leaves no orphan and no lost right, and the mirror
// can be read. The control is in the steps from delivering on: there the pod goes on.
func TestKilledAtEachStep(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		step pod.Step
		live bool // the pod outlives the daemon
	}{
		{pod.StepReserved, false},
		{pod.StepDemoted, false},
		{pod.StepStarted, false},
		{pod.StepKept, false},
		{pod.StepListening, false},
		{pod.StepDelivering, true},
		{pod.StepDelivered, true},
		{pod.StepRecorded, true},
		{pod.StepClosing, false},
		{pod.StepEnded, false},
		{pod.StepRemoved, false},
		{pod.StepRestored, false},
	} {
		t.Run(string(tt.step), func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), killAt+"="+string(tt.step), killHome+"="+dir)
			if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
				t.Fatalf("the daemon was not killed: %v: %s", err, out)
			}
			r, end, err := daemon(t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			if err := r.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, ok := r.Find("child")
			if ok != tt.live || ok && p.State != record.Live || r.Effective("root").IsWritable("/w/x") == tt.live {
				t.Errorf("the child is %+v, %v; root has %v", p, ok, r.Effective("root"))
			}
			if n := running(t, filepath.Join(dir, "run", "child", "sock")); n != 0 == !tt.live {
				t.Errorf("%d processes are left", n)
			}
			if ok && r.Liveness(t.Context(), p) != wire.Alive {
				t.Error("nobody is at its socket")
			}
			g, err := mirror.Open(t.Context(), sandbox.SystemClock{}, filepath.Join(dir, "run", mirror.PodsFile))
			if err != nil {
				t.Fatal(err)
			}
			if shown := g.Data().Find("child") != nil; shown != tt.live || g.Data().Find("root") == nil {
				t.Errorf("it shows %+v", g.Data())
			}
			g.Close()
			if !ok {
				return
			}
			if err := r.Release(t.Context(), "child"); err != nil {
				t.Fatal(err)
			}
			if n := running(t, p.Socket); n != 0 || !r.Effective("root").IsWritable("/w/x") {
				t.Errorf("%d processes are left; root has %v", n, r.Effective("root"))
			}
		})
	}
}

// running counts the processes that were told to listen at a socket.
func running(t *testing.T, socket string) (n int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		b, err := os.ReadFile(line)
		if err == nil && strings.Contains(string(b), "--adopt") && strings.Contains(string(b), socket) {
			n++
		}
	}
	return n
}
