package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

// seenInside prints what lies below directories, as carboy disk ls has it.
const seenInside = `
import json, os, stat, sys
out = []
def look(d):
    try:
        names = os.listdir(d)
    except PermissionError:
        print(json.dumps({"path": d, "artifact_type": "denied"}))
        return
    for name in names:
        p = os.path.join(d, name)
        if p == "/run/carboy":
            continue
        st = os.lstat(p)
        e = {"path": p, "artifact_type": "directory", "size_bytes": 0, "link_target": None}
        if stat.S_ISREG(st.st_mode):
            e.update(artifact_type="file", size_bytes=st.st_size)
        elif stat.S_ISLNK(st.st_mode):
            e.update(artifact_type="symlink", size_bytes=st.st_size, link_target=os.readlink(p))
        elif not stat.S_ISDIR(st.st_mode):
            continue
        out.append(e)
        if stat.S_ISDIR(st.st_mode):
            look(p)
for d in sys.argv[1:]:
    if os.path.isdir(d) and not os.path.islink(d):
        look(d)
out.sort(key=lambda e: e["path"].encode())
for e in out:
    print(json.dumps(e))
`

// looked returns the directories that are compared. Some have a hundred thousand files of the host's.
func looked() []string {
	dirs := []string{"/workspace", "/run", "/etc", "/home", "/tmp", "/srv", "/usr/share/doc/bash", "/usr/local/made"}
	if long.On() {
		dirs = append(dirs[:6], "/var", "/opt", "/usr/share/doc", "/usr/local")
	}
	return dirs
}

// changeAll writes, deletes, replaces, renames and links, below a directory and elsewhere.
const changeAll = `
set -e
umask 022
cd /workspace
mkdir -p src/deep src-a 'a name' && echo child >src/child.txt && echo a >src-a/f
ln src/child.txt src-a/hard; ln -s ../nowhere 'a name/link'; mkfifo pipe
head -c 300000 /dev/zero >src/deep/big; printf x >"$(printf 'two\nlines')"
mv src/deep src/moved; rm -rf src-a/f
if [ -e low ]; then
  rm low/gone; rm -rf low/all; mkdir low/all; echo new >low/all/new; mv low/file low/renamed; mv low/dir low/dir2; rm -rf low/replaced; echo f >low/replaced
  echo more >>low/linked; ln low/linked low/linked-too
fi
mkdir -p /tmp/t /home/user/d; echo x >/tmp/t/x; ln -s /etc /home/user/d/etc
echo sooner-s3cret >/tmp/t/old; sync; rm /tmp/t/old
`

// changeRoot does the same where root alone may, as far as that is let.
const changeRoot = `
exec 2>/dev/null
rm -rf /usr/share/doc/bash; rm -rf /etc/skel; mkdir /etc/skel; echo s >/etc/skel/only
mkdir -p /usr/local/made /srv/d /run/pyro-secrets; echo t0p-s3cret >/run/pyro-secrets/TOKEN; ln -s /etc /srv/d/etc
echo sooner-s3cret >/run/pyro-secrets/old; sync; rm /run/pyro-secrets/old; exit 0
`

// change has changeAll done, and changeRoot where commands may be root's.
func (h *home) change(wall, name string) {
	h.t.Helper()
	h.ok("exec", name, "--", "sh", "-c", changeAll)
	if wall == "gvisor" {
		h.ok("exec", "--user", "root", name, "--", "sh", "-c", changeRoot)
	}
}

// asRoot is the flag of a command that may look at all, where there are such.
func asRoot(wall string) []string {
	if wall == "gvisor" {
		return []string{"--user", "root"}
	}
	return nil
}

