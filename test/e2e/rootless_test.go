package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// An ordinary user, who exists in the world of a test alone.
const (
	userName  = "carboy-ordinary"
	userID    = 54_321
	userSubID = 700_000_000
)

// ordinaryHome makes a home in the world whose commands and daemon are an
// ordinary user's, and run that binary. A mount namespace has files that know the user, and a
// /dev/net/tun that is open to all users.
func (w *world) ordinaryHome(binary string, env ...string) *home {
	w.t.Helper()
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			w.t.Skipf("needs %s: %v", tool, err)
		}
	}
	h := w.home(env...)
	bin := filepath.Join(h.dir, "carboy")
	roots := filepath.Join(h.dir, "roots.pem")
	if err := errors.Join(copyFile(bin, binary, 0o755), copyFile(roots, w.roots, 0o644), ownAll(h.dir)); err != nil {
		w.t.Fatal(err)
	}
	var err error
	w.in(func() { err = knowUser(h.dir + "-etc") })
	w.t.Cleanup(func() { os.RemoveAll(h.dir + "-etc") })
	if err != nil {
		w.t.Skipf("can't make an ordinary user: %v", err)
	}
	h.env = append(h.env, "SSL_CERT_FILE="+roots, "XDG_CACHE_HOME="+h.dir+"/cache", "USER="+userName)
	h.start = func(c *exec.Cmd) (err error) {
		c.Path, c.Args[0] = bin, bin
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
		w.in(func() { err = c.Start() })
		return err
	}
	return h
}

// knowUser gives the calling thread a mount namespace where the user exists.
func knowUser(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return err
	}
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("%s:x:%d:%d::/nonexistent:/bin/sh\n", userName, userID, userID),
		"/etc/group":  fmt.Sprintf("%s:x:%d:\n", userName, userID),
		"/etc/subuid": fmt.Sprintf("%s:%d:65536\n", userName, userSubID),
		"/etc/subgid": fmt.Sprintf("%s:%d:65536\n", userName, userSubID),
	} {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		own := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(own, append(raw, line...), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	tun := filepath.Join(dir, "tun")
	if err := unix.Mknod(tun, unix.S_IFCHR, int(unix.Mkdev(10, 200))); err != nil {
		return err
	}
	if err := os.Chmod(tun, 0o666); err != nil {
		return err
	}
	return unix.Mount(tun, "/dev/net/tun", "", unix.MS_BIND, "")
}

// copyFile makes a file that can be executed at once: while it is being written no process
// is begun that would hold it open for a moment more.
func copyFile(to, from string, mode fs.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// ownAll makes the user the owner of all there is below a directory.
func ownAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, userID, userID))
	})
}

// killGate kills the home's gate with -9, and waits until it is gone.
func (h *home) killGate() {
	h.t.Helper()
	pid := h.gatePID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	until(h.t, func() bool { return !alive(pid) })
}

// get is what curl in a sandbox says of an address.
func (h *home) get(name, url string) string {
	h.t.Helper()
	return h.run(nil, "exec", name, "--", "curl", "-sS", "-m", "20", "-w", "%{http_code}", url).stdout
}

const helloPublic = "hello from public.example\n200"

// An ordinary user's sandbox has a network by the same rules, and it comes
// back when its gate, its daemon, or one after the other was killed.
func TestNetworkWithoutRoot(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("public.example", worldA, nil)
		w.https("evil.example", worldB, nil)
		h := w.ordinaryHome(carboy)
		name := h.create("--isolation", wall, "--allow", "public.example")
		for _, url := range []string{"http://public.example/", "https://public.example/"} {
			if got := h.get(name, url); got != helloPublic {
				t.Fatalf("%s: got %q", url, got)
			}
		}
		if got := h.get(name, "https://evil.example/"); !strings.Contains(got, "not_allowed") || !strings.HasSuffix(got, "403") {
			t.Errorf("what is not allowed: got %q", got)
		}
		if got := h.get(name, "http://"+worldB+"/"); strings.Contains(got, "hello") {
			t.Errorf("an address that is not allowed: got %q", got)
		}
		if got := len(w.received("evil.example")); got > 0 {
			t.Errorf("what is not allowed was reached %d times", got)
		}
		pings(t, h, name)
		if got := h.ok("inspect", name); !strings.Contains(got, "without root: the gate has the daemon's own user") {
			t.Errorf("what is weaker is not said:\n%s", got)
		}
		for _, p := range gateRights(t, h) {
			t.Errorf("the gate: %s", p)
		}
		survives(t, h, name)
		lost(t, h, name)
	})
}

