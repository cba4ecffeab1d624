package backendtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	volumes "github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// makeVolume makes a volume in the state of w, and returns its ID.
func (w *world) makeVolume(t *testing.T, size disk.Size) string {
	t.Helper()
	id := "vol_" + strings.TrimPrefix(newID(), "sb_") + "aaaa"
	dir := filepath.Join(volumes.Root(w.state), id)
	must(t, os.MkdirAll(dir, 0o700))
	var images *disk.Images
	if disk.Available() == nil {
		images = disk.New(filepath.Join(w.s.cache, "disk"))
	}
	must(t, volumes.Make(t.Context(), images, dir, size))
	return id
}

func volumeAt(id string, readOnly bool) func(*sandbox.Sandbox) {
	return func(sb *sandbox.Sandbox) {
		sb.Spec.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: id, ReadOnly: readOnly}
	}
}

// testVolumeWorkspace: /workspace is a volume.
func testVolumeWorkspace(t *testing.T, s *suite) {
	w := s.open(t)
	id := w.makeVolume(t, disk.Size{Bytes: 16 << 20, Inodes: 256})
	first := w.begin(t, volumeAt(id, false))
	first.says(t, "pwd; stat -c %u .; echo one >f; mkdir d; cat f", "/workspace\n1000\none\n")
	t.Run("shared-at-once", func(t *testing.T) {
		second := w.begin(t, volumeAt(id, false))
		second.says(t, "cat f; echo two >g; cat g", "one\ntwo\n")
		first.says(t, "cat g", "two\n")
	})
	t.Run("read-only", func(t *testing.T) {
		b := w.begin(t, volumeAt(id, true))
		b.says(t, "cat f; echo x 2>/dev/null >h || echo refused; rm -f f 2>/dev/null || cat f", "one\nrefused\none\n")
	})
	t.Run("kept", func(t *testing.T) {
		w.mustStop(t, first.id)
		first = w.restart(t, first.sb)
		first.says(t, "cat f", "one\n")
	})
	t.Run("bounded", func(t *testing.T) {
		if disk.Available() != nil {
			t.Skip("this machine bounds no volume")
		}
		first.says(t, `head -c 32M /dev/zero >big 2>/dev/null || echo full; rm -f big
			i=0; while [ $i -lt 400 ] && touch d/$i 2>/dev/null; do i=$((i+1)); done; [ $i -lt 300 ] && echo no more files; rm -r d`, "full\nno more files\n")
	})
	t.Run("reported", func(t *testing.T) {
		e, _ := promise(first.enforced, "filesystem")
		if !strings.Contains(e.Mechanism, "/workspace is a volume") {
			t.Errorf("filesystem: %+v", e)
		}
	})
	t.Run("missing", func(t *testing.T) {
		sb := w.record(volumeAt("vol_"+strings.Repeat("a", 20), false))
		t.Cleanup(func() { w.mustRemove(t, sb.ID) })
		_, err := w.Start(t.Context(), sb)
		wantKind(t, "Start without its volume", err, sandbox.NotFound)
	})
}