// lookedAt compares what was seen inside with what is listed of the stopped sandbox.
func (h *home) lookedAt(t *testing.T, wall, name string) {
	t.Helper()
	seen := h.ok(slices.Concat([]string{"exec"}, asRoot(wall), []string{name, "--", "python3", "-c", seenInside}, looked())...)
	h.ok("stop", name)
	// What the agent has in memory where it can't write to the disk.
	c := &compared{count: map[string]int{}, paths: map[string]string{}, out: []string{"/usr/local/sbin"}}
	for line := range strings.Lines(seen) {
		c.add(t, []byte(line), 1)
	}
	for _, dir := range looked() {
		r := h.run(nil, "disk", "ls", "--json", "--recursive", name, dir)
		if r.code != 0 && strings.Contains(r.stderr, "does not exist") {
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
			t.Fatalf("%s: %v: %.300s", dir, err, r.stderr)
		}
		for line := range strings.Lines(r.stderr) {
			var note struct{ Note string }
			if err := json.Unmarshal([]byte(line), &note); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if p, _, ok := strings.Cut(note.Note, ": "); ok && strings.HasPrefix(p, "/") {
				c.out = append(c.out, p)
			}
		}
		for _, e := range list {
			c.add(t, e, -1)
		}
	}
	c.check(t)
}

// compared counts entries: those that were seen inside less those that were listed.
type compared struct {
	count map[string]int
	paths map[string]string
	out   []string // what lies below these is left out: it is not at hand, or could not be looked at inside
	seen  int
}

// diskEntry is one, as carboy disk ls has it.
type diskEntry struct {
	Path string  `json:"path"`
	Type string  `json:"artifact_type"`
	Size int64   `json:"size_bytes"`
	Link *string `json:"link_target"`
}

