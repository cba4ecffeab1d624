package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestGateServes(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	st, err := w.status()
	if err != nil || st.PID != w.pid() || st.Use.Connections != 0 {
		t.Errorf("status %+v, %v", st, err)
	}
	w.echo(worldA + ":7000")
	if st, err = w.status(); err != nil || st.Use.Connections != 1 {
		t.Errorf("with a connection: status %+v, %v", st, err)
	}
	for _, closed := range []string{worldA + ":7001", worldB + ":7000", "127.0.0.1:7000", "192.0.0.1:22"} {
		if closed == "127.0.0.1:7000" {
			continue // which is the sandbox's own
		}
		// At once is before a kernel asks again, which is after a second. A busy
		// machine may hold up one attempt or two.
		var took []time.Duration
		for len(took) == 0 || len(took) < 5 && took[len(took)-1] > time.Second {
			began := time.Now()
			_, err := w.dial("tcp", closed)
			if took = append(took, time.Since(began)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: %v, want it refused", closed, err)
			}
		}
		if len(took) == 5 {
			t.Errorf("%s: refused in %v, want it at once", closed, took)
		}
	}
}

// TestGateIsConfined: it is nobody, holds nothing but its descriptors, and can
// open nothing; what it could do before shows that the attempts are sound.
func TestGateIsConfined(t *testing.T) {
	w := newWatched(t, &policy.Policy{})
	if err := os.MkdirAll(w.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir(), fileTry), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	pid := w.pid()
	uid := fmt.Sprint(uidOf(w.sb.ID))
	for name, want := range map[string]string{
		"Uid": strings.Join([]string{uid, uid, uid, uid}, " "), "Gid": strings.Join([]string{uid, uid, uid, uid}, " "), "Groups": "",
		"Seccomp": "2", "NoNewPrivs": "1", "CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapAmb": "0000000000000000",
	} {
		if got := field(t, pid, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks { // each thread, not the first alone
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		for _, want := range []string{"Seccomp:\t2\n", "CapEff:\t0000000000000000\n", "Uid:\t" + uid} {
			if !bytes.Contains(raw, []byte(want)) {
				t.Errorf("thread %s of %d: no %q", task.Name(), len(tasks), want)
			}
		}
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	if got, err := os.Readlink(root); got != filepath.Join(w.dir(), dirRoot) || err != nil {
		t.Errorf("its root is %s, %v", got, err)
	}
	if entries, err := os.ReadDir(root + "/."); len(entries) > 0 || err != nil {
		t.Errorf("its root holds %v, %v", entries, err)
	}
	until(t, "the end of its start", func() bool { // it says that it is ready by what it then lets go
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
		return err == nil && to == os.DevNull
	})
	wantDescriptors(t, w, pid)
	said := ""
	until(t, "what it tried", func() bool {
		said = lastWords(w.dir())
		return strings.Contains(said, "unix ")
	})
	for _, want := range []string{
		"before <nil>;", "open open /proc/self/status: operation not permitted;", "exec fork/exec /bin/true: operation not permitted;",
		"readdir open /: operation not permitted;", "kill operation not permitted;", "unix dial unix /run/x.sock: socket: address family not supported by protocol;",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
	if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid)); err != nil || !bytes.Contains(limits, []byte(fmt.Sprintf("Max file size             %d", 2*logBytes))) {
		t.Errorf("it may write any file full: %s, %v", limits, err)
	}
}

// wantDescriptors wants none but those that a gate needs.
func wantDescriptors(t *testing.T, w *watched, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{
		"/dev/null", "/dev/net/tun", "socket:[", "anon_inode:[eventpoll]", "anon_inode:[eventfd]",
		filepath.Join(w.dir(), fileLogA), filepath.Join(w.dir(), fileLogB), filepath.Join(w.dir(), fileCrash),
	}
	seen := 0
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(to, k) }) {
			t.Errorf("it holds descriptor %s, %s", e.Name(), to)
		}
		seen++
	}
	if seen < 5 {
		t.Errorf("only %d descriptors: this look sees none", seen)
	}
}