// testMountPoints: mounts below the workspace.
func testMountPoints(t *testing.T, s *suite) {
	w := s.open(t)
	shown := tree(t, map[string]string{"f": "shown\n"})
	mounts := func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{
			{Source: hostDir(t, shown), Target: "/workspace/.mcp/deep/x", ReadOnly: true},
			{Own: true, Target: "/workspace/.skills"},
		}
	}
	for _, tt := range []struct {
		name  string
		files map[string]string // of the host's tree; nil: none
		work  func(t *testing.T, dir string) func(*sandbox.Sandbox)
		// on what is in the workspace: "a file of mine" can be written
		writable bool
	}{
		{"private", nil, func(*testing.T, string) func(*sandbox.Sandbox) { return func(*sandbox.Sandbox) {} }, true},
		{"volume", nil, func(t *testing.T, _ string) func(*sandbox.Sandbox) {
			return volumeAt(w.makeVolume(t, disk.Size{Bytes: 16 << 20, Inodes: 256}), false)
		}, true},
		{"volume-ro", nil, func(t *testing.T, _ string) func(*sandbox.Sandbox) {
			return volumeAt(w.makeVolume(t, disk.Size{Bytes: 16 << 20, Inodes: 256}), true)
		}, false},
		{"cow", map[string]string{"f": "f\n", ".mcp/near": "near\n"}, hosted(sandbox.WorkspaceCOW), true},
		{"rw", map[string]string{"f": "f\n", ".mcp/near": "near\n"}, hosted(sandbox.WorkspaceWritable), true},
		{"ro", map[string]string{"f": "f\n", ".mcp/near": "near\n"}, hosted(sandbox.WorkspaceReadOnly), false},
		{"ro-with-points", map[string]string{"f": "f\n", ".mcp/deep/x/covered": "", ".skills/covered": ""}, hosted(sandbox.WorkspaceReadOnly), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, tt.files)
			before := listing(t, dir)
			b := w.begin(t, tt.work(t, dir), mounts)
			for range 2 { // and once more after a stop
				b.says(t, "cat /workspace/.mcp/deep/x/f; ls -A /workspace/.mcp/deep /workspace/.skills", "shown\n/workspace/.mcp/deep:\nx\n\n/workspace/.skills:\n")
				if got := b.run(t, shell("cd /workspace; echo mine >mine; cat mine; rm mine")).stdout; (got == "mine\n") != tt.writable {
					t.Errorf("a file of the workspace: %q", got)
				}
				if tt.files != nil {
					b.says(t, "cat /workspace/f; stat -c %u /workspace/f /workspace", "f\n1000\n1000\n")
				}
				pinned(t, b, "user")
				w.mustStop(t, b.id)
				b = w.restart(t, b.sb)
			}
			after := listing(t, dir)
			if tt.name == "rw" {
				before = sorted(before + ".mcp/deep\n.mcp/deep/x\n.skills\n") // as anything else that is made there
			}
			if after != before {
				t.Errorf("the host's tree is\n%swant\n%s", after, before)
			}
		})
	}
	t.Run("ro-follows-the-host", func(t *testing.T) { readOnlyFollows(t, w, mounts) })
	t.Run("in-the-way", func(t *testing.T) { inTheWay(t, w, mounts) })
	t.Run("read-only-root", func(t *testing.T) {
		b := w.begin(t, mounts, readOnly)
		b.says(t, "cat /workspace/.mcp/deep/x/f; echo x >/workspace/f && cat /workspace/f; (: >/srv/x) 2>/dev/null || echo no", "shown\nx\nno\n")
		pinned(t, b, "user")
	})
	if s.Root {
		t.Run("held-against-root", func(t *testing.T) {
			b := w.begin(t, func(sb *sandbox.Sandbox) {
				sb.Spec.Mounts = []sandbox.Mount{{Own: true, Target: "/workspace/.mcp/deep/x"}, {Own: true, Target: "/workspace/.skills"}}
			})
			b.sh(t, "root", "echo shown >/workspace/.mcp/deep/x/f")
			pinned(t, b, s.users()...)
		})
	}
	t.Run("own", func(t *testing.T) { ownMount(t, s, w) })
	t.Run("not-a-change", func(t *testing.T) { pointsUnchanged(t, w, mounts) })
}

func hosted(mode sandbox.WorkspaceMode) func(*testing.T, string) func(*sandbox.Sandbox) {
	return func(t *testing.T, dir string) func(*sandbox.Sandbox) {
		t.Helper()
		return over(t, mode, dir)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	return sorted(native(t, "find", dir, "-mindepth", "1", "-printf", `%P\n`))
}

func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// unpin tries to get rid of the mounts below the workspace by every call that
// could, also as root of a user namespace, and prints what worked.
const unpin = `
import ctypes, os
libc = ctypes.CDLL(None)
os.chdir("/workspace")
points = [".mcp/deep/x", ".mcp/deep", ".mcp", ".skills"]
def attempt(who):
    for p in points:
        for name, do in {
            "rename": lambda: os.rename(p, "gone"), "rmdir": lambda: os.rmdir(p), "replace": lambda: os.rename("other", p),
            "exchange": lambda: libc.renameat2(-100, b"other", -100, p.encode(), 2) and os.stat("/nowhere"),
            "umount": lambda: libc.umount2(p.encode(), 2) and os.stat("/nowhere"),
            "move": lambda: libc.mount(p.encode(), b"/tmp", None, 8192, None) and os.stat("/nowhere"),
        }.items():
            try: do(); print(who, name, p, flush=True)
            except OSError: pass
try: os.mkdir("other")
except OSError: pass
attempt("as it is:")
if os.fork() == 0:
    if libc.unshare(0x10020000) == 0: attempt("in a namespace:")
    os._exit(0)
os.wait()
try: os.rmdir("other")
except OSError: pass`

// pinned has commands try to get rid of the mounts below the workspace.
func pinned(t *testing.T, b *instance, users ...string) {
	t.Helper()
	for _, user := range users {
		cmd := argv("python3", "-c", unpin)
		cmd.User = user
		if e := b.run(t, cmd); e.stdout != "" || e.exit.GetCode() != 0 {
			t.Errorf("as %s: %s%s", user, e.stdout, e.stderr)
		}
	}
	b.says(t, `cat /workspace/.mcp/deep/x/f; ls -d /workspace/gone 2>/dev/null
		for p in .mcp/deep/x .skills; do grep -q " /workspace/$p " /proc/self/mountinfo && echo held; done`, "shown\nheld\nheld\n")
}

// readOnlyFollows: what the host adds to a read-only tree is seen. Where mount
// points had to be laid over it, that is so of names that nobody looked for
// before, and the report says so.
func readOnlyFollows(t *testing.T, w *world, mounts func(*sandbox.Sandbox)) {
	for _, laid := range []bool{false, true} {
		files := map[string]string{"f": "one\n", "d/e": "e\n"}
		early := "ls g d/g 2>/dev/null"
		if laid {
			early = "true"
		} else {
			files[".mcp/deep/x/covered"], files[".skills/covered"] = "", ""
		}
		dir := tree(t, files)
		b := w.begin(t, over(t, sandbox.WorkspaceReadOnly, dir), mounts)
		if e, _ := promise(b.enforced, "filesystem"); strings.Contains(e.Mechanism, "under an overlay") != laid {
			t.Errorf("laid over: %t, but reported: %+v", laid, e)
		}
		b.says(t, "cat f; ls d; "+early+"; echo", "one\ne\n\n")
		must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("two and longer\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "g"), []byte("new\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "d/g"), []byte("new below\n"), 0o644))
		b.says(t, "cat f g d/g; ls d", "two and longer\nnew\nnew below\ne\ng\n")
	}
}

