package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// oneWriter fails where two of some sandboxes can write to one directory, of those that are there.
func (h *home) oneWriter(when string, dirs []string, names ...string) {
	h.t.Helper()
	writers := map[string][]string{}
	for _, name := range names {
		got := h.ok("exec", name, "--", "sh", "-c", "for d in "+strings.Join(dirs, " ")+`; do test -d $d && ! test -L $d && touch $d/t 2>/dev/null && echo $d; rm -f $d/t 2>/dev/null; done; true`)
		for _, dir := range strings.Fields(got) {
			writers[dir] = append(writers[dir], name)
		}
	}
	for dir, who := range writers {
		if len(who) > 1 {
			h.t.Errorf("%s: %s is written to by %q", when, dir, who)
		}
	}
}

// TestPodsAttacked: a parent that wants to write where its pod does: by links, names, mounts, handles and what it had before. Each attempt gets
// through before anything is delegated, or is nobody's at all.
func TestPodsAttacked(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		spawn := func(name, scope string) result {
			return h.run(nil, "pod", "spawn", "--scope", scope+":write", "--task", "x", "lead", name, "--", "true")
		}
		t.Run("hard-link-out", func(t *testing.T) {
			h.ok("exec", "lead", "--", "ln", "src/a", "out")
			if r := spawn("child", "src"); r.code != 125 || !strings.Contains(r.stderr, "which has another name outside") {
				t.Errorf("spawn: %+v", r)
			}
			h.ok("exec", "lead", "--", "rm", "out")
		})
		t.Run("renamed-around", func(t *testing.T) {
			if r := spawn("child", "src/x"); r.code != 0 {
				t.Fatalf("spawn: %+v", r)
			}
			h.ok("pod", "read", "--follow", "child")
			h.oneWriter("it was given", []string{"src/x"}, "lead", "child")
			for _, attempt := range []string{
				"mv src moved", "mv -T docs src", "mv src docs/",
				"mv src/x y", "rm -rf src/x", "mv src/x/b b", "ln src/x/b b", "mv docs src/x", "mount --bind docs src/x", "unshare -m true", "unshare -rm true",
				"echo >>src/x/b", "cd src/x && touch t", "touch src/../src/x/t", "ln -s src/x l && touch l/t", "chmod 777 src/x/b", "touch /proc/self/cwd/src/x/t",
			} {
				if r := h.run(nil, "exec", "lead", "--", "sh", "-c", attempt); r.code == 0 {
					t.Errorf("%s went well", attempt)
				}
				h.run(nil, "exec", "lead", "--", "sh", "-c", "rm -f l")
			}
			h.ok("pod", "stop", "child")
			h.ok("exec", "lead", "--", "sh", "-c", "echo >>src/x/b && touch src/x/t && rm src/x/t && mv src/x y && mv y src/x")
		})
		t.Run("moved-by-others", func(t *testing.T) { // who is no pod is not bound, and what that breaks is said
			h.ok("create", "--name", "other", "--isolation", wall, "--volume", "tree:/workspace")
			if r := spawn("child", "src/x"); r.code != 0 {
				t.Fatalf("spawn: %+v", r)
			}
			h.ok("exec", "other", "--", "mv", "src/x", "away")
			h.ok("stop", "lead")
			if r := h.run(nil, "start", "lead"); r.code != 125 || !strings.Contains(r.stderr, "/workspace/src/x: no such file or directory") {
				t.Errorf("start: %+v", r)
			}
			h.ok("exec", "other", "--", "mv", "away", "src/x")
			h.ok("start", "lead")
			h.oneWriter("it was put back", []string{"src/x"}, "lead", "child")
			h.ok("pod", "stop", "child")
			h.ok("rm", "-f", "other")
		})
		t.Run("link-swapped", func(t *testing.T) {
			h.ok("exec", "lead", "--", "mkdir", "d")
			id := strings.TrimSpace(h.ok("exec", "-d", "lead", "--", "sh", "-c", "while :; do mv d real && ln -s src d; rm -f d; mv real d; done 2>/dev/null"))
			there := 0
			for i := range 8 {
				name := fmt.Sprintf("swap-%d", i)
				if r := spawn(name, "d"); r.code != 0 {
					continue
				}
				there++
				h.oneWriter("links were swapped", []string{"d", "real", "src", "docs"}, "lead", name)
				h.ok("pod", "stop", name)
			}
			h.run(nil, "kill", "lead", id)
			t.Logf("%d of 8 were spawned meanwhile", there)
			if got := strings.TrimSpace(h.ok("pod", "ls", "--json")); got != "[]" {
				t.Errorf("pods are left: %s", got)
			}
		})
		h.ok("rm", "-f", "lead")
	})
}