// TestPolicyCuts: a change is for open connections too.
func TestPolicyCuts(t *testing.T) {
	echoAt(t, worldA+":7000")
	echoAt(t, worldB+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	w.sb.Spec.Policy.Rules[0].Addresses = []string{worldA, worldB}
	if err := w.g.Set(t.Context(), w.sb); err != nil {
		t.Fatal(err)
	}
	a, b := w.echo(worldA+":7000"), w.echo(worldB+":7000")
	w.sb.Spec.Policy = tcpTo(worldA, 7000)
	if err := w.g.Set(t.Context(), w.sb); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what is not allowed any more goes on: %d, %v", n, err)
	}
	if err := echoes(a); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	if _, err := w.dial("tcp", worldB+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("once more: %v", err)
	}
}

// TestNewestPolicyWins: what is slow to be told does not come after what was
// set since.
func TestNewestPolicyWins(t *testing.T) {
	echoAt(t, worldA+":7000")
	p := tcpTo(worldA, 7000)
	w := newWatched(t, p)
	w.sb.Spec.Secrets = []string{"A"}
	w.open()
	held, release := make(chan struct{}), make(chan struct{})
	first := true
	w.secrets.mu.Lock()
	w.secrets.list = func() {
		if first {
			first = false
			close(held)
			<-release
		}
	}
	w.secrets.mu.Unlock()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		w.g.Changed(context.Background(), secret.Change{Owner: w.sb.Owner, Name: "A"})
	}()
	<-held // it has the old policy in hand
	set := make(chan error)
	w.sb.Spec.Policy = &policy.Policy{}
	go func() { set <- w.g.Set(context.Background(), w.sb) }()
	until(t, "the new policy", func() bool {
		one := w.one()
		one.mu.Lock()
		defer one.mu.Unlock()
		return len(one.sb.Spec.Policy.Rules) == 0
	})
	close(release)
	<-changed
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	if _, err := w.dial("tcp", worldA+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a policy that was taken back holds: %v", err)
	}
}

// TestConfigIsTakenWhole: what is wrong in any part changes nothing.
func TestConfigIsTakenWhole(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	for name, body := range map[string]string{
		"unknown-field":   `{"policy":{},"surprise":1}`,
		"unknown-in-rule": `{"policy":{"rules":[{"hosts":["a.example"],"surprise":1}]}}`,
		"bad-policy":      `{"policy":{"rules":[{"hosts":["a..example"]}]}}`,
		"unknown-secret":  `{"policy":{"rules":[{"hosts":["a.example"],"secrets":[{"name":"A","header":"X-A"}]}]}}`,
		"two":             `{"policy":{}} {"policy":{}}`,
		"cut-short":       `{"policy":{}`,
		"nothing":         ``,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://gate"+pathConfig, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.one().client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
	}
	w.echo(worldA + ":7000")
	if err := w.one().put(t.Context(), pathConfig, config{}); err != nil { // what is right is taken
		t.Fatal(err)
	}
	if _, err := w.dial("tcp", worldA+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a rule: %v", err)
	}
}

// TestOrders: a gate that is told what it does not know serves nothing.
func TestOrders(t *testing.T) {
	for name, tt := range map[string]struct{ order, want string }{
		"unknown-field":     {`{"sandbox":"sb_a","surprise":1}`, "unknown field"},
		"unknown-in-config": {`{"config":{"policy":{},"surprise":1}}`, "unknown field"},
		"unknown-in-policy": {`{"config":{"policy":{"surprise":1}}}`, "unknown field"},
		"two":               {`{"sandbox":"sb_a"}{}`, "more follows"},
		"cut-short":         {`{"sandbox":"sb_a"`, "unexpected EOF"},
		"nothing":           {``, "EOF"},
		"no-order":          {`[]`, "cannot unmarshal"},
		"no-resolver":       {`{"resolvers":["here"]}`, "not an ip:port"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{RoleGate, t.TempDir()}
			cmd.Stdin = strings.NewReader(tt.order)
			out, err := cmd.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), tt.want) {
				t.Errorf("it says %q, %v; want %q", out, err, tt.want)
			}
		})
	}
	for _, other := range []string{"carboy", "carboy-gate2", "/carboy-gate", ""} {
		if Roles()[other] != nil {
			t.Errorf("%q is a gate", other)
		}
	}
}

