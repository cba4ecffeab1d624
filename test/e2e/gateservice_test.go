package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// outsider is a program of this machine that serves sandboxes.
func outsider(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		fmt.Fprintf(w, "%s %s for %s", r.Method, r.RequestURI, r.Header.Get("Carboy-Sandbox"))
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// offering is a carboy offer that runs.
type offering struct {
	cmd   *exec.Cmd
	first string // its first line
	ended chan struct{}
}

// offer runs carboy offer, and returns once it says that it stands.
func (h *home) offer(name, service, target string) *offering {
	h.t.Helper()
	cmd := h.command(context.Background(), "offer", name, service, target)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.start(cmd); err != nil {
		h.t.Fatal(err)
	}
	o := &offering{cmd: cmd, ended: make(chan struct{})}
	lines := bufio.NewReader(out)
	o.first, err = lines.ReadString('\n')
	go func() { _ = cmd.Wait(); close(o.ended) }()
	h.t.Cleanup(o.kill)
	if err != nil {
		h.t.Fatalf("carboy offer says %q, %v", o.first, err)
	}
	return o
}

func (o *offering) kill() {
	_ = o.cmd.Process.Kill()
	<-o.ended
}

// calls has curl call a service from inside: what it wrote, and the status.
func (h *home) calls(name, path string, args ...string) (body, status string) {
	h.t.Helper()
	r := h.run(nil, append([]string{"exec", name, "--", "curl", "-sS", "-m", "60", "-w", "\n%{http_code}", "http://gate.carboy.internal" + path}, args...)...)
	i := strings.LastIndexByte(r.stdout, '\n')
	if i < 0 {
		return r.stderr, fmt.Sprint(r.code)
	}
	return r.stdout[:i], r.stdout[i+1:]
}

// A program outside serves a sandbox whose policy lets nothing else through, when it,
// the gate and the daemon were killed and started again, too; no other sandbox gets to it.
func TestGateService(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		w := newWorld(t)
		servedByGate(t, w.home(), inWorldOutsider(w, t), wall)
	})
}

// The same where nobody is root.
func TestGateServiceWithoutRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	servedByGate(t, w.ordinaryHome(carboy), inWorldOutsider(w, t), "process")
}

func servedByGate(t *testing.T, h *home, url, wall string) {
	t.Helper()
	name := h.create("--isolation", wall, "--allow", "service:x")
	id := h.id(name)
	body, status := h.calls(name, "/x/a")
	wantAway(t, body, status)
	one := h.offer(name, "x", url)
	want := "GET /a?q=1 for " + id
	wantCall(t, h, name, want)
	if body, _ := h.calls(name, "/x/events"); body != "data: 0\n\ndata: 1\n\ndata: 2\n\n" {
		t.Errorf("events: %q", body)
	}
	if body, _ := h.calls(name, "/x/a", "-H", "Carboy-Sandbox: forged"); strings.Contains(body, "forged") {
		t.Errorf("who calls can be forged: %q", body)
	}
	if _, status := h.calls(name, "/other/"); status != "404" {
		t.Errorf("a service that the policy has not: %s", status)
	}
	othersDoNot(t, h, wall)

	one.kill()
	until(t, func() bool { _, status := h.calls(name, "/x/a"); return status == "503" })
	two := h.offer(name, "x", url)
	wantCall(t, h, name, want)
	if r := h.run(nil, "offer", name, "x", url); r.code != 125 || !strings.Contains(r.stderr, "another program offers it") {
		t.Errorf("a second offer: %d %s", r.code, r.stderr)
	}
	killGateOf(t, h, id)
	comesBack(t, h, name, want)
	h.killDaemon()
	comesBack(t, h, name, want)
	wantRecorded(t, h, name)
	_ = two.cmd.Process.Signal(syscall.SIGINT)
	<-two.ended
	if code := two.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("interrupted, carboy offer exits %d", code)
	}
}

// wantRecorded wants a call among what is recorded of a sandbox.
func wantRecorded(t *testing.T, h *home, name string) {
	t.Helper()
	lines := h.netLog(name)
	for _, l := range lines {
		if l.Protocol == "service" && l.Verdict == "allow" && l.Path == "/x/a" && l.Status == 200 {
			return
		}
	}
	t.Errorf("no call is recorded: %+v", lines)
}

// inWorldOutsider is an outsider in the network that the home is in.
func inWorldOutsider(w *world, t *testing.T) (url string) {
	w.in(func() { url = outsider(t) })
	return url
}

