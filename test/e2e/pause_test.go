package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// A process with what it can have: numbers, a deleted file, shared memory, a
// listening socket and a thread.
const counter = `
import json, os, socket, threading, time
f = open("/workspace/gone", "w+"); f.write("unlinked"); f.flush(); os.unlink("/workspace/gone")
s = open("/dev/shm/x", "w+"); s.write("shared"); s.flush()
l = socket.create_server(("127.0.0.1", 8099))
n = 0
def count():
    global n
    while True:
        n += 1
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
while True:
    c, _ = l.accept()
    f.seek(0); s.seek(0)
    c.sendall(json.dumps([n, os.getpid(), f.read(), s.read()]).encode())
    c.close()
`

const ask = `import socket; print(socket.create_connection(("127.0.0.1", 8099)).recv(1000).decode())`

// What a sandbox was in the middle of goes on after a pause, with and without
// a network: the same processes, their memory and what they have open.
func TestPauseKeepsMemory(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"off", "on"} {
		t.Run("network "+network, func(t *testing.T) {
			if network == "on" && os.Geteuid() != 0 {
				t.Skip("the test's world needs root")
			}
			h := newHome(t)
			name := h.create("--network", network)
			h.background(name, counter)
			answer := func() (n, pid int) {
				out := ""
				until(t, func() bool {
					r := h.run(nil, "exec", name, "--", "python3", "-c", ask)
					out = strings.TrimSpace(r.stdout)
					return r.code == 0
				})
				if _, err := fmt.Sscanf(out, `[%d, %d, "unlinked", "shared"]`, &n, &pid); err != nil {
					t.Fatalf("%v: %q", err, out)
				}
				return n, pid
			}
			n, pid := answer()
			for range 3 {
				if r := h.run(nil, "pause", name); r.code != 0 || r.stderr != "" {
					t.Fatalf("pause: %+v", r)
				}
				if l := h.list(); l[0].State != "stopped" || len(h.processes()) > 1 {
					t.Errorf("paused: %s, with %v", l[0].State, h.processes())
				}
				h.ok("start", name)
				m, same := answer()
				if m <= n || same != pid {
					t.Errorf("after the pause it counts %d in process %d; before, %d in %d", m, same, n, pid)
				}
				n = m
			}
			// The control: a stop ends it.
			h.ok("stop", name)
			h.ok("start", name)
			if r := h.run(nil, "exec", name, "--", "python3", "-c", ask); r.code == 0 {
				t.Errorf("after a stop it still answers %q", r.stdout)
			}
		})
	}
}

// Without root it is the same.
func TestPauseWithoutRoot(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	name := h.create()
	h.background(name, counter)
	until(t, func() bool { return h.run(nil, "exec", name, "--", "python3", "-c", ask).code == 0 })
	if r := h.run(nil, "pause", name); r.code != 0 || r.stderr != "" {
		t.Fatalf("pause: %+v", r)
	}
	h.ok("start", name)
	if out := h.ok("exec", name, "--", "python3", "-c", ask); !strings.Contains(out, "shared") {
		t.Errorf("after the pause it answers %q", out)
	}
}

// A wall that can't keep memory says so, and keeps the files.
func TestPauseOfAProcessWall(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create("--isolation", "process")
	h.ok("exec", name, "--", "sh", "-c", "echo work > /workspace/f")
	if r := h.run(nil, "pause", name); r.code != 0 || !strings.Contains(r.stderr, "its processes are not") {
		t.Errorf("pause: %+v", r)
	}
	if r := h.run(nil, "exec", name, "--", "true"); r.code == 0 {
		t.Error("a paused sandbox started unasked")
	}
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "cat", "/workspace/f"); got != "work\n" {
		t.Errorf("the work is %q", got)
	}
}

// A daemon that is killed at any moment of a pause, or of what follows it,
// leaves a sandbox with its files, which runs, or is stopped and can be
// started; what its processes wrote is never older than what they know.
func TestPauseKilledAnywhere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	h.ok("exec", name, "--", "sh", "-c", "echo work > /workspace/f")
	for _, at := range long.Moments(3, 12, 12*time.Millisecond) {
		for _, verb := range []string{"pause", "start"} {
			h.cutShort(at, verb, name)
			l := h.list()
			if len(l) != 1 || l[0].State != "running" && l[0].State != "stopped" {
				t.Fatalf("%v after %s: %+v", at, verb, l)
			}
		}
		h.ok("start", name)
		if got := h.ok("exec", name, "--", "cat", "/workspace/f"); got != "work\n" {
			t.Fatalf("at %v: the work is %q", at, got)
		}
	}
	// Memory that was used, or not come to its end, is not kept.
	h.ok("exec", name, "--", "true")
	if left := h.find("memory*"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// find lists what of that name is in the boxes' own directories.
func (h *home) find(pattern string) []string {
	h.t.Helper()
	left, err := filepath.Glob(filepath.Join(h.dir, "state", "carboy", "boxes", "*", "*", pattern))
	if err != nil {
		h.t.Fatal(err)
	}
	return left
}

// A socket with a path is the host's, and keeps memory from being written: it
// is named, and the files are kept.
func TestPauseWithASocket(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create()
	h.background(name, `
import socket, time
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/mine"); s.listen()
open("/workspace/listens", "w").close()
time.sleep(1000)
`)
	until(t, func() bool { return h.run(nil, "exec", name, "--", "test", "-e", "/workspace/listens").code == 0 })
	if r := h.run(nil, "pause", name); r.code != 0 || !strings.Contains(r.stderr, "its processes are not") {
		t.Errorf("pause: %+v", r)
	}
	if log := h.ok("logs", name); !strings.Contains(log, "unix socket at /tmp/mine") {
		t.Errorf("the log does not name the socket:\n%s", log)
	}
	h.ok("start", name)
	h.ok("exec", name, "--", "test", "-e", "/workspace/listens")
}
