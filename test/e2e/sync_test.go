package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

// crossed makes a test of each wall, as root and as an ordinary user: in make test each wall
// and each of them once.
func crossed(t *testing.T, f func(t *testing.T, wall, who string)) {
	for _, wall := range wallNames {
		for _, who := range []string{"root", "ordinary"} {
			if long.On() || (wall == "gvisor") == (who == "ordinary") {
				t.Run(wall+"/"+who, func(t *testing.T) { f(t, wall, who) })
			}
		}
	}
}

// views is crossed with a home of whoever it is. Its tests run at the same time.
func views(t *testing.T, f func(t *testing.T, h *home, wall string)) {
	crossed(t, func(t *testing.T, wall, who string) {
		t.Parallel()
		if who == "root" {
			f(t, newHome(t), wall)
		} else {
			f(t, newWorld(t).ordinaryHome(carboy), wall)
		}
	})
}

// edited makes a directory of the home's own user.
func (h *home) edited(files map[string]string) string {
	h.t.Helper()
	dir := filepath.Join(h.dir, "project")
	h.edit(dir, files)
	return dir
}

// edit writes files as whoever the home's user is. An editor replaces a file, so this
// does; an empty text is a deletion.
func (h *home) edit(dir string, files map[string]string) {
	h.t.Helper()
	owner, err := os.Stat(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	uid := int(owner.Sys().(*syscall.Stat_t).Uid)
	for name, text := range files {
		at := filepath.Join(dir, name)
		if text == "" {
			if err := os.Remove(at); err != nil {
				h.t.Fatal(err)
			}
			continue
		}
		for up := filepath.Dir(at); len(up) > len(h.dir); up = filepath.Dir(up) {
			if os.MkdirAll(up, 0o755) == nil {
				_ = os.Chown(up, uid, uid)
			}
		}
		err := os.WriteFile(at+".new", []byte(text), 0o644)
		if err == nil {
			err = os.Chown(at+".new", uid, uid)
		}
		if err == nil {
			err = os.Rename(at+".new", at)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// watch has edits of the host brought into a sandbox's view until the test's end. It returns
// what tells what was brought so far.
func (h *home) watch(name string) (brought func() string) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.command(ctx, "sync", "--watch", name)
	var out screen
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.start(cmd); err != nil {
		cancel()
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return out.all
}

// TestSync brings edits into a view, and leaves what the sandbox changed.
func TestSync(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{".gitignore": "ignored/\n", "edited": "1\n", "both": "1\n", "later": "1\n", "gone": "1\n", "ignored/f": "1\n", "linked/f": "1\n"})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "web", "--", "sh", "-c", "cat */* * >/dev/null 2>&1; test -e new; echo inside >both; rm -r linked; ln -s /etc linked; echo '*' >.gitignore")
		if err := os.Symlink("/etc/shadow", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		h.edit(dir, map[string]string{"edited": "2\n", "both": "2\n", "new/new": "2\n", "ignored/f": "2\n", "linked/f": "2\n", "hostile\n\x1b[31m": "2\n"})
		r := h.run(nil, "sync", "web")
		want := "M  edited\nM  hostile\\n\\x1b[31m\nM  link\nM  new/new\n"
		if r.code != 125 || r.stdout != want || !strings.Contains(r.stderr, "both  ") || !strings.Contains(r.stderr, "linked/f") {
			t.Errorf("sync: %d\n%s%s, want 125\n%sand both and linked/f left", r.code, r.stdout, r.stderr, want)
		}
		got := h.ok("exec", "web", "--", "sh", "-c", "cat edited both new/new; readlink link linked")
		// An ordinary user's view is a copy; of an overlay nothing is promised of what was not brought.
		if want := "2\ninside\n2\n/etc/shadow\n/etc\n"; !strings.HasPrefix(got, want) {
			t.Errorf("inside: %q, want %q", got, want)
		}
		// What was brought is no change, even where the directory goes on.
		h.edit(dir, map[string]string{"edited": "3\n"})
		if names := h.run(nil, "diff", "--names", "web").stdout; strings.Contains(names, "edited") || !strings.Contains(names, "M  both\n") {
			t.Errorf("diff after sync:\n%s", names)
		}
		// Edited inside after it was brought, it can be taken without a conflict.
		h.ok("exec", "web", "--", "sh", "-c", "echo mine >>new/new")
		h.ok("apply", "web", "new/new")
		// A deletion comes too.
		h.edit(dir, map[string]string{"gone": "", "later": "2\n"})
		if out := h.run(nil, "sync", "web").stdout; !strings.Contains(out, "D  gone\n") || !strings.Contains(out, "M  later\n") {
			t.Errorf("second sync:\n%s", out)
		}
		if r := h.run(nil, "exec", "web", "--", "test", "-e", "gone"); r.code != 1 {
			t.Errorf("gone is there still: exit code %d", r.code)
		}
		if r := h.run(nil, "rm", "web"); r.code != 125 || !strings.Contains(r.stderr, "rm -f web") {
			t.Errorf("rm: %d %s", r.code, r.stderr)
		}
		h.ok("rm", "-f", "web")
	})
}

// TestSyncWatch: an edit reaches what runs inside while nobody asks for it, and a killed watch
// is taken up.
func TestSyncWatch(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{".gitignore": "node_modules/\n", "src/a.js": "1\n"})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "web", "--", "sh", "-c", "cat src/a.js; ! test -e src/deep") // or an overlay shows them
		inside := func(want string) func() bool {
			return func() bool { return h.run(nil, "exec", "web", "--", "cat", "src/a.js").stdout == want }
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		watch := h.command(ctx, "sync", "--watch", "web")
		if err := h.start(watch); err != nil {
			t.Fatal(err)
		}
		h.edit(dir, map[string]string{"src/a.js": "2\n"})
		until(t, inside("2\n"))
		if r := h.run(nil, "sync", "web"); r.code != 125 || !strings.Contains(r.stderr, "another carboy sync") {
			t.Errorf("a second sync: %d %s", r.code, r.stderr)
		}
		h.edit(dir, map[string]string{"node_modules/m": "1\n", "src/deep/b.js": "1\n"})
		until(t, func() bool { return h.run(nil, "exec", "web", "--", "cat", "src/deep/b.js").code == 0 })
		_ = watch.Process.Kill()
		_ = watch.Wait()
		h.edit(dir, map[string]string{"src/a.js": "3\n", "src/deep/b.js": ""})
		if out := h.ok("sync", "web"); out != "D  src/deep/b.js\nM  src/a.js\n" {
			t.Errorf("sync after the watch was killed:\n%s", out)
		}
		if r := h.run(nil, "diff", "--names", "web"); r.stdout != "" {
			t.Errorf("diff:\n%s", r.stdout)
		}
		h.ok("rm", "-f", "web")
	})
}