// TestGateServiceHints: who follows the hints from a sandbox without a network comes to a program
// that serves it, whether they begin with a call from inside or with the offer.
func TestGateServiceHints(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"exec", "offer"} {
		t.Run(begins, func(t *testing.T) {
			h := newHome(t)
			name := h.create("--isolation", "process")
			follow := func(stderr, before string) {
				t.Helper()
				_, typed, ok := strings.Cut(stderr, before+"carboy ")
				if !ok {
					t.Fatalf("no hint after %q in %q", before, stderr)
				}
				typed, _, _ = strings.Cut(typed, "\n")
				for line := range strings.SplitSeq(strings.ReplaceAll(typed, "service:NAME", "service:x"), " && carboy ") {
					h.ok(strings.Fields(line)...)
				}
			}
			call := []string{"exec", name, "--", "curl", "-sS", "http://gate.carboy.internal/x/a"}
			if begins == "exec" {
				follow(h.run(nil, call...).stderr, "to allow: ")
			} else {
				h.ok("set", name, "--allow", "service:x") // for its next start
				r := h.run(nil, "offer", name, "x", "http://127.0.0.1:1")
				if second := h.run(nil, call...).stderr; !strings.Contains(second, "allowed from its next start on: carboy stop "+name+" && carboy start "+name+"\n") {
					t.Errorf("a call says %q", second)
				}
				follow(r.stderr, "hint: ")
			}
			o := h.offer(name, "x", "http://127.0.0.1:1")
			body, status := h.calls(name, "/x/a")
			wantAway(t, body, status) // nothing listens there
			o.kill()
			if r := h.run(nil, "offer", name, "y", outsider(t)); r.code != 125 || !strings.Contains(r.stderr, "hint: carboy set "+name+" --allow service:y\n") {
				t.Errorf("another service: %d, %q", r.code, r.stderr)
			} else {
				follow(r.stderr, "hint: ")
			}
			h.offer(name, "y", outsider(t))
			if body, status := h.calls(name, "/y/a"); status != "200" {
				t.Errorf("the call: %s %q", status, body)
			}
		})
	}
}

// TestOfferNothingThere: what an offer leads to may come later, and that it is not there is said.
func TestOfferNothingThere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create("--isolation", "process", "--allow", "service:x")
	cmd := h.command(context.Background(), "offer", name, "x", "unix:/nowhere/p.sock")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(said); ; {
		if !lines.Scan() {
			t.Fatalf("it does not say that nothing listens: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), "nothing listens at unix:/nowhere/p.sock yet: connect: no such file or directory") {
			break
		}
	}
	body, status := h.calls(name, "/x/a")
	wantAway(t, body, status)
}

func wantAway(t *testing.T, body, status string) {
	t.Helper()
	var said struct{ Code, Message, Rule, Host, Hint string }
	if err := json.Unmarshal([]byte(body), &said); err != nil || status != "503" || said.Code != "service_away" || said.Host != "gate.carboy.internal" {
		t.Errorf("while nobody serves it: %s %s, %v", status, body, err)
	}
}

func wantCall(t *testing.T, h *home, name, want string) {
	t.Helper()
	if body, status := h.calls(name, "/x/a?q=1"); body != want || status != "200" {
		t.Errorf("%s %q, want %q", status, body, want)
	}
}

// comesBack wants a service to answer again, and nothing but a reason until then.
func comesBack(t *testing.T, h *home, name, want string) {
	t.Helper()
	until(t, func() bool { body, status := h.calls(name, "/x/a?q=1"); return body == want && status == "200" })
}

// killGateOf kills the gate of a sandbox.
func killGateOf(t *testing.T, h *home, id string) {
	t.Helper()
	for _, pid := range h.gates() {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(raw), id) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			until(t, func() bool { return !alive(pid) })
			return
		}
	}
	t.Errorf("%s has no gate", id)
}

// othersDoNot wants another sandbox, which may call a service of the same name, not
// to reach what is offered to the first; nor one that may not.
func othersDoNot(t *testing.T, h *home, wall string) {
	t.Helper()
	same := h.create("--isolation", wall, "--allow", "service:x")
	if body, status := h.calls(same, "/x/a"); status != "503" {
		t.Errorf("another sandbox gets %s %q", status, body)
	}
	none := h.create("--isolation", wall, "--network", "on")
	if body, status := h.calls(none, "/x/a"); status != "404" {
		t.Errorf("one without the service gets %s %q", status, body)
	}
	h.ok("rm", "-f", same, none)
}