func (c *compared) add(t *testing.T, b []byte, n int) {
	t.Helper()
	var e diskEntry
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if e.Type == "denied" {
		c.out = append(c.out, e.Path)
		return
	}
	if e.Path == "/run/carboy" || strings.HasPrefix(e.Path, "/run/carboy/") { // the agent's own, in memory
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	c.paths[string(line)] = e.Path
	if c.count[string(line)] += n; n > 0 {
		c.seen++
	}
}

func (c *compared) check(t *testing.T) {
	t.Helper()
	shown := 0
	for line, n := range c.count {
		if n == 0 || slices.ContainsFunc(c.out, func(out string) bool { return strings.HasPrefix(c.paths[line], out+"/") }) {
			continue
		}
		if shown++; shown > 20 {
			t.Error("and more")
			break
		}
		if n > 0 {
			t.Errorf("seen inside, and not listed: %s", line)
		} else {
			t.Errorf("listed, and not seen inside: %s", line)
		}
	}
	if c.seen < 100 {
		t.Errorf("only %d entries were compared", c.seen)
	}
}

// viewed is a directory of the host to be viewed.
func (h *home) viewed(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(h.dir, "viewed")
	for name, text := range map[string]string{
		"low/gone": "g", "low/all/a": "a", "low/all/b/c": "c", "low/file": "file", "low/dir/in": "in", "low/replaced/x": "x",
		"low/linked": "l", "low/kept/deep/f": "kept", "src/there": "there",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.own(t, dir)
	return dir
}

// own gives a tree to who the home is of.
func (h *home) own(t *testing.T, dir string) {
	t.Helper()
	uid, gid := -1, -1
	if c := h.command(t.Context(), "version").SysProcAttr; c != nil && c.Credential != nil {
		uid, gid = int(c.Credential.Uid), int(c.Credential.Gid)
	}
	if uid < 0 {
		return
	}
	if err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, gid)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestDiskOfStopped: what carboy disk ls lists of a stopped sandbox is what was seen inside
// before, behind each wall, as root and as an ordinary user, whatever it started from.
func TestDiskOfStopped(t *testing.T) {
	t.Parallel()
	crossed(t, func(t *testing.T, wall, who string) {
		var h *home
		if who == "root" {
			h = newHome(t)
		} else {
			h = newWorld(t).ordinaryHome(carboy)
		}
		private := h.create("--isolation", wall)
		h.change(wall, private)
		snap := h.snapshot(private)
		t.Run("private", func(t *testing.T) { h.lookedAt(t, wall, private) })
		t.Run("snapshot", func(t *testing.T) {
			name := h.create("--isolation", wall, "--snapshot", snap)
			h.ok("exec", name, "--", "sh", "-c", "cd /workspace; rm -rf src/moved 'a name'; mkdir 'a name'; echo again >src/child.txt; rm -r /home/user/d")
			if wall == "gvisor" {
				h.ok("exec", "--user", "root", name, "--", "sh", "-c", "rm /etc/skel/only; echo x >/etc/skel/other; rm -r /run/pyro-secrets; mkdir -p /run/more")
			}
			h.lookedAt(t, wall, name)
		})
		t.Run("view", func(t *testing.T) {
			name := h.create("--isolation", wall, "--workspace", h.viewed(t))
			h.change(wall, name)
			h.lookedAt(t, wall, name)
		})
	})
}

// TestDiskScrubbed: what was in /run of a stopped sandbox can't be found in its image once it is
// scrubbed, nor in one that is exported; and the sandbox goes on.
func TestDiskScrubbed(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall, "--disk", "64m")
		h.change(wall, name)
		secrets := []string{"sooner-s3cret"}
		if wall == "gvisor" { // behind the other, no command can write to /run
			secrets = append(secrets, "t0p-s3cret", "pyro-secrets")
		}
		if r := h.run(nil, "disk", "ls", name); r.code != 125 || !strings.Contains(r.stderr, "hint: carboy stop "+name) {
			t.Errorf("of a running one: %d, %s", r.code, r.stderr)
		}
		h.ok("stop", name)
		images, err := filepath.Glob(filepath.Join(h.dir, "state/carboy/boxes/*", h.id(name), "disk.img"))
		if err != nil || len(images) != 1 {
			t.Fatalf("images %q, %v", images, err)
		}
		if got := h.ok("disk", "read", name, "/tmp/t/x"); got != "x\n" {
			t.Errorf("read %q", got)
		}
		for _, secret := range secrets {
			if !holds(t, images[0], secret) {
				t.Errorf("%s is not found before", secret)
			}
		}
		output := filepath.Join(h.dir, "out.ext4")
		h.ok("disk", "export", name, "--output", output)
		if fi, err := os.Stat(images[0]); err != nil || fi.Size() != size(t, output) {
			t.Errorf("it has %d bytes, %v", size(t, output), err)
		}
		for _, secret := range secrets {
			if holds(t, output, secret) {
				t.Errorf("%s is in what was exported", secret)
			}
		}
		if list := h.ok("disk", "ls", "-r", output, "/root/upper/home"); !strings.Contains(list, "/root/upper/home/user/d/etc -> /etc") {
			t.Errorf("what was exported has %s", list)
		}
		before := h.ok("disk", "ls", "-r", name, "/workspace")
		h.ok("disk", "scrub", name)
		for _, secret := range secrets {
			if holds(t, images[0], secret) {
				t.Errorf("%s is in the image", secret)
			}
		}
		if got := h.ok("disk", "ls", "--json", "-r", name, "/run"); strings.TrimSpace(got) != "[]" {
			t.Errorf("/run has %s", got)
		}
		if after := h.ok("disk", "ls", "-r", name, "/workspace"); after != before {
			t.Errorf("/workspace was\n%s\nis\n%s", before, after)
		}
		h.ok("start", name)
		if got := h.ok("exec", name, "--", "cat", "/workspace/src/child.txt"); got != "child\n" {
			t.Errorf("after a start: %q", got)
		}
	})
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// holds reports whether a file has a text.
func holds(t *testing.T, file, text string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}

// TestDiskWithoutImage: an ordinary user's disks are directories, of which there is no image.
func TestDiskWithoutImage(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	name := h.create()
	h.ok("exec", name, "--", "sh", "-c", "echo hello >/workspace/f")
	h.ok("stop", name)
	for _, args := range [][]string{{"disk", "export", name, "--output", filepath.Join(h.dir, "out")}, {"disk", "scrub", name}} {
		if r := h.run(nil, args...); r.code != 125 || !strings.Contains(r.stderr, "no image") {
			t.Errorf("%q: %d, %s", args, r.code, r.stderr)
		}
	}
	if got := h.ok("disk", "read", name, "/workspace/f"); got != "hello\n" {
		t.Errorf("read %q", got)
	}
}
