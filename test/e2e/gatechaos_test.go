package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// gates are the processes that are gates of the home's.
func (h *home) gates() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil || !alive(pid) {
			continue
		}
		raw, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.HasPrefix(raw, []byte("carboy-gate\x00"+h.dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gatePID is that of the one gate that the home has.
func (h *home) gatePID() int {
	h.t.Helper()
	pids := h.gates()
	if len(pids) != 1 {
		h.t.Fatalf("gates %d, want one", pids)
	}
	return pids[0]
}

// prober tries every 10 ms what must not pass, over TCP, UDP and DNS, and beside that what
// must, until /workspace/enough is there, and for so long at least: it says what came of
// that, and how long nothing could be had.
const prober = `
import json, os, socket, struct, sys, threading, time
seconds, bad = float(sys.argv[1]), sys.argv[2]
out = {"tries": 0, "ok": 0, "gap": 0.0, "reached": []}
def question(name):
    return struct.pack(">6H", os.getpid() & 0xffff, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0\0\1\0\1"
def udp(to, what, wait):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(wait)
    try:
        s.connect(to); s.send(what)
        return s.recv(4096)
    except OSError: return b""
    finally: s.close()
def tcp(to, wait):
    s = socket.socket()
    s.settimeout(wait)
    try:
        s.connect(to); s.send(b"GET / HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
        return s.recv(4096)
    except OSError: return b""
    finally: s.close()
end = time.monotonic() + seconds
done = lambda: time.monotonic() > end and os.path.exists("/workspace/enough")
def good():
    last = time.monotonic()
    while not done():
        a = udp(("192.0.0.1", 53), question("ok.example"), 0.5)
        if a and b"hello" in tcp((socket.inet_ntoa(a[-4:]), 80), 0.5):
            out["ok"] += 1
            now = time.monotonic()
            out["gap"] = max(out["gap"], now - last)
            last = now
        time.sleep(0.01)
    out["gap"] = max(out["gap"], time.monotonic() - last)
beside = threading.Thread(target=good)
beside.start()
while not done():
    out["tries"] += 1
    began = time.monotonic()
    if tcp((bad, 4444), 0.01): out["reached"].append("tcp")
    if udp((bad, 4444), b"out", 0.005): out["reached"].append("udp")
    if udp((bad, 53), question("direct%d.canary.example" % out["tries"]), 0.005): out["reached"].append("resolver")
    udp(("192.0.0.1", 53), question("q%d.canary.example" % out["tries"]), 0.01)
    time.sleep(max(0, 0.01 - (time.monotonic() - began)))
beside.join()
print(json.dumps(out))
`

type probed struct {
	Tries, OK int
	Gap       float64 // seconds
	Reached   []string
}

// probe begins to try, which goes on for so long at least, and until the result is asked for.
func (h *home) probe(name string, seconds float64) (result func() probed) {
	h.t.Helper()
	h.ok("exec", name, "--", "rm", "-f", "/workspace/enough")
	text := make(chan string, 1)
	go func() {
		r := h.run(strings.NewReader(prober), "exec", "-i", name, "--", "python3", "-", fmt.Sprint(seconds), worldB)
		text <- r.stdout
	}()
	return func() (out probed) {
		h.t.Helper()
		h.ok("exec", name, "--", "touch", "/workspace/enough")
		if text := <-text; json.Unmarshal([]byte(text), &out) != nil {
			h.t.Fatalf("the prober says %q", text)
		}
		return out
	}
}

// canary counts what arrives where nothing may.
type canary struct{ tcp, udp, dns atomic.Int64 }

func newCanary(w *world) *canary {
	c := new(canary)
	l := w.listen(worldB + ":4444")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.tcp.Add(1)
			_, _ = io.WriteString(conn, "seen")
			conn.Close()
		}
	}()
	for port, count := range map[string]*atomic.Int64{"4444": &c.udp, "53": &c.dns} {
		var pc net.PacketConn
		var err error
		w.in(func() { pc, err = net.ListenPacket("udp", worldB+":"+port) })
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { pc.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				count.Add(1)
				_, _ = pc.WriteTo(b[:n], from)
			}
		}()
	}
	return c
}

