package backendtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// over is an instance whose workspace is dir.
func over(t *testing.T, mode sandbox.WorkspaceMode, dir string) func(*sandbox.Sandbox) {
	t.Helper()
	source := hostDir(t, dir)
	return func(sb *sandbox.Sandbox) { sb.Spec.Workspace = sandbox.Workspace{Mode: mode, Source: source} }
}

func testWorkspace(t *testing.T, s *suite) {
	w := s.open(t)
	t.Run("private", func(t *testing.T) {
		b := w.begin(t)
		b.says(t, "ls -A /workspace; stat -c '%u %g' /workspace; echo x > /workspace/f && cat /workspace/f", "1000 1000\nx\n")
	})
	for _, tt := range []struct {
		mode sandbox.WorkspaceMode
		// what the instance sees after it has tried to change everything
		file, added string
		// whether that is what the host has
		reaches bool
	}{
		{sandbox.WorkspaceCOW, "base\nmore\n", "new\n", false},
		{sandbox.WorkspaceReadOnly, "base\n", "", false},
		{sandbox.WorkspaceWritable, "base\nmore\n", "new\n", true},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			dir := tree(t, map[string]string{"base": "base\n", "sub/gone": "gone\n"})
			b := w.begin(t, over(t, tt.mode, dir))
			b.says(t, "pwd; stat -c '%u %g' . base sub/gone", "/workspace\n1000 1000\n1000 1000\n1000 1000\n")
			b.run(t, shell("echo more >> base; echo new > added; rm sub/gone; mkdir dir; ln -s base link; mv base moved && mv moved base"))
			for range 2 { // and once more after a stop
				if got := b.run(t, shell("cat base")).stdout; got != tt.file {
					t.Errorf("base is %q, want %q", got, tt.file)
				}
				if got := b.run(t, shell("cat added")).stdout; got != tt.added {
					t.Errorf("added is %q, want %q", got, tt.added)
				}
				if tt.mode != sandbox.WorkspaceReadOnly {
					b.says(t, "ls -A sub; stat -c '%u %g' added; readlink link", "1000 1000\nbase\n")
				}
				w.mustStop(t, b.id)
				b = w.restart(t, b.sb)
			}
			onHost(t, dir, tt.reaches)
		})
	}
	t.Run("host-changes-are-seen", func(t *testing.T) { hostChanges(t, w) })
	t.Run("mounts", func(t *testing.T) { furtherMounts(t, w) })
	t.Run("links-lead-nowhere", func(t *testing.T) { linksOut(t, w, s) })
	t.Run("no-set-id", func(t *testing.T) { noSetID(t, w) })
	t.Run("replaced", func(t *testing.T) { replaced(t, w) })
}

// onHost wants dir to be as it was, or with the instance's changes as its owner's.
func onHost(t *testing.T, dir string, changed bool) {
	t.Helper()
	base, err := os.ReadFile(filepath.Join(dir, "base"))
	must(t, err)
	added, err := os.ReadFile(filepath.Join(dir, "added"))
	if !changed {
		if string(base) != "base\n" || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the host's base is %q, added %q, %v", base, added, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "sub/gone")); err != nil {
			t.Error(err)
		}
		return
	}
	if string(base) != "base\nmore\n" || string(added) != "new\n" {
		t.Errorf("the host's base is %q, added %q, %v", base, added, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed: %v", err)
	}
	want := hostDir(t, dir)
	for _, name := range []string{"added", "dir", "link", "base"} {
		var st syscall.Stat_t
		must(t, syscall.Lstat(filepath.Join(dir, name), &st))
		if st.Uid != want.UID || st.Gid != want.GID {
			t.Errorf("%s belongs to %d:%d on the host, want %d:%d", name, st.Uid, st.Gid, want.UID, want.GID)
		}
	}
}

// What the host does to a shared tree while the instance runs is seen inside.
func hostChanges(t *testing.T, w *world) {
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceReadOnly, sandbox.WorkspaceWritable} {
		dir := tree(t, map[string]string{"f": "one\n"})
		b := w.begin(t, over(t, mode, dir))
		b.says(t, "cat f", "one\n")
		must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("two and longer\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "g"), []byte("new\n"), 0o644))
		b.says(t, "cat f g", "two and longer\nnew\n")
	}
}

