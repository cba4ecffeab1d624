package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// forwarding is a carboy forward that goes on.
type forwarding struct {
	at   []string // the address of each port
	cmd  *exec.Cmd
	errs *strings.Builder // to be read after end
	rest chan struct{}
}

// forward starts carboy forward, and returns once it has said where its ports
// are.
func (h *home) forward(name string, ports ...string) *forwarding {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &forwarding{cmd: h.command(ctx, append([]string{"forward", name}, ports...)...), errs: new(strings.Builder), rest: make(chan struct{})}
	f.cmd.Stderr = f.errs
	stdout, err := f.cmd.StdoutPipe()
	if err == nil {
		err = h.start(f.cmd)
	}
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		cancel()
		_ = f.cmd.Wait()
	})
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	late := time.After(patience.For(30 * time.Second))
	for range ports {
		select {
		case line, ok := <-lines:
			_, at, found := strings.Cut(line, " is at ")
			if !ok || !found {
				cancel()
				_ = f.cmd.Wait()
				h.t.Fatalf("forward %s %q: %q %s", name, ports, line, f.errs)
			}
			f.at = append(f.at, at)
		case <-late:
			h.t.Fatalf("forward %s %q says nothing", name, ports)
		}
	}
	return f
}

// end waits for its end, and returns the exit code and what it said.
func (f *forwarding) end(t testing.TB) (code int, said string) {
	t.Helper()
	err := f.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), f.errs.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, f.errs.String()
}

// interrupt ends it by Ctrl-C.
func (f *forwarding) interrupt(t testing.TB) (code int, said string) {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	return f.end(t)
}

// published is how the ports of a sandbox stand, by what inspect says.
func (h *home) published(name string) (all []publishedPort) {
	h.t.Helper()
	var boxes []struct {
		Published []publishedPort `json:"published"`
	}
	if err := json.Unmarshal([]byte(h.ok("inspect", "--json", name)), &boxes); err != nil || len(boxes) != 1 {
		h.t.Fatalf("%v: %v", boxes, err)
	}
	return boxes[0].Published
}

type publishedPort struct {
	Port     int    `json:"port"`
	HostPort int    `json:"host_port"`
	Open     bool   `json:"open"`
	Reason   string `json:"reason"`
}

// fetch is what a program of one user's in the world reads at a port.
func (w *world) fetch(uid uint32, port int) string {
	cmd := exec.Command("curl", "-sS", "-m", "60", fmt.Sprintf("http://127.0.0.1:%d/", port))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	w.in(func() {
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(&out, err)
		}
	})
	_ = cmd.Wait()
	return out.String()
}

// TestPorts publishes a port, over each wall: for its owner alone, closed to every
// sandbox, for as long as the sandbox runs, whatever becomes of client and daemon.
func TestPorts(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newWorld(t)
		h := w.ordinaryHome(carboy)
		h.ok("create", "--name", "web", "--isolation", wall, "-p", "0:8000")
		port := h.published("web")[0].HostPort
		h.ok("exec", "-d", "web", "--", "python3", "-m", "http.server", "8000", "--bind", "127.0.0.1")
		const page = "Directory listing"
		served := func() bool { return strings.Contains(w.fetch(userID, port), page) }
		until(t, served)
		if got := w.fetch(userID+1, port); strings.Contains(got, page) || !strings.Contains(got, "curl:") {
			t.Errorf("another user reads %q", got)
		}
		if got := w.fetch(0, port); !strings.Contains(got, page) {
			t.Errorf("root reads %q", got)
		}

		w.resolve("loop.example", "127.0.0.1")
		at := fmt.Sprintf("loop.example:%d", port)
		h.ok("create", "--name", "other", "--isolation", wall, "--network", "on", "--allow", at)
		if got := h.run(nil, "exec", "other", "--", "curl", "-sS", "-m", "10", "http://"+at+"/"); strings.Contains(got.stdout, page) {
			t.Errorf("a sandbox reads %q of the port of another", got.stdout)
		}

		h.killDaemon()
		h.ok("ls")
		until(t, served)

		h.ok("stop", "web")
		l := w.listen(fmt.Sprintf("127.0.0.1:%d", port)) // it is free
		if r := h.run(nil, "create", "--name", "third", "--isolation", wall, "-p", fmt.Sprintf("%d:1", port)); r.code == 0 || !strings.Contains(r.stderr, "is taken") {
			t.Errorf("create with a port that is taken = %d %s", r.code, r.stderr)
		}
		if r := h.run(nil, "start", "web"); r.code != 0 || !strings.Contains(r.stderr, "not open") {
			t.Errorf("start = %d %s", r.code, r.stderr)
		}
		if p := h.published("web")[0]; p.Open || !strings.Contains(p.Reason, "taken") {
			t.Errorf("inspect: %+v", p)
		}
		_ = l.Close()
		until(t, func() bool { return h.published("web")[0].Open })

		f := h.forward("web", "0:8000")
		h.ok("rm", "-f", "web", "other")
		if code, said := f.end(t); code != 125 || !strings.Contains(said, "removed") && !strings.Contains(said, "stop") {
			t.Errorf("forward ended with %d: %s", code, said)
		}
		if got := w.fetch(userID, port); !strings.Contains(got, "curl: (7)") {
			t.Errorf("after it was removed: %q", got)
		}
	})
}