// asks counts the questions about the canary's names that left the host.
func (c *canary) asks(w *world) (n int) {
	for _, q := range w.asked() {
		if strings.Contains(q, "canary") {
			n++
		}
	}
	return n
}

const openPolicy = `
rules:
  - {id: ok, hosts: [ok.example]}
  - {id: names, hosts: ["*.canary.example"]}
  - {id: canary, addresses: [` + worldB + `], ports: ["4444"], protocol: tcp}
  - {id: canary-udp, addresses: [` + worldB + `], ports: ["4444", "53"], protocol: udp}
`

// A gate dies again and again: another is there soon, and in
// between nothing passes, for which the same attempts get through where they
// are allowed.
func TestGateKilled(t *testing.T) {
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			w := newWorld(t)
			w.https("ok.example", worldA, nil)
			c := newCanary(w)
			h := w.home()
			name := h.create("--isolation", wall, "--allow", "ok.example")
			var killed, tries int
			worst := 0.0
			for range 4 {
				more := func() {
					t.Helper()
					before := len(w.received("ok.example"))
					until(t, func() bool { return len(w.received("ok.example")) > before+5 })
				}
				result := h.probe(name, 2)
				more()
				old := h.gatePID()
				if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				killed++
				until(t, func() bool { pids := h.gates(); return len(pids) == 1 && pids[0] != old })
				more()
				out := result()
				if now := h.gatePID(); now == old {
					t.Error("it is the same gate")
				}
				if out.Gap > patience.For(5*time.Second).Seconds() || len(out.Reached) > 0 {
					t.Errorf("with its gate killed: %+v", out)
				}
				tries += out.Tries
				worst = max(worst, out.Gap)
			}
			if c.tcp.Load()+c.udp.Load()+c.dns.Load() > 0 || c.asks(w) > 0 {
				t.Errorf("the canary was reached: TCP %d, UDP %d, DNS %d directly and %d through the resolver", c.tcp.Load(), c.udp.Load(), c.dns.Load(), c.asks(w))
			}
			t.Logf("%d gates killed, %d probes each of TCP, UDP and DNS; the longest gap %.0f ms", killed, tries, worst*1000)

			h.ok("policy", "set", name, "--policy", h.write("open.yaml", openPolicy))
			result := h.probe(name, 0.5)
			seen := func() bool { return c.tcp.Load() > 0 && c.udp.Load() > 0 && c.dns.Load() > 0 && c.asks(w) > 0 }
			patience.Until(30*time.Second, seen)
			out := result()
			if c.tcp.Load() == 0 || c.udp.Load() == 0 || c.dns.Load() == 0 || c.asks(w) == 0 {
				t.Errorf("where all is allowed the canary saw TCP %d, UDP %d, DNS %d and %d: %+v", c.tcp.Load(), c.udp.Load(), c.dns.Load(), c.asks(w), out)
			}
		})
	}
}

// A gate dies at each moment of a create: that either makes a sandbox whose
// promise holds, or leaves nothing.
func TestGateKilledInCreate(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("ok.example", worldA, nil)
		h := w.home()
		h.list() // starts the daemon
		made, failed := 0, 0
		for _, at := range long.Moments(3, 16, 4*time.Millisecond) {
			created := make(chan result)
			go func() { created <- h.run(nil, "create", "--isolation", wall, "--name", "web", "--allow", "ok.example") }()
			var gates []int
			until(t, func() bool { gates = h.gates(); return len(gates) > 0 })
			<-time.After(at)
			_ = syscall.Kill(gates[0], syscall.SIGKILL)
			if r := <-created; r.code != 0 {
				failed++
				if n := len(h.list()); n != 0 {
					t.Errorf("at %v: a create that failed left %d sandboxes", at, n)
				}
				if left := h.gateFiles(); len(left) > 0 {
					t.Errorf("at %v: a create that failed left %q", at, left)
				}
				continue
			}
			made++
			until(t, func() bool {
				return h.run(nil, "exec", "web", "--", "curl", "-sS", "-m", "10", "https://ok.example/").stdout == "hello from ok.example\n"
			})
			if r := h.run(nil, "exec", "web", "--", "curl", "-sS", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", "http://evil.example/"); r.stdout != "403" {
				t.Errorf("at %v: what is not allowed: %+v", at, r)
			}
			h.ok("rm", "-f", "web")
		}
		t.Logf("%d sandboxes were made and %d were not", made, failed)
	})
}