func furtherMounts(t *testing.T, w *world) {
	ro, rw := tree(t, map[string]string{"f": "ro\n"}), tree(t, map[string]string{"f": "rw\n"})
	b := w.begin(t, func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{
			{Source: hostDir(t, ro), Target: "/mnt/deep/ro", ReadOnly: true},
			{Source: hostDir(t, rw), Target: "/srv/rw"},
		}
	})
	b.says(t, "cat /mnt/deep/ro/f /srv/rw/f; stat -c %u /mnt/deep/ro/f /srv/rw/f", "ro\nrw\n1000\n1000\n")
	b.run(t, shell("echo x >> /mnt/deep/ro/f; echo x > /mnt/deep/ro/g; echo x >> /srv/rw/f; mount -o remount,rw /mnt/deep/ro; umount /mnt/deep/ro"))
	if got := native(t, "cat", filepath.Join(ro, "f"), filepath.Join(rw, "f")); got != "ro\nrw\nx\n" {
		t.Errorf("on the host: %q", got)
	}
	if _, err := os.Lstat(filepath.Join(ro, "g")); err == nil {
		t.Error("a file was made through a read-only mount")
	}
}

// A link in a shared tree is followed inside, never on the host.
func linksOut(t *testing.T, w *world, s *suite) {
	outside := tree(t, map[string]string{"secret": secret, "target": "untouched"})
	dir := tree(t, map[string]string{"f": "x"})
	must(t, os.Symlink(outside, filepath.Join(dir, "out")))
	must(t, os.Symlink(filepath.Join(outside, "target"), filepath.Join(dir, "file")))
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceCOW, sandbox.WorkspaceReadOnly, sandbox.WorkspaceWritable} {
		b := w.begin(t, over(t, mode, dir))
		users := s.users()
		if mode == sandbox.WorkspaceWritable {
			users = users[:1]
		}
		for _, user := range users {
			e := b.run(t, command(user, fmt.Sprintf("cat out/secret; ln -sf %s own; cat own/secret; echo taken > file; cat %s/secret ../../%s/secret /proc/self/cwd/../%s/secret", outside, outside, outside, outside)))
			if strings.Contains(e.stdout, secret) {
				t.Errorf("%s, as %s: a file outside of the tree was read", mode, user)
			}
			if status, body := b.request(t, "GET", user, "/workspace/out/secret", nil); status == 200 {
				t.Errorf("%s, as %s: read by the file service: %q", mode, user, body)
			}
		}
		if got, _ := os.ReadFile(filepath.Join(outside, "target")); string(got) != "untouched" {
			t.Errorf("%s: a file outside of the tree is %q now", mode, got)
		}
	}
}

func noSetID(t *testing.T, w *world) {
	dir := tree(t, nil)
	b := w.begin(t, over(t, sandbox.WorkspaceWritable, dir))
	b.sh(t, "", "cp /usr/bin/id id && chmod 755 id; chmod 4755 id; chmod 2755 id; mkdir d; chmod 1777 d; chmod 2777 d; true")
	b.run(t, shell("mknod null c 1 3; mknod disk b 7 0; setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 id"))
	for _, name := range []string{"id", "d"} {
		st, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s has mode %v on the host", name, st.Mode())
		}
	}
	for _, name := range []string{"null", "disk"} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is a %v on the host", name, st.Mode())
		}
	}
}

// Another directory in the accepted one's place is refused, when the instance is
// first started and later.
func replaced(t *testing.T, w *world) {
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceCOW, sandbox.WorkspaceReadOnly, sandbox.WorkspaceWritable} {
		for _, how := range []string{"directory", "link", "file", "nothing"} {
			t.Run(fmt.Sprintf("%s-by-%s", mode, how), func(t *testing.T) {
				dir := tree(t, map[string]string{"f": "accepted\n"})
				other := tree(t, map[string]string{"f": "another's\n"})
				first, later := w.record(over(t, mode, dir)), w.begin(t, over(t, mode, dir))
				t.Cleanup(func() { w.mustRemove(t, first.ID) })
				w.mustStop(t, later.id)
				must(t, os.Rename(dir, dir+".old"))
				switch how {
				case "directory":
					must(t, os.Mkdir(dir, 0o755))
				case "link":
					must(t, os.Symlink(other, dir))
				case "file":
					must(t, os.WriteFile(dir, nil, 0o644))
				}
				for what, sb := range map[string]*sandbox.Sandbox{"first": first, "later": later.sb} {
					if _, err := w.Start(t.Context(), sb); err == nil {
						t.Errorf("%s start: no error", what)
						w.mustStop(t, sb.ID)
					} else if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "is not the directory that was named at create") {
						t.Errorf("%s start: %v, want a conflict that says why", what, err)
					} else if left := processes(sb.ID); len(left) > 0 {
						t.Errorf("%s start: failed, and left processes %v", what, left)
					}
				}
				_ = os.Remove(dir)
				must(t, os.Rename(dir+".old", dir))
				w.restart(t, later.sb).says(t, "cat f", "accepted\n")
			})
		}
	}
}
