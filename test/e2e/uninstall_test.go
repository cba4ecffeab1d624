package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// furnish gives a home one of everything, behind both walls, and a directory whose
// view has changes that nobody took.
func (h *home) furnish() {
	h.t.Helper()
	src := h.dir + "/src"
	if err := os.Mkdir(src, 0o777); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chmod(src, 0o777); err != nil { // whoever the home's user is
		h.t.Fatal(err)
	}
	h.ok("create", "--name", "web", "--workspace", src)
	h.ok("exec", "web", "--", "sh", "-c", "echo new >added; mkdir -m 0 /home/user/shut")
	h.ok("create", "--name", "light", "--isolation", "process")
	h.ok("create", "--name", "other", "--user", "root")
	h.ok("exec", "other", "--", "sh", "-c", "mkdir -p a/b && touch a/b/c && chown -R 33:33 a && chmod 700 a")
	h.ok("stop", "other")
	h.ok("snapshot", "create", "other")
	h.feed("canary-5bX0fQ", "secret", "add", "TOKEN", "-")
	h.ok("volume", "create", "data")
}

// nothing wants no file, control group or loop device of the home's, and no mount or
// loop but as many as there were.
func (h *home) nothing(mounts int) {
	h.t.Helper()
	for _, dir := range []string{"state/carboy", "run/carboy", "cache/carboy", "config/carboy"} {
		_ = filepath.WalkDir(filepath.Join(h.dir, dir), func(p string, _ fs.DirEntry, err error) error {
			if err == nil {
				h.t.Errorf("%s is there still", p)
			}
			return nil
		})
	}
	for what, n := range map[string]int{
		"control groups": len(h.groups()), "mounts and loops": len(h.mountsAndLoops()) - mounts, "loop devices": h.loops(),
	} {
		if n != 0 {
			h.t.Errorf("%d %s are there still", n, what)
		}
	}
	if taken, err := os.ReadDir(h.dir + "/src"); err != nil || len(taken) != 0 {
		h.t.Errorf("the user's own directory has %v (%v)", taken, err)
	}
}

// mine is a home with a cache of its own.
func mine(t *testing.T) *home {
	h := newHome(t)
	h.env = append(h.env, "XDG_CACHE_HOME="+h.dir+"/cache")
	return h
}

// TestUninstall: all of a home goes, after it was said what, and nothing else.
func TestUninstall(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *home{
		"root":         mine,
		"without-root": func(t *testing.T) *home { return newWorld(t).ordinaryHome(carboy) },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && name == "root" {
				t.Skip("needs root, whose home it is about")
			}
			h := open(t)
			mounts := len(h.mountsAndLoops()) // those of the world
			h.furnish()
			notes := h.dir + "/state/carboy/notes.txt"
			if err := os.WriteFile(notes, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			out := h.ok("uninstall", "--dry-run")
			for _, want := range []string{"3 sandboxes, 1 volume, 1 snapshot, secrets", "src in web", "not carboy's or not state: " + notes} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, "at least") {
				t.Errorf("it can't see all:\n%s", out)
			}
			if r := h.run(nil, "uninstall"); r.code != 125 || !strings.Contains(r.stderr, "--yes") {
				t.Errorf("without a terminal: %+v", r)
			}
			if got := h.ok("exec", "web", "--", "cat", "added"); got != "new\n" { // the control: it was all there
				t.Errorf("before, it says %q", got)
			}
			h.ok("uninstall", "--yes", "--config")
			if err := os.Remove(notes); err != nil {
				t.Errorf("what is not carboy's is gone: %v", err)
			}
			if err := os.Remove(filepath.Dir(notes)); err != nil {
				t.Errorf("more is left than that: %v", err)
			}
			h.nothing(mounts)
		})
	}
}

// TestUninstallKilled: one that was killed is ended by the next.
func TestUninstallKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose home it is about")
	}
	h := mine(t)
	h.furnish()
	for _, after := range []time.Duration{50, 150, 300, 450} {
		cmd := h.command(t.Context(), "uninstall", "--yes")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(after * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	h.ok("uninstall", "--yes")
	h.nothing(0)
}

// TestUninstallStops: --stop ends what runs, and keeps it.
func TestUninstallStops(t *testing.T) {
	h := newHome(t)
	name := h.create("--isolation", "process")
	h.ok("exec", name, "--", "sh", "-c", "echo work >f")
	h.ok("uninstall", "--stop")
	if n := len(h.groups()); n != 0 {
		t.Errorf("%d control groups are there still", n)
	}
	if got := h.ok("exec", name, "--", "cat", "f"); got != "work\n" {
		t.Errorf("after the next start it says %q", got)
	}
}
