package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load keeps one connection busy with a download that does not end and
// another with requests, until /workspace/stop is there. Neither is ever
// opened again. It says how that went.
const load = `
import http.client, json, os, ssl, threading, time
out, done = {"lines": 0, "requests": 0, "errors": []}, lambda: os.path.exists("/workspace/stop")
def download():
    c = http.client.HTTPSConnection("busy.example", timeout=120)
    c.request("GET", "/endless")
    r = c.getresponse()
    while not done():
        if not r.readline(): raise EOFError("the download ended")
        out["lines"] += 1
def requests():
    c = http.client.HTTPSConnection("busy.example", timeout=120)
    c.auto_open = 0
    c.connect()
    while not done():
        c.request("GET", "/one")
        if c.getresponse().read() != b"one\n": raise ValueError("another answer")
        out["requests"] += 1
        time.sleep(0.002)
def kept(f):
    try: f()
    except Exception as e: out["errors"].append(f.__name__ + ": " + repr(e))
all = [threading.Thread(target=kept, args=(f,)) for f in (download, requests)]
for t in all: t.start()
for t in all: t.join()
json.dump(out, open("/workspace/load.new", "w"))
os.rename("/workspace/load.new", "/workspace/load.json")
`

// busy serves what load asks for.
type busy struct {
	requests, lines atomic.Int64
	mu              sync.Mutex
	clients         map[string]bool // connections, by the other end's address
}

func (b *busy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if b.clients == nil {
		b.clients = map[string]bool{}
	}
	b.clients[r.RemoteAddr] = true
	b.mu.Unlock()
	if r.URL.Path != "/endless" {
		b.requests.Add(1)
		_, _ = io.WriteString(rw, "one\n")
		return
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprintln(rw, strings.Repeat("x", 1000)); err != nil {
			return
		}
		b.lines.Add(1)
		rw.(http.Flusher).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// more waits until so much more has gone through.
func (b *busy) more(t testing.TB, n int64) {
	t.Helper()
	requests, lines := b.requests.Load()+n, b.lines.Load()+n
	until(t, func() bool { return b.requests.Load() >= requests && b.lines.Load() >= lines })
}

// start runs a Python program in a sandbox that goes on by itself.
func (h *home) background(name, program string) {
	h.t.Helper()
	h.feed(program, "exec", "-i", name, "--", "sh", "-c", "cat >/workspace/p.py; rm -f /workspace/stop /workspace/load.json; setsid python3 /workspace/p.py >/workspace/p.out 2>&1 </dev/null &")
}

// feed is ok with standard input.
func (h *home) feed(stdin string, args ...string) string {
	h.t.Helper()
	r := h.run(strings.NewReader(stdin), args...)
	if r.code != 0 {
		h.t.Fatalf("carboy %q: exit code %d\nstdout: %s\nstderr: %s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// stopLoad ends the load, and returns what it says.
func (h *home) stopLoad(name string) (out struct {
	Lines, Requests int64
	Errors          []string
},
) {
	h.t.Helper()
	h.ok("exec", name, "--", "touch", "/workspace/stop")
	text := ""
	until(h.t, func() bool {
		text = h.run(nil, "exec", name, "--", "cat", "/workspace/load.json").stdout
		return text != ""
	})
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		h.t.Fatalf("%v: %s", err, text)
	}
	return out
}

// The daemon dies under load: no connection breaks, and the next daemon's
// word counts for them.
func TestDaemonKilledUnderLoad(t *testing.T) {
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			w, b := newWorld(t), new(busy)
			w.https("busy.example", worldA, b)
			h := w.home()
			name := h.create("--isolation", wall, "--allow", "busy.example")
			h.background(name, load)
			b.more(t, 20)
			gate := h.gatePID()
			for range 3 {
				h.killDaemon()
				b.more(t, 100) // nobody is there to help
				h.list()       // starts a daemon, which adopts
				b.more(t, 20)
			}
			if got := h.gatePID(); got != gate {
				t.Errorf("the gate was %d, and is %d", gate, got)
			}
			h.ok("policy", "set", name, "--policy", h.write("still.yaml", "rules: [{id: still, hosts: [busy.example]}]"))
			b.more(t, 20)
			out := h.stopLoad(name)
			if len(out.Errors) > 0 || out.Requests < 300 || out.Lines < 300 {
				t.Errorf("under load: %+v", out)
			}
			t.Logf("%d requests and %d lines on %d connections of the server's", out.Requests, out.Lines, len(b.clients))

			// The same load notices when its connections do break.
			h.background(name, load)
			b.more(t, 20)
			h.killDaemon()
			h.ok("policy", "set", name, "--policy", h.write("none.yaml", "rules: []"))
			if out := h.stopLoad(name); len(out.Errors) != 2 {
				t.Errorf("after a policy that allows nothing: %+v", out)
			}
		})
	}
}
