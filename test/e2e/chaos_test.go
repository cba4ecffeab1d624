package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/test/long"
)

// A daemon that is killed at any moment of a create, a stop or a remove leaves
// either the sandbox, whole, or nothing of it.
func TestDaemonKilledAnywhere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.create("--name", "kept")
	h.ok("exec", "kept", "--", "sh", "-c", "echo work > /workspace/f")
	verbs := [][]string{{"create", "--name", "victim"}, {"stop", "kept"}, {"start", "kept"}, {"rm", "-f", "victim"}}
	for _, at := range long.Moments(3, 12, 20*time.Millisecond) {
		for _, args := range verbs {
			h.cutShort(at, args...)
		}
		for _, sb := range h.list() {
			if sb.State != "running" && sb.State != "stopped" {
				t.Errorf("at %v: %s is %s", at, sb.Name, sb.State)
			}
			if sb.State == "stopped" {
				h.ok("start", sb.Name)
			}
			h.ok("exec", sb.Name, "--", "true")
		}
		if got := h.ok("exec", "kept", "--", "cat", "/workspace/f"); got != "work\n" {
			t.Fatalf("at %v: the work is %q", at, got)
		}
		h.run(nil, "rm", "-f", "victim")
	}
}

// cutShort runs carboy, kills the daemon after a while and carboy with it.
func (h *home) cutShort(after time.Duration, args ...string) {
	h.t.Helper()
	h.list() // starts a daemon
	pid := h.daemonPID()
	cmd := h.command(h.t.Context(), args...)
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	<-time.After(after)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	until(h.t, func() bool { return !alive(pid) })
}

// The wall's own processes die, one at a time: the sandbox is told as ended,
// and the next command starts it again with its work.
func TestWallProcessesKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	h.ok("exec", name, "--", "sh", "-c", "echo work > /workspace/f")
	for _, role := range []string{"runsc-sandbox", "runsc-gofer"} {
		out, err := exec.Command("pkill", "-9", "-f", "^"+role+" .*"+h.dir).CombinedOutput()
		if err != nil {
			t.Fatalf("pkill %s: %v\n%s", role, err, out)
		}
		until(t, func() bool { return h.list()[0].State == "stopped" })
		r := h.run(nil, "exec", name, "--", "cat", "/workspace/f")
		if r.code != 0 || r.stdout != "work\n" || !strings.Contains(r.stderr, "lost") {
			t.Errorf("after the death of %s: %+v", role, r)
		}
	}
}

func TestManyCommandsAtOnce(t *testing.T) {
	h := newHome(t)
	name := h.create()
	c := h.client(t)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			var out bytes.Buffer
			exit, err := c.Exec(t.Context(), name, client.ExecOptions{
				Command: &guestv1.Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i%256)}}, Stdout: &out,
			})
			if err != nil || exit.Code != int32(i) || out.String() != fmt.Sprintln(i) {
				t.Errorf("command %d: %v, %v, %q", i, exit, err, out.String())
			}
		})
	}
	all.Wait()
}