// TestVerify: a promise that holds is seen to, and one that does not fails.
func TestVerify(t *testing.T) {
	w := newWatched(t, &policy.Policy{}).open()
	how, err := w.g.Verify(t.Context(), w.sb, fakeAgent(func(f func()) error {
		return w.inside(func() error { f(); return nil })
	}))
	if err != nil || len(how) == 0 || !how[0].Enforced || !strings.Contains(how[0].Mechanism, "attempts ended as promised") {
		t.Errorf("Verify: %+v, %v", how, err)
	}
	if len(how) != 2 || how[1].Enforced || how[1].Promise != sandbox.PromiseTrust || how[1].Reason != `programs inside may not trust the gate: /etc/\x1b: left alone` {
		t.Errorf("what the agent could not install: %+v", how)
	}
	until(t, "the end of what was tried", func() bool {
		st, err := w.status()
		return err == nil && st.Use.Connections == 0
	})
	for name, act := range map[string]func(f func()) error{
		"no-link":   func(f func()) error { f(); return nil },                                    // the world's own network
		"with-root": func(f func()) error { return onThread(int(w.link.NetNS.Fd()), f) },         // raw sockets
		"no-agent":  func(func()) error { return errors.New("the agent has no such privilege") }, // it can't try
	} {
		if _, err := w.g.Verify(t.Context(), w.sb, fakeAgent(act)); err == nil {
			t.Errorf("%s: the promise is said to hold", name)
		} else if name != "no-agent" && sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.g.Verify(t.Context(), w.sb, func(context.Context) (net.Conn, error) { return nil, errors.New("no instance") }); err == nil {
		t.Error("without an instance the promise is said to hold")
	}
}

// TestProbeIsNotRecorded: what the agent tries before anyone is inside is not
// in the sandbox's record, and all that comes later is.
func TestProbeIsNotRecorded(t *testing.T) {
	w := newWatched(t, &policy.Policy{}).open()
	_, _ = w.dial("tcp", worldA+":7001")
	if _, err := w.g.Verify(t.Context(), w.sb, fakeAgent(func(f func()) error {
		return w.inside(func() error { f(); return nil })
	})); err != nil {
		t.Fatal(err)
	}
	_, _ = w.dial("tcp", worldA+":7002")
	all := w.records(func(r netlog.Record) bool { return r.Address == worldA+":7002" })
	if len(all) != 1 || all[0].Seq != 1 || all[0].Sandbox != w.sb.ID || all[0].Verdict != netlog.Deny {
		t.Errorf("records: %+v", all)
	}
}

// TestLogIsBounded: of two files that take turns neither grows beyond its
// bound, whatever was there.
func TestLogIsBounded(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000))
	if err := os.MkdirAll(w.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fileLogA, fileLogB} {
		full := bytes.Repeat([]byte("{}\n"), logBytes/3)
		if err := os.WriteFile(filepath.Join(w.dir(), name), full, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	if err := w.one().put(t.Context(), pathRecord, nil); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w.echo(worldA + ":7000").Close()
	}
	w.records(func(r netlog.Record) bool { return r.Rule == "echo" })
	for _, name := range []string{fileLogA, fileLogB} {
		if st, err := os.Stat(filepath.Join(w.dir(), name)); err != nil || st.Size() > logBytes {
			t.Errorf("%s: %d bytes, %v", name, st.Size(), err)
		}
	}
}

// TestLogOnAFullDisk: connections go on, and what could not be written is
// counted.
func TestLogOnAFullDisk(t *testing.T) {
	echoAt(t, worldA+":7000")
	needRoot(t)
	state := t.TempDir()
	if err := unix.Mount("none", state, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, 0); err != nil { // nobody has a file open there
			t.Error(err)
		}
	})
	w := watchIn(t, state, tcpTo(worldA, 7000)).open()
	if err := w.one().put(t.Context(), pathRecord, nil); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(w.state, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	pid := w.pid()
	for range 40 { // more than the page that the log has already
		w.echo(worldA + ":7000").Close()
	}
	if w.pid() != pid {
		t.Error("the gate was started again")
	}
	w.sb.Spec.Policy.Rules[0].Addresses = []string{worldA, worldB}
	if err := w.g.Set(t.Context(), w.sb); err != nil {
		t.Errorf("Set: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.echo(worldA + ":7000").Close()
	all := w.records(func(r netlog.Record) bool { return r.Code == netlog.CodeLost && r.Count > 0 })
	if last := all[len(all)-1]; len(all) > 40 || last.Code == netlog.CodeLost && last.Count > 40 {
		t.Errorf("%d records, the last one %+v", len(all), last)
	}
}

// onThread calls f on a thread in a network namespace, as root.
func onThread(netns int, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Setns(netns, unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
