package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkspaceLock: what is locked nothing inside can write to, through a pause, a stop, a daemon that is killed and one
// that has no word of it, until it is unlocked; others that have the workspace are not bound.
func TestWorkspaceLock(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{"a": "a\n"})
		for _, name := range []string{"web", "other"} {
			h.ok("create", "--name", name, "--isolation", wall, "--workspace", dir+":rw")
		}
		writes := func(name string) bool {
			t.Helper()
			r := h.run(nil, "exec", name, "--", "sh", "-c", "cat /workspace/a && echo more >>/workspace/log && rm -f /workspace/new && touch /workspace/new")
			if r.stdout != "a\n" || r.code == 125 || r.code != 0 && !strings.Contains(r.stderr, "Read-only file system") {
				t.Fatalf("exec: %d, %q, %q", r.code, r.stdout, r.stderr)
			}
			return r.code == 0
		}
		locked := func(when string, want bool) {
			t.Helper()
			if writes("web") == want {
				t.Errorf("%s: locked is %t", when, !want)
			}
			if got := h.ok("inspect", "web"); strings.Contains(got, "(the tree itself), locked") != want || strings.Contains(got, "locked: remounted read-only") != want {
				t.Errorf("%s: inspect says\n%s", when, got)
			}
			if !writes("other") {
				t.Errorf("%s: the other one can't write", when)
			}
		}
		locked("made", false)
		h.ok("workspace", "lock", "web")
		locked("locked", true)
		if r := h.run(nil, "cp", filepath.Join(dir, "a"), "web:/workspace/b"); r.code != 125 || !strings.Contains(r.stderr, "read-only") {
			t.Errorf("cp: %d, %q", r.code, r.stderr)
		}
		if err := os.WriteFile(filepath.Join(dir, "host"), nil, 0o644); err != nil {
			t.Error(err)
		}
		h.killDaemon()
		locked("with another daemon", true)
		h.ok("pause", "web")
		if r := h.run(nil, "workspace", "unlock", "web"); wall == "gvisor" && (r.code != 125 || !strings.Contains(r.stderr, "it is paused")) {
			t.Errorf("unlock of one that keeps its memory: %d, %q", r.code, r.stderr)
		}
		if wall != "gvisor" { // where a pause is a stop
			h.ok("workspace", "lock", "web")
		}
		h.ok("start", "web")
		locked("after a pause", true)
		h.ok("stop", "web")
		h.ok("start", "web")
		locked("started again", true)
		h.ok("workspace", "unlock", "web")
		locked("unlocked", false)
		id := strings.TrimSpace(h.ok("exec", "-d", "web", "--", "sh", "-c", "exec 7>/workspace/held; touch /tmp/ready; exec sleep 1000"))
		until(t, func() bool { return h.run(nil, "exec", "web", "--", "test", "-e", "/tmp/ready").code == 0 })
		if r := h.run(nil, "workspace", "lock", "web"); r.code != 125 || !strings.Contains(r.stderr, "sleep (pid ") || !strings.Contains(r.stderr, "/workspace/held open for writing") {
			t.Errorf("a lock while a file is open: %d, %q", r.code, r.stderr)
		}
		locked("a lock was refused", false)
		if r := h.run(nil, "workspace", "lock", "--end-writers", "web"); r.code != 0 || !strings.Contains(r.stderr, "ended sleep (pid ") {
			t.Errorf("a lock that ends writers: %d, %q", r.code, r.stderr)
		}
		locked("a writer was ended", true)
		if r := h.run(nil, "wait", "web", id); r.code != 137 {
			t.Errorf("what was ended: %d, %q", r.code, r.stderr)
		}
		h.ok("rm", "-f", "web", "other")
	})
}

// TestWorkspaceLockParts: two sandboxes share a volume, and each writes to the part that the other one leaves to it, through a
// killed daemon, a stop and a start, until that is undone.
func TestWorkspaceLockParts(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		h.ok("volume", "create", "tree", "--size", "32m")
		for _, name := range []string{"above", "below"} {
			h.ok("create", "--name", name, "--isolation", wall, "--volume", "tree:/workspace")
		}
		h.ok("exec", "above", "--", "sh", "-c", "mkdir -p src/deep docs && chmod -R a+rwX .")
		check := func(when, above, below string) {
			t.Helper()
			for name, want := range map[string]string{"above": above, "below": below} {
				got := h.ok("exec", name, "--", "sh", "-c", "for d in . docs src src/deep; do touch $d/"+name+" 2>/dev/null && printf %s: $d; done; rm -f /tmp/x")
				if got != want {
					t.Errorf("%s: %s writes to %q, want %q", when, name, got, want)
				}
			}
		}
		h.ok("workspace", "lock", "above", "src")
		h.ok("workspace", "lock", "below")
		h.ok("workspace", "unlock", "below", "/workspace/src")
		check("locked", ".:docs:", "src:src/deep:")
		if got := h.ok("inspect", "below"); !strings.Contains(got, ", locked: all, not src") {
			t.Errorf("inspect says\n%s", got)
		}
		h.killDaemon()
		check("with another daemon", ".:docs:", "src:src/deep:")
		h.ok("workspace", "lock", "below", "src/deep")
		h.ok("stop", "above", "below")
		h.ok("start", "above", "below")
		check("started again", ".:docs:", "src:")
		id := strings.TrimSpace(h.ok("exec", "-d", "above", "--", "sh", "-c", "cd docs; touch /tmp/ready; exec sleep 1000"))
		until(t, func() bool { return h.run(nil, "exec", "above", "--", "test", "-e", "/tmp/ready").code == 0 })
		if r := h.run(nil, "workspace", "lock", "above", "docs"); r.code != 125 || !strings.Contains(r.stderr, "sleep (pid ") || !strings.Contains(r.stderr, "which works in /workspace/docs") {
			t.Errorf("a lock of where somebody works: %d, %q", r.code, r.stderr)
		}
		check("a lock was refused", ".:docs:", "src:")
		if r := h.run(nil, "workspace", "lock", "--end-writers", "above", "docs"); r.code != 0 || !strings.Contains(r.stderr, "ended sleep (pid ") {
			t.Errorf("a lock that ends who works there: %d, %q", r.code, r.stderr)
		}
		if r := h.run(nil, "wait", "above", id); r.code != 137 {
			t.Errorf("what was ended: %d, %q", r.code, r.stderr)
		}
		check("docs are locked", ".:", "src:")
		for _, bad := range []string{"none", "../etc", "/etc", "/workspacex", ""} {
			if r := h.run(nil, "workspace", "lock", "above", bad); r.code != 125 {
				t.Errorf("lock %q: %+v", bad, r)
			}
		}
		h.ok("workspace", "unlock", "above")
		h.ok("workspace", "unlock", "below")
		check("unlocked", ".:docs:src:src/deep:", ".:docs:src:src/deep:")
		h.ok("exec", "above", "--", "sh", "-c", "mv src was && mv was src")
		h.ok("rm", "-f", "above", "below")
	})
}