// inTheWay: a mount point that is a link, or no directory, is refused, and
// nothing is left of the instance.
func inTheWay(t *testing.T, w *world, mounts func(*sandbox.Sandbox)) {
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceCOW, sandbox.WorkspaceReadOnly, sandbox.WorkspaceWritable} {
		for _, what := range []string{"link", "file"} {
			dir := tree(t, map[string]string{"f": "f\n", "elsewhere/x": ""})
			if what == "link" {
				must(t, os.Symlink("elsewhere", filepath.Join(dir, ".skills")))
			} else {
				must(t, os.WriteFile(filepath.Join(dir, ".skills"), nil, 0o644))
			}
			sb := w.record(over(t, mode, dir), mounts)
			_, err := w.Start(t.Context(), sb)
			if err == nil || !strings.Contains(err.Error(), "/workspace/.skills") {
				t.Errorf("%s over a %s: %v", mode, what, err)
			}
			if left := processes(sb.ID); len(left) > 0 {
				t.Errorf("%s over a %s: left processes %v", mode, what, left)
			}
			w.mustRemove(t, sb.ID)
		}
	}
}

// ownMount: a directory of the sandbox's own belongs to root or to its user, is kept, and
// counts as the rest of its disk does.
func ownMount(t *testing.T, s *suite, w *world) {
	own := func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{
			{Own: true, Target: "/workspace/.skills"},
			{Own: true, Target: "/mnt/own"},
			{Own: true, Owner: "user", Target: "/srv/deep/theirs"},
		}
		sb.Spec.Limits.Disk, sb.Spec.Limits.Inodes = 32<<20, 4096
	}
	b := w.begin(t, own, readOnly)
	b.says(t, `stat -c '%u %g %a' /workspace/.skills /mnt/own; touch /workspace/.skills/x 2>/dev/null || echo refused`,
		"0 0 755\n0 0 755\nrefused\n")
	b.says(t, `stat -c '%u %g %a' /srv/deep/theirs /srv/deep; echo mine >/srv/deep/theirs/f`, "1000 1000 755\n0 0 755\n")
	if len(s.users()) == 1 { // nobody who could write to root's runs commands
		w.mustStop(t, b.id)
		w.restart(t, b.sb).says(t, "cat /srv/deep/theirs/f; rm /srv/deep/theirs/f", "mine\n")
		return
	}
	b.sh(t, "root", "echo kept >/workspace/.skills/f; mkdir /mnt/own/d; chown 1000 /mnt/own/d")
	b.says(t, "cat /workspace/.skills/f; head -c 64M /dev/zero 2>/dev/null >/mnt/own/d/big || echo full; rm /mnt/own/d/big", "kept\nfull\n")
	w.mustStop(t, b.id)
	b = w.restart(t, b.sb)
	b.says(t, "cat /workspace/.skills/f; stat -c %u /mnt/own/d", "kept\n1000\n")
	snap := w.save(t, b.sb)
	w.begin(t, own, func(sb *sandbox.Sandbox) { sb.Spec.Snapshot = snap.ID }).says(t, "ls -A /workspace/.skills /mnt/own", "/mnt/own:\n\n/workspace/.skills:\n")
}

// pointsUnchanged: what is mounted in a view is no change of it, nor is what
// it is mounted on.
func pointsUnchanged(t *testing.T, w *world, mounts func(*sandbox.Sandbox)) {
	dir := tree(t, map[string]string{"f": "f\n", ".mcp/near": "near\n"})
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir), mounts)
	b.sh(t, "", "echo more >>f; echo more >>.mcp/near")
	got := w.changesOf(t, b.sb, sandbox.ChangesOptions{})
	for path, kind := range got {
		if path != "f" && path != ".mcp/near" && path != ".mcp" && path != "." {
			t.Errorf("a change: %s %s", path, kind)
		}
	}
	if len(got) == 0 {
		t.Error("no change is seen")
	}
}