// gateFiles are what there is of gates, and of git gates, on disk.
func (h *home) gateFiles() []string {
	files, _ := filepath.Glob(h.dir + "/state/carboy/gates/*")
	mirrors, _ := filepath.Glob(h.dir + "/state/carboy/git/*")
	return append(files, mirrors...)
}

// namespaces counts the network namespaces that the daemon holds open, beside
// its own.
func (h *home) namespaces() (n int) {
	h.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", h.daemonPID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		if to, _ := os.Readlink(filepath.Join(dir, e.Name())); strings.HasPrefix(to, "net:[") {
			n++
		}
	}
	return n
}

// A box that dies takes its gate with it, and nothing of either is held. It
// starts again with the same way out; once it is removed there is nothing.
func TestNetworkedBoxKilled(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("ok.example", worldA, nil)
		h := w.home()
		name := h.create("--isolation", wall, "--allow", "ok.example")
		id, gate := h.id(name), h.gatePID()
		for _, pid := range inside(id) {
			if pid != gate {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		until(t, func() bool { return h.list()[0].State == "stopped" })
		if pids := h.gates(); len(pids) > 0 {
			t.Errorf("of a sandbox that is stopped, gates %d run", pids)
		}
		if n := h.namespaces(); n > 0 {
			t.Errorf("%d namespaces are held open for a sandbox that is stopped", n)
		}
		h.ok("start", name)
		if got := h.ok("exec", name, "--", "curl", "-sS", "https://ok.example/"); got != "hello from ok.example\n" {
			t.Errorf("after another start: %q", got)
		}
		h.ok("rm", "-f", name)
		if pids, files, n := h.gates(), h.gateFiles(), h.namespaces(); len(pids)+len(files)+n > 0 {
			t.Errorf("left: gates %d, files %q, %d namespaces", pids, files, n)
		}
	})
}

// The daemon and the gate die together, with a box that goes on: it has no way
// out until a daemon is there, and then it has one again.
func TestDaemonAndGateKilled(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("ok.example", worldA, nil)
		h := w.home()
		name := h.create("--isolation", wall, "--allow", "ok.example")
		gate := h.gatePID()
		h.killDaemon()
		if err := syscall.Kill(gate, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return !alive(gate) })
		h.list() // starts a daemon
		until(t, func() bool {
			return h.run(nil, "exec", name, "--", "curl", "-sS", "-m", "10", "https://ok.example/").stdout == "hello from ok.example\n"
		})
		if h.gatePID() == gate {
			t.Error("it is the same gate")
		}
	})
}

// A record that can't be written for want of space stops nothing, and says
// later how much it lacks.
func TestRecordDiskFull(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("ok.example", worldA, nil)
		h := w.home()
		gates := h.dir + "/state/carboy/gates"
		if err := os.MkdirAll(gates, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("carboy-small", gates, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
			t.Skip("mount a small file system:", err)
		}
		t.Cleanup(func() { // before the home's own
			for _, sb := range h.list() {
				h.run(nil, "rm", "-f", sb.Name)
			}
			h.run(nil, "daemon", "stop")
			until(t, func() bool { return syscall.Unmount(gates, 0) != syscall.EBUSY })
		})
		name := h.create("--isolation", wall, "--allow", "ok.example")
		get := func() {
			t.Helper()
			if got := h.ok("exec", name, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do curl -sS -m 60 http://ok.example/$i; done"); got != strings.Repeat("hello from ok.example\n", 8) {
				t.Errorf("got %q", got)
			}
		}
		get()
		filler := filepath.Join(gates, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		f.Close()
		for range 8 {
			get()
		}
		h.netLog(name) // can be read all the same
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		get()
		until(t, func() bool {
			for _, l := range h.netLog(name) {
				if l.Code == "records_lost" || strings.Contains(l.Reason, "could not be written") {
					return true
				}
			}
			return false
		})
	})
}
