package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// writesAt is where a sandbox can write, of the directories of a test's tree.
func (h *home) writesAt(name string) string {
	h.t.Helper()
	return h.ok("exec", name, "--", "sh", "-c", "for d in . docs src src/x; do touch $d/t 2>/dev/null && printf %s: $d; rm -f $d/t; done; test -r src/a && test -r docs/d || echo unreadable")
}

// podTree makes a volume of a tree, and a sandbox that has it.
func (h *home) podTree(wall string) {
	h.t.Helper()
	dir := h.edited(map[string]string{"src/a": "a\n", "src/x/b": "b\n", "docs/d": "d\n"})
	h.ok("volume", "import", dir, "tree")
	h.ok("create", "--name", "lead", "--isolation", wall, "--volume", "tree:/workspace")
}

// TestPods: a parent delegates to a child, and that to a grandchild. Each writes what it was given, and nobody else does, for all
// commands in their sandboxes, through a killed daemon and a stop, until it is given back.
func TestPods(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		h.podTree(wall)
		check := func(when string, want map[string]string) {
			t.Helper()
			for name, w := range want {
				if got := h.writesAt(name); got != w {
					t.Errorf("%s: %s writes to %q, want %q", when, name, got, w)
				}
			}
		}
		check("before", map[string]string{"lead": ".:docs:src:src/x:"})
		h.ok("pod", "spawn", "--scope", "src:write", "--task", "edit", "lead", "child", "--", "sh", "-c", "cat >src/task; echo I did it; echo no >docs/no")
		h.ok("pod", "spawn", "--scope", "src/x:write", "--task", "deep", "child", "grandchild", "--", "sh", "-c", "echo $0 >src/x/task", "{}")
		if r := h.run(nil, "pod", "read", "--follow", "child"); r.code != 1 || r.stdout != "I did it\n" || !strings.Contains(r.stderr, "docs/no: Read-only file system") {
			t.Errorf("what the child said: %+v", r)
		}
		if r := h.run(nil, "pod", "read", "--follow", "grandchild"); r.code != 0 || h.ok("exec", "lead", "--", "cat", "src/task", "src/x/task") != "editdeep\n" {
			t.Errorf("what the grandchild did: %+v", r)
		}
		delegated := map[string]string{"lead": ".:docs:", "child": "src:", "grandchild": "src/x:"}
		check("delegated", delegated)
		h.killDaemon()
		check("with another daemon", delegated)
		h.ok("stop", "lead", "child")
		h.ok("start", "lead")
		h.ok("pod", "send", "child", "again") // which starts it
		until(t, func() bool {                // what it heard of its own comes first
			got := h.ok("exec", "lead", "--", "cat", "src/task")
			return strings.HasSuffix(got, "\n\nagain") && strings.Contains(got, "Pod `grandchild` finished a turn.")
		})
		check("started again", delegated)
		for _, args := range [][]string{{"workspace", "unlock", "lead"}, {"workspace", "unlock", "child", "docs"}} {
			if r := h.run(nil, args...); r.code != 125 {
				t.Errorf("%s: %+v", args, r)
			}
		}
		check("an unlock was refused", delegated)
		if got := h.ok("pod", "tree"); got != "lead  alive  writes /workspace\n  child  idle  writes /workspace/src\n    grandchild  idle  writes /workspace/src/x\n" {
			t.Errorf("the tree is\n%s", got)
		}
		if got := h.ok("pod", "stop", "child"); got != "stopped pod `child`; reclaimed scope: write:/workspace/src\n" {
			t.Errorf("stop says %q", got)
		}
		check("the child was stopped", map[string]string{"lead": ".:docs:src:", "grandchild": "src/x:"})
		h.ok("rm", "-f", "grandchild")
		until(t, func() bool { return h.writesAt("lead") == ".:docs:src:src/x:" }) // without being asked for
		if got := h.ok("pod", "ls"); !strings.Contains(got, "grandchild") || !strings.Contains(got, "stopped") {
			t.Errorf("a pod whose sandbox was removed is not listed as stopped:\n%s", got)
		}
		h.ok("workspace", "lock", "lead")
		h.ok("workspace", "unlock", "lead")
		if got := h.ok("pod", "ls", "--json"); strings.TrimSpace(got) != "[]" {
			t.Errorf("there are still pods: %s", got)
		}
		h.ok("rm", "-f", "lead")
	})
}

