package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestCache: what a build keeps is there for the next sandbox of the same directory,
// behind either wall, in a copy-on-write view and in the tree itself; two at once have
// slots of their own; another directory, and one made anew at the same path, have
// nothing of it.
func TestCache(t *testing.T) {
	h := newHome(t)
	dir := func(name string) string {
		d := filepath.Join(h.dir, name)
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	one, other := dir("one"), dir("other")
	const keep, look = `mkdir -p "$GOCACHE" && echo kept >"$GOCACHE/x"`, `cat "$GOCACHE/x" || echo nothing`
	run := func(dir, wall, script string) string {
		t.Helper()
		return strings.TrimSpace(h.ok("run", "--isolation", wall, "--workspace", dir, "--cache", "go,npm", "--", "sh", "-c", script))
	}
	run(one, wallNames[0], keep)
	for _, wall := range wallNames {
		for _, as := range []string{one, one + ":rw", one + ":ro"} {
			if got := run(as, wall, look); got != "kept" {
				t.Errorf("%s, %s: %q", wall, as, got)
			}
		}
		if got := run(other, wall, look); got != "nothing" {
			t.Errorf("%s: another directory has %q", wall, got)
		}
		if got := h.ok("run", "--isolation", wall, "--workspace", one, "--cache", "go", "--env", "GOCACHE=/tmp/mine", "--", "sh", "-c", `echo $GOCACHE`); got != "/tmp/mine\n" {
			t.Errorf("%s: a variable of the user's own is %q", wall, got)
		}
	}
	moved := one + "-moved"
	if err := os.Rename(one, moved); err != nil {
		t.Fatal(err)
	}
	if got := run(moved, wallNames[0], look); got != "kept" {
		t.Errorf("moved: %q", got)
	}
	h.killDaemon()
	for _, step := range []func() error{func() error { return os.Remove(moved) }, func() error { return os.Mkdir(moved, 0o755) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(moved, wallNames[0], look); got != "nothing" {
		t.Errorf("one made anew at its path has %q", got)
	}
}

// TestCacheAtOnce: sandboxes of one directory that run at once don't meet in its
// cache, whatever walls they are behind, and one that is started again finds a slot.
func TestCacheAtOnce(t *testing.T) {
	h := newHome(t)
	dir := h.dir + "/repository"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	boxes := make([]string, 4)
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() {
			boxes[i] = strings.TrimSpace(h.ok("create", "--isolation", wallNames[i%len(wallNames)], "--workspace", dir, "--cache", "npm"))
		})
	}
	wg.Wait()
	for _, b := range boxes {
		if got := h.ok("exec", b, "--", "sh", "-c", `mkdir "$npm_config_cache" && echo `+b+` >"$npm_config_cache/who" && ls /var/cache/carboy`); got != "npm\n" {
			t.Errorf("%s sees %q", b, got)
		}
	}
	h.killDaemon()
	for _, b := range boxes {
		if got := h.ok("exec", b, "--", "sh", "-c", `cat "$npm_config_cache/who"`); got != b+"\n" {
			t.Errorf("%s has the slot of %q after the daemon was killed", b, got)
		}
	}
	h.ok("stop", boxes[0], boxes[1])
	h.ok("start", boxes[1])
	h.ok("start", boxes[0])
	seen := map[string]string{}
	for _, b := range boxes {
		who := h.ok("exec", b, "--", "sh", "-c", `cat "$npm_config_cache/who"`)
		if seen[who] != "" {
			t.Errorf("%s and %s have one slot", seen[who], b)
		}
		seen[who] = b
	}
	h.ok(append([]string{"rm", "-f"}, boxes...)...)
	list := h.ok("volume", "ls")
	if strings.Count(list, "cache-repository-") != 1 || !strings.Contains(list, dir) {
		t.Errorf("volumes:\n%s", list)
	}
	h.ok("volume", "rm", strings.Fields(strings.Split(list, "\n")[1])[0])
}
