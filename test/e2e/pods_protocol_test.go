package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/test/long"
)

// podProgram speaks the protocol of pods itself: it writes each task to docs/native, and says so.
const podProgram = `
import json, os, socket, sys, threading
print("a long story " * 200_000, file=sys.stderr, flush=True) # more than is kept of what nobody reads
path = os.environ["CARBOY_POD_SOCKET"]
if os.path.exists(path): os.unlink(path)
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(8)
entries, conns, lock = [], set(), threading.Lock()
def tell(f, name, data):
    try:
        f.write(json.dumps({"event": name, "data": data}) + "\n")
        f.flush()
    except OSError: conns.discard(f)
def serve(c):
    f = c.makefile("rw")
    with lock:
        tell(f, "snapshot", {"entries": list(entries), "status": "idle"})
        conns.add(f)
    try:
        for line in f:
            m = json.loads(line)
            with lock:
                if m["method"] == "run":
                    text = m["params"]["input"][0]["content"]
                    open("/workspace/docs/native", "a").write(text + "\n")
                    entries.extend([{"kind": "user"}, {"kind": "assistant", "text": "wrote " + text}])
                    for o in list(conns):
                        tell(o, "user_message", {"segments": m["params"]["input"]})
                        tell(o, "text_delta", {"text": "wrote " + text})
                        tell(o, "run_end", {"result": "finished"})
                        tell(o, "status", {"status": "idle"})
                elif m["method"] == "pod_event":
                    open("/tmp/heard", "a").write(m["params"]["pod_name"] + " " + m["params"]["kind"] + "\n")
                else:
                    tell(f, "error", {"code": "invalid_request", "message": "no " + m["method"]})
    except (OSError, ValueError): pass
    conns.discard(f)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

// TestPodProtocol: a program that speaks the protocol of pods itself is one, over its own socket, through restarts of the daemon and of its
// sandbox.
func TestPodProtocol(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		h.podTree(wall)
		h.ok("pod", "spawn", "--scope", "docs:write", "--protocol", "--task", "one", "lead", "native", "--", "python3", "-c", podProgram)
		if got := h.ok("pod", "read", "native"); got != "wrote one\n" {
			t.Errorf("it said %q", got)
		}
		until(t, func() bool {
			return strings.Contains(h.ok("pod", "read", "--all", "lead"), "Pod `native` finished a turn.")
		})
		h.ok("pod", "send", "native", "two")
		h.killDaemon()
		h.ok("pod", "send", "native", "three")
		if got := h.ok("pod", "read", "--all", "native"); got != "wrote one\n\nwrote two\n\nwrote three\n" {
			t.Errorf("it said %q", got)
		}
		if r := h.run(strings.NewReader("four\n"), "pod", "attach", "native"); r.code != 0 || r.stdout != "wrote four" {
			t.Errorf("attached: %+v", r)
		}
		h.ok("exec", "native", "--", "pkill", "-9", "python3")
		until(t, func() bool {
			got := h.ok("pod", "read", "--all", "lead")
			return strings.Contains(got, "Pod `native` reported an error: its program has ended: ") && strings.Contains(got, "a long story a long story\n")
		})
		if got := h.ok("pod", "ls"); !strings.Contains(got, "not listening") {
			t.Errorf("a program that has ended is\n%s", got)
		}
		if r := h.run(nil, "pod", "read", "native"); r.code != 125 || !strings.Contains(r.stderr, "pod `native`: its program does not listen at /tmp/carboy-pod.sock") {
			t.Errorf("read: %+v", r)
		}
		h.ok("pod", "send", "native", "afresh") // which starts it
		h.ok("stop", "native")
		h.ok("pod", "send", "native", "five") // which starts it
		if got := h.ok("exec", "lead", "--", "cat", "docs/native"); got != "one\ntwo\nthree\nfour\nafresh\nfive\n" {
			t.Errorf("it wrote %q", got)
		}
		h.ok("exec", "native", "--", "mkdir", "docs/deep")
		h.ok("pod", "spawn", "--scope", "docs/deep:write", "--task", "x", "native", "child", "--", "true")
		h.ok("pod", "read", "--follow", "child")
		h.ok("pod", "stop", "child")
		until(t, func() bool {
			return h.run(nil, "exec", "native", "--", "cat", "/tmp/heard").stdout == "child turn_ended\nchild shut_down\n"
		})
		if got := h.writesAt("lead") + " " + h.writesAt("native"); got != ".:src:src/x: docs:" {
			t.Errorf("parent and child write to %q", got)
		}
		h.ok("pod", "stop", "native")
		if got := h.ok("pod", "read", "lead"); !strings.HasSuffix(got, "Pod `native` has stopped.\n") { // which has no pods any more
			t.Errorf("the parent was told\n%s", got)
		}
		h.ok("rm", "-f", "lead")
	})
}

// TestPodNeverListens: a program that never listens is no pod, in the words of the system that pods come from; nothing of it is left.
func TestPodNeverListens(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		before := h.ok("ls", "--json")
		r := h.run(nil, "pod", "spawn", "--scope", "docs:write", "--protocol", "--task", "x", "lead", "deaf", "--", "sh", "-c", "echo no model here >&2; exec sleep 1000")
		if r.code != 125 || !strings.Contains(r.stderr, "spawned pod socket did not appear within 10s") || !strings.Contains(r.stderr, "no model here") {
			t.Errorf("spawn: %+v", r)
		}
		if got := h.ok("pod", "ls", "--json"); strings.TrimSpace(got) != "[]" {
			t.Errorf("there are pods: %s", got)
		}
		if got := h.ok("ls", "--json"); got != before {
			t.Errorf("there are other sandboxes than before:\n%s", got)
		}
		if got := h.writesAt("lead"); got != ".:docs:src:src/x:" {
			t.Errorf("the parent writes to %q", got)
		}
		h.ok("rm", "-f", "lead")
	})
}

// TestPodAttach: who is attached gives tasks and hears what is said, each task after the other; a parent hears of its pods.
func TestPodAttach(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		h.ok("pod", "spawn", "--scope", "docs:write", "--task", "zero", "lead", "echo", "--", "sh", "-c", "echo said: $0; sleep 0.2", "{}")
		r := h.run(strings.NewReader("one\ntwo\n"), "pod", "attach", "echo")
		if r.code != 0 || !strings.HasSuffix(r.stdout, "said: one\nsaid: two\n") {
			t.Errorf("attached: %+v", r)
		}
		if got := h.ok("pod", "read", "--all", "echo"); got != "said: zero\n\nsaid: one\n\nsaid: two\n" {
			t.Errorf("it said %q", got)
		}
		h.attachTwo("echo")
		h.ok("pod", "spawn", "--scope", "src:write", "--task", "x", "lead", "sad", "--", "sh", "-c", `printf 'oh\nPod %s has stopped.\n' '\140echo\140' >&2; exit 3`)
		until(t, func() bool {
			return strings.Contains(h.ok("pod", "read", "--all", "lead"), "Pod `sad` reported an error")
		})
		h.ok("pod", "stop", "echo")
		got := h.ok("pod", "read", "--all", "lead")
		for _, want := range []string{"Pod `echo` finished a turn.", "Pod `sad` reported an error: its command ended with 3: oh\\nPod", "Pod `echo` has stopped."} {
			if !strings.Contains(got, want) {
				t.Errorf("the parent was not told %q:\n%s", want, got)
			}
		}
		h.ok("pod", "stop", "sad")
		h.ok("rm", "-f", "lead")
	})
}

// attachTwo attaches twice to a pod that says what it is given: each task is done once, whoever was first.
func (h *home) attachTwo(name string) {
	h.t.Helper()
	before := h.ok("pod", "read", "--all", name)
	var both sync.WaitGroup
	for _, tasks := range []string{"a1\na2\na3\n", "b1\nb2\nb3\n"} {
		both.Go(func() {
			r := h.run(strings.NewReader(tasks), "pod", "attach", name)
			for task := range strings.Lines(tasks) {
				if r.code != 0 || !strings.Contains(r.stdout, "said: "+task) {
					h.t.Errorf("attached, with %q: %+v", task, r)
				}
			}
		})
	}
	both.Wait()
	got := strings.TrimPrefix(h.ok("pod", "read", "--all", name), before)
	for _, task := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		if n := strings.Count(got, "said: "+task+"\n"); n != 1 {
			h.t.Errorf("%s was done %d times:\n%s", task, n, got)
		}
	}
}

// TestPodsKilled: a daemon that is killed at any moment of a spawn or of a stop leaves a pod whole or nothing of it, and never two writers
// or none.
func TestPodsKilled(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		rounds := 6
		if long.On() {
			rounds = 60
		}
		for i := range rounds {
			args := []string{"pod", "spawn", "--scope", "docs:write", "--task", "x", "lead", "child", "--", "true"}
			if i%2 == 1 {
				args = []string{"pod", "stop", "child"}
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				h.run(nil, args...)
			}()
			// Any moment will do, none is waited for.
			delay := time.Duration(rand.IntN(1500)) * time.Millisecond
			select {
			case <-time.After(delay):
			case <-done:
			}
			h.killDaemon()
			<-done
			var pods []api.Pod
			if err := json.Unmarshal([]byte(h.ok("pod", "ls", "--json")), &pods); err != nil {
				t.Fatal(err)
			}
			want := ".:docs:src:src/x:"
			there := false
			for _, p := range pods {
				if p.Name == "child" && p.Liveness == "alive" {
					there, want = true, ".:src:src/x:"
				}
			}
			if got := h.writesAt("lead"); got != want {
				t.Errorf("%s, killed after %v: the pod is there: %t, and the parent writes to %q", args[1], delay, there, got)
			}
			switch r := h.run(nil, "inspect", "child"); {
			case there && h.writesAt("child") != "docs:":
				t.Errorf("%s, killed after %v: the pod writes to %q", args[1], delay, h.writesAt("child"))
			case !there && r.code == 0:
				t.Errorf("%s, killed after %v: a sandbox without a pod is left", args[1], delay)
			}
		}
		if h.run(nil, "pod", "inspect", "child").code == 0 {
			h.ok("pod", "stop", "child")
		}
		left, err := filepath.Glob(filepath.Join(h.dir, "state", "carboy", "pods", "*", "child-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("transcripts are left: %q, %v", left, err)
		}
		h.ok("rm", "-f", "lead")
	})
}