// TestPodsRefused: what can't be delegated is refused in the words of the system that pods come from, and changes nothing; what works where
// a child is to write is named, or ended.
func TestPodsRefused(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		h.ok("exec", "lead", "--", "sh", "-c", "ln -s /etc out && mkdir new")
		h.ok("pod", "spawn", "--scope", "src:write", "--task", "x", "lead", "src", "--", "true")
		h.ok("pod", "read", "--follow", "src")
		before := h.ok("pod", "ls", "--json")
		for scope, want := range map[string]string{
			"/etc:write":                   "not within",
			"/workspace/docs/../..:write":  "not within",
			"out:write":                    "not within",
			"src/x:write":                  "pod `src` has write:/workspace/src",
			".:write":                      "not within",
			"none:write":                   "there is no such directory",
			"docs/d:write":                 "it is no directory",
			"docs:execute":                 "write or read",
			"/workspace/src/x/../..:write": "pod `src` has write:/workspace/src",
		} {
			r := h.run(nil, "pod", "spawn", "--scope", scope, "--task", "x", "lead", "other", "--", "true")
			if r.code != 125 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: %+v", scope, r)
			}
		}
		id := strings.TrimSpace(h.ok("exec", "-d", "lead", "--", "sh", "-c", "cd docs; touch /tmp/ready; exec sleep 1000"))
		until(t, func() bool { return h.run(nil, "exec", "lead", "--", "test", "-e", "/tmp/ready").code == 0 })
		r := h.run(nil, "pod", "spawn", "--scope", "docs:write", "--task", "x", "lead", "docs", "--", "true")
		if r.code != 125 || !strings.Contains(r.stderr, "which works in /workspace/docs") {
			t.Errorf("while the parent works there: %+v", r)
		}
		if got := h.ok("pod", "ls", "--json"); got != before {
			t.Errorf("there are other pods than before:\n%s\n%s", got, before)
		}
		if got := h.writesAt("lead"); got != ".:docs:" {
			t.Errorf("the parent writes to %q", got)
		}
		r = h.run(nil, "pod", "spawn", "--scope", "docs:write", "--end-writers", "--task", "x", "lead", "docs", "--", "true")
		if r.code != 0 || !strings.Contains(r.stderr, "ended sleep (pid ") {
			t.Errorf("with an end to that: %+v", r)
		}
		if r := h.run(nil, "wait", "lead", id); r.code != 137 {
			t.Errorf("what was ended: %+v", r)
		}
		h.ok("pod", "read", "--follow", "docs")
		h.ok("rm", "-f", "lead") // a parent goes, and its pods stay
		if got := h.writesAt("docs"); got != "docs:" {
			t.Errorf("an orphan writes to %q", got)
		}
		h.ok("pod", "stop", "src", "docs")
	})
}

// TestPodGoesOn: a pod's turn outlives the daemon, and nothing that it says is lost or said twice.
func TestPodGoesOn(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.podTree(wall)
		const agent = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; sleep 0.02; done"
		h.ok("pod", "spawn", "--scope", ".:read", "--task", "count", "lead", "counter", "--", "sh", "-c", agent)
		first := h.ok("pod", "read", "counter")
		for range 3 {
			h.killDaemon()
			h.ok("pod", "inspect", "counter")
		}
		r := h.run(nil, "pod", "read", "--all", "--follow", "counter")
		var want strings.Builder
		for i := range 200 {
			want.WriteString("line " + strconv.Itoa(i+1) + "\n")
		}
		if r.code != 0 || r.stdout != want.String() || !strings.HasPrefix(r.stdout, first) {
			t.Errorf("it said, with %d:\n%s", r.code, r.stdout)
		}
		if got := h.writesAt("lead"); got != ".:docs:src:src/x:" {
			t.Errorf("its parent, of which it reads, writes to %q", got)
		}
		h.ok("pod", "stop", "counter")
		h.ok("rm", "-f", "lead")
	})
}