// What is refused above is there to be reached, by who may.
func TestAllowedWithoutRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.https("evil.example", worldB, nil)
	h := w.ordinaryHome(carboy)
	name := h.create("--isolation", "process", "--allow", "evil.example", "--allow", worldB)
	for _, url := range []string{"https://evil.example/", "http://" + worldB + "/"} {
		if got := h.get(name, url); got != "hello from evil.example\n200" {
			t.Errorf("%s: got %q", url, got)
		}
	}
}

// A workspace that an ordinary user alone may read is copied whole, with whatever id the user has.
func TestPrivateTreeWithoutRoot(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newWorld(t)
		h := w.ordinaryHome(carboy)
		dir := filepath.Join(h.dir, "tree")
		h.edit(dir, map[string]string{"open.txt": "open\n", "key/private.txt": "private\n"})
		err := ownAll(dir)
		for path, mode := range map[string]fs.FileMode{"": 0o700, "key": 0o700, "key/private.txt": 0o600} {
			err = errors.Join(err, os.Chmod(filepath.Join(dir, path), mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.create("--isolation", wall, "--workspace", dir)
		if got := h.ok("exec", name, "--", "sh", "-c", "cd /workspace; cat open.txt key/private.txt; echo more >> key/private.txt"); got != "open\nprivate\n" {
			t.Errorf("inside: got %q", got)
		}
		h.ok("apply", name)
		if got, err := os.ReadFile(filepath.Join(dir, "key/private.txt")); err != nil || string(got) != "private\nmore\n" {
			t.Errorf("after an apply: got %q, %v", got, err)
		}
	})
}

// pings wants the gate to answer an echo, and nobody else, on sockets that the
// user may have.
func pings(t *testing.T, h *home, name string) {
	t.Helper()
	got := h.feed(`
import socket
for to, soon in ("192.0.0.1", 20), ("93.184.216.34", 1):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    s.settimeout(soon)
    try:
        s.connect((to, 0)); s.send(b"\x08\0\0\0\0\0\0\1hello")
        print(s.recv(64)[8:])
    except OSError: print("nothing")
`, "exec", "-i", name, "--", "python3", "-")
	if want := "b'hello'\nnothing\n"; got != want {
		t.Errorf("echoes: got %q, want %q", got, want)
	}
}

// Where only root may make links, an ordinary user is told so, and what to do.
func TestNoTUNWithoutRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.ordinaryHome(carboy)
	var err error
	w.in(func() { err = os.Chmod("/dev/net/tun", 0o600) })
	if err != nil {
		t.Fatal(err)
	}
	for _, wall := range wallNames {
		r := h.run(nil, "create", "--isolation", wall, "--allow", "public.example")
		if r.code == 0 || !strings.Contains(r.stderr, "not open to all users") || !strings.Contains(r.stderr, "chmod 0666 /dev/net/tun") {
			t.Errorf("%s: exit code %d, %q", wall, r.code, r.stderr)
		}
	}
	if left := h.list(); len(left) > 0 {
		t.Errorf("there are sandboxes: %v", left)
	}
}

// What reaches nothing needs no link: an ordinary user has it where only root may make links. With
// one host to reach it is as any other.
func TestNothingReachedWithoutTUN(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.ordinaryHome(carboy)
	h.env = append(h.env, "HOME="+h.dir)
	h.edit(h.dir, map[string]string{"config/carboy/agents/hermit.toml": "[access]\nnone = true\n", "place/a.txt": "a\n"})
	err := ownAll(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.in(func() { err = os.Chmod("/dev/net/tun", 0o600) })
	if err != nil {
		t.Fatal(err)
	}
	for _, wall := range wallNames {
		if r := h.run(nil, "run", "--isolation", wall, "--", "echo", "plain"); r.code != 0 || r.stdout != "plain\n" {
			t.Errorf("%s: run: %d, %q", wall, r.code, r.stderr)
		}
		agent := []string{"agent", "run", "--isolation", wall, "--workspace", h.dir + "/place"}
		if r := h.run(nil, append(agent, "hermit", "--", "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1; echo alone")...); r.code != 0 || strings.Join(strings.Fields(r.stdout), " ") != "lo alone" || !strings.Contains(r.stderr, "reaches nothing") {
			t.Errorf("%s: agent: %d, %q, %q", wall, r.code, r.stdout, r.stderr)
		}
		if r := h.run(nil, append(agent, "--allow", "public.example", "hermit", "--", "true")...); r.code == 0 || !strings.Contains(r.stderr, "not open to all users") {
			t.Errorf("%s: with a host: %d, %q", wall, r.code, r.stderr)
		}
	}
}

// gateRights says what an ordinary user's gate may, and is not to.
func gateRights(t *testing.T, h *home) (problems []string) {
	t.Helper()
	pid, daemon := h.gatePID(), h.daemonPID()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2", fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", userID, userID, userID, userID),
	} {
		if !bytes.Contains(raw, []byte(want+"\n")) {
			problems = append(problems, fmt.Sprintf("its status lacks %q", want))
		}
	}
	for ns, differs := range map[string]bool{"user": true, "net": false} {
		of := func(pid int) string {
			target, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			if err != nil {
				t.Fatal(err)
			}
			return target
		}
		if got := of(pid) != of(daemon); got != differs {
			problems = append(problems, fmt.Sprintf("it has a %s namespace of its own: %t", ns, got))
		}
	}
	if root, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid)); err != nil || len(root) > 0 {
		problems = append(problems, fmt.Sprintf("its root has %d entries, %v", len(root), err))
	}
	return problems
}

// A gate without root that gives nothing up is seen.
func TestGateRightsWithoutRootAreSeen(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("CARBOY_WEAK_BIN")
	if bin == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: make weak builds it")
	}
	for seed, want := range map[weak.Weakness][]string{
		weak.NetGateAsRoot:     {"CapEff", "CapPrm", "CapAmb", "its root has"},
		weak.NetGateUnfiltered: {"Seccomp"},
	} {
		t.Run(string(seed), func(t *testing.T) {
			w := newWorld(t)
			h := w.ordinaryHome(bin, "CARBOY_WEAKEN="+string(seed))
			daemon := h.command(context.Background(), "serve") // one that a command starts has an environment of its own
			if err := h.start(daemon); err != nil {
				t.Fatal(err)
			}
			go daemon.Wait() // the home's end stops it
			until(t, func() bool { return h.run(nil, "daemon", "status").code == 0 })
			h.create("--isolation", "process", "--allow", "public.example")
			got := strings.Join(gateRights(t, h), "\n")
			for _, text := range want {
				if !strings.Contains(got, text) {
					t.Errorf("nothing is said of %s:\n%s", text, got)
				}
			}
		})
	}
}

// survives kills the gate, the daemon, and the gate once more.
func survives(t *testing.T, h *home, name string) {
	t.Helper()
	back := func() bool { return h.get(name, "https://public.example/") == helloPublic }
	h.killGate()
	until(t, back)
	gate := h.gatePID()
	h.killDaemon()
	if !back() || h.gatePID() != gate {
		t.Error("the network did not go on without a daemon")
	}
	h.killGate()
	until(t, back)
}

// lost kills the gate while there is no daemon: without root nobody can open
// the link again, which the sandbox's events say, until it is started anew.
func lost(t *testing.T, h *home, name string) {
	t.Helper()
	h.killDaemon()
	h.killGate()
	got := h.run(nil, "exec", name, "--", "curl", "-sS", "-m", "1", "http://public.example/")
	if got.code == 0 || strings.Contains(got.stdout, "hello") {
		t.Errorf("without a gate: got %q", got.stdout)
	}
	if got := h.ok("logs", name); !strings.Contains(got, "its network is gone") {
		t.Errorf("the events are:\n%s", got)
	}
	h.ok("stop", name)
	h.ok("start", name)
	if got := h.get(name, "https://public.example/"); got != helloPublic {
		t.Errorf("started anew: got %q", got)
	}
}
