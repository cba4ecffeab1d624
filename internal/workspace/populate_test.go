package workspace_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// populate copies src to a new directory and returns it and its manifest.
func populate(t *testing.T, src string, opts workspace.PopulateOptions) (string, []byte, workspace.Populated) {
	t.Helper()
	dst, err := os.MkdirTemp(t.TempDir(), "copy")
	must(t, err)
	s, err := os.Open(src)
	must(t, err)
	defer s.Close()
	d, err := os.Open(dst)
	must(t, err)
	defer d.Close()
	var m bytes.Buffer
	opts.Manifest = &m
	done, err := workspace.Populate(t.Context(), s, d, opts)
	must(t, err)
	return dst, m.Bytes(), done
}

func copyStream(t *testing.T, dir string, manifest []byte, opts workspace.Options) []byte {
	t.Helper()
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	src, err := workspace.Copy(d, bytes.NewReader(manifest))
	must(t, err)
	var b bytes.Buffer
	must(t, workspace.WriteChanges(t.Context(), &b, src, opts))
	return b.Bytes()
}

func TestPopulate(t *testing.T) {
	src := t.TempDir()
	tree{"a": "1", "d/x": "x! run", "d/e": "/", "l": "-> a", "p": "fifo"}.write(t, src)
	must(t, os.Chmod(src+"/d/x", 0o4751|os.ModeSetuid))
	must(t, os.Chmod(src+"/d", 0o750))
	must(t, os.Truncate(src+"/a", 1<<30))
	for _, p := range []string{"/a", "/d/x", "/d"} {
		must(t, os.Chtimes(src+p, past, past))
	}
	dst, manifest, done := populate(t, src, workspace.PopulateOptions{UID: 1000, GID: 1001, Digests: true})
	diff(t, "skipped", done.Skipped, []string{"p: is a fifo"})
	if done.Files != 5 || done.Bytes > 1<<20 {
		t.Errorf("%d files, %d bytes", done.Files, done.Bytes)
	}
	for p, mode := range map[string]uint32{"a": 0o644, "d": 0o750, "d/x": 0o751, "d/e": 0o755, "l": 0o777} {
		var st unix.Stat_t
		must(t, unix.Lstat(dst+"/"+p, &st))
		if st.Uid != 1000 || st.Gid != 1001 || st.Mode&0o7777 != mode {
			t.Errorf("%s: owner %d:%d, mode %o, want 1000:1001, %o", p, st.Uid, st.Gid, st.Mode&0o7777, mode)
		}
		if (p == "a" || p == "d" || p == "d/x") && st.Mtim.Nano() != past.UnixNano() {
			t.Errorf("%s: modified %v, want %v", p, st.Mtim, past)
		}
		if p == "a" && st.Blocks > 100 {
			t.Errorf("a hole took %d blocks", st.Blocks)
		}
	}
	s := copyStream(t, dst, manifest, options(true, future))
	diff(t, "changes", letters(compare(t, src, s).Items), []string{})
	n := 0
	for range workspace.Read(bytes.NewReader(s)) {
		n++
	}
	if n != 0 {
		t.Errorf("%d changes in an untouched copy", n)
	}
}

func TestPopulateReadsWithTheCallersRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	src := t.TempDir()
	tree{"mine": "1", "secret": "2", "closed/x": "3", "shared": "4"}.write(t, src)
	must(t, os.Chmod(filepath.Dir(src), 0o755))
	must(t, os.Chmod(src, 0o755))
	must(t, os.Chmod(src+"/secret", 0o600))
	must(t, os.Chmod(src+"/closed", 0o700))
	must(t, os.Chown(src+"/shared", 0, 777))
	must(t, os.Chmod(src+"/shared", 0o640))
	who := &workspace.Identity{UID: 4321, GID: 4321, Groups: []uint32{777}}
	dst, _, done := populate(t, src, workspace.PopulateOptions{UID: 1000, GID: 1000, ReadAs: who})
	diff(t, "skipped", done.Skipped, []string{"closed: may not be read", "secret: may not be read"})
	diff(t, "copy", read(t, dst), tree{"mine": "1", "shared": "4"})

	// Without an identity the process's own rights count.
	dst, _, _ = populate(t, src, workspace.PopulateOptions{UID: 1000, GID: 1000})
	diff(t, "copy as root", read(t, dst), read(t, src))
}

func TestCopyChanges(t *testing.T) {
	src := t.TempDir()
	tree{
		"same": "1", "edit": "1", "gone": "1", "d/x": "1", "d/y": "2", "dead/a/b": "3", "dead/c": "4",
		"to-dir": "1", "to-file/a": "1", "l": "-> same", "z/deep/er": "1",
	}.write(t, src)
	dst, manifest, _ := populate(t, src, workspace.PopulateOptions{})
	tree{"edit": "2", "gone": "\x00", "d/y": "\x00", "dead": "\x00", "to-file": "\x00", "to-dir": "\x00"}.write(t, dst)
	tree{"to-dir/n": "1", "to-file": "1", "l": "-> edit", "new/a": "1", "z/deep/er": "2"}.write(t, dst)
	s := copyStream(t, dst, manifest, options(true, future))
	want := []string{
		"D d/y", "D dead", "M edit", "D gone", "M l", "A new", "A new/a", "T to-dir", "A to-dir/n", "T to-file", "M z/deep/er",
	}
	diff(t, "diff", letters(compare(t, src, s).Items), want)
	one := copyStream(t, dst, manifest, options(true, future, "z", "dead/a"))
	diff(t, "by path", letters(compare(t, src, one, "z", "dead/a").Items), []string{"D dead/a", "M z/deep/er"})
	_, err := apply(t, src, s, workspace.ApplyOptions{})
	must(t, err)
	diff(t, "base", read(t, src), read(t, dst))
}

// The agent can set a modification time back; the change still shows.
func TestCopySeesThroughForgedTimes(t *testing.T) {
	src := t.TempDir()
	tree{"a": "1111"}.write(t, src)
	dst, manifest, _ := populate(t, src, workspace.PopulateOptions{})
	st, err := os.Stat(dst + "/a")
	must(t, err)
	tree{"a": "2222"}.write(t, dst)
	must(t, os.Chtimes(dst+"/a", st.ModTime(), st.ModTime()))
	diff(t, "diff", letters(compare(t, src, copyStream(t, dst, manifest, options(true, future))).Items), []string{"M a"})
}

func TestCopyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		base := filepath.Join(dir, fmt.Sprint(n))
		must(t, os.Mkdir(base, 0o755))
		for range rapid.IntRange(0, 15).Draw(rt, "before") {
			mutate(rt, base)
		}
		dst, manifest, _ := populate(t, base, workspace.PopulateOptions{Digests: rapid.Bool().Draw(rt, "digests")})
		for range rapid.IntRange(1, 15).Draw(rt, "after") {
			mutate(rt, dst)
		}
		check(t, rt, copyStream(t, dst, manifest, options(true, future)), base, dst)
	})
}

func TestPopulateFullDisk(t *testing.T) {
	privateMounts(t)
	src, dst := t.TempDir(), t.TempDir()
	tree{"big": strings.Repeat("x", 1<<20)}.write(t, src)
	mount(t, "tmpfs", dst, "tmpfs", "size=256k")
	_, err := workspace.Populate(t.Context(), openDir(t, src), openDir(t, dst), workspace.PopulateOptions{Manifest: &bytes.Buffer{}})
	if got := sandbox.KindOf(err); got != sandbox.Exhausted {
		t.Errorf("Populate = %v, want kind %q", err, sandbox.Exhausted)
	}
}

func TestDamagedManifest(t *testing.T) {
	src := t.TempDir()
	tree{"a": "1", "b/c": "2", "l": "-> a"}.write(t, src)
	dst, manifest, _ := populate(t, src, workspace.PopulateOptions{Digests: true})
	for i := range manifest {
		bad := bytes.Clone(manifest)
		bad[i] ^= 0x10
		for _, m := range [][]byte{bad, manifest[:i]} {
			s, err := workspace.Copy(openDir(t, dst), bytes.NewReader(m))
			if err == nil {
				err = workspace.WriteChanges(t.Context(), &bytes.Buffer{}, s, options(false, past))
			}
			if err == nil {
				t.Fatalf("byte %d: damage was not noticed", i)
			}
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte("carboy manifest 1\n"))
	f.Add([]byte("carboy manifest 1\n\x02\x02\x00\x01a\xed\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := os.Open(t.TempDir())
		must(t, err)
		defer d.Close()
		s, err := workspace.Copy(d, bytes.NewReader(b))
		if err == nil {
			_ = workspace.WriteChanges(t.Context(), &bytes.Buffer{}, s, options(false, past))
		}
	})
}

// TestPopulateProgress: how much was copied is told as it goes, and not of every file.
func TestPopulateProgress(t *testing.T) {
	src := t.TempDir()
	for i := range 100 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%02d", src, i), []byte("text"), 0o644))
	}
	now := past
	var told []sandbox.Copied
	_, _, done := populate(t, src, workspace.PopulateOptions{
		UID: os.Getuid(), GID: os.Getgid(),
		Now:      func() time.Time { now = now.Add(10 * time.Millisecond); return now },
		Progress: func(c sandbox.Copied) { told = append(told, c) },
	})
	if n := len(told); n < 2 || n > 20 {
		t.Fatalf("%d times told of %d files", n, done.Files)
	}
	last := sandbox.Copied{}
	for _, c := range told {
		if c.Files <= last.Files || c.Files > done.Files || c.Bytes < 4*(c.Files-1) || c.Bytes > done.Bytes {
			t.Errorf("told %+v after %+v, of %d files and %d bytes in all", c, last, done.Files, done.Bytes)
		}
		last = c
	}
}

// What an apply made and the sandbox deletes later is a deletion, as it would be in an overlay; what the host's user
// has put in its place is not.
func TestCopyAppliedAndDeleted(t *testing.T) {
	base := t.TempDir()
	tree{"keep": "k", "d/x": "1"}.write(t, base)
	dst, manifest, _ := populate(t, base, workspace.PopulateOptions{})
	tree{"n/a": "1", "n/sub/b": "2", "d/new": "3", "mine": "4"}.write(t, dst)
	o := options(true, future)
	o.Origins = true
	var marks []workspace.Mark
	take := func(want ...string) {
		t.Helper()
		res, err := apply(t, base, copyStream(t, dst, manifest, o), workspace.ApplyOptions{Applied: marks, Filter: o.Filter})
		must(t, err)
		diff(t, "applied", letters(res.Applied), want)
		marks = res.Marks
	}
	take("A d/new", "A mine", "A n", "A n/a", "A n/sub", "A n/sub/b")
	// Beside the one whose place it takes, as editors write: after that it might get its number.
	tree{"saved": "the user's", "n/user": "u"}.write(t, base)
	must(t, os.Rename(base+"/saved", base+"/mine"))
	for _, p := range []string{"/d/new", "/mine", "/n/a"} {
		must(t, os.Remove(dst+p))
	}
	o.Filter.Exclude = []string{"n"} // what is left out is not looked at
	take("D d/new")
	o.Filter.Exclude = nil
	must(t, os.Rename(dst+"/n/sub", dst+"/other"))
	take("D n/a", "D n/sub", "A other", "A other/b")
	diff(t, "base", read(t, base), tree{"keep": "k", "d": "/", "d/x": "1", "mine": "the user's", "n": "/", "n/user": "u", "other": "/", "other/b": "2"})
}

// What a copy has elsewhere, where it is not taken, is not deleted in the base.
func TestCopyMovedOutOfSight(t *testing.T) {
	base := t.TempDir()
	began := tree{"notes.txt": "n", "docs/a": "a", "docs/b": "b", "todo": "t", "l": "-> todo", "src/x": "x", "gone": "g", "old": "o"}
	began.write(t, base)
	began["docs"], began["src"] = "/", "/"
	dst, manifest, _ := populate(t, base, workspace.PopulateOptions{})
	for from, to := range map[string]string{
		"notes.txt": "notes.log", "docs": "build/docs", "todo": "AGENTS.md", "l": "l.log", "src/x": "lib/x", "old": "new",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dst, to)), 0o755))
		must(t, os.Rename(filepath.Join(dst, from), filepath.Join(dst, to)))
	}
	must(t, os.Remove(dst+"/gone"))
	tree{"notes.txt": "another"}.write(t, dst) // a new file where that was
	must(t, os.Remove(dst+"/notes.txt"))
	o := options(true, future)
	o.Origins, o.Selves = true, true
	o.Filter.Ignore = []string{"*.log", "build/"}
	var marks []workspace.Mark
	take := func(wanted []string, paths ...string) {
		t.Helper()
		o := o
		o.Paths = paths
		res, err := apply(t, base, copyStream(t, dst, manifest, o), workspace.ApplyOptions{Applied: marks, Filter: o.Filter, Paths: paths, Allow: paths})
		must(t, err)
		diff(t, "applied", letters(res.Applied), wanted)
		marks = res.Marks
	}
	take([]string{}, "src")
	diff(t, "base after a part", read(t, base), began)
	take([]string{"D gone", "A lib", "A lib/x", "A new", "D old", "D src/x"})
	for _, p := range []string{"notes.txt", "docs/a", "docs/b", "todo", "l"} {
		if _, err := os.Lstat(filepath.Join(base, p)); err != nil {
			t.Errorf("the base lost %s: %v", p, err)
		}
	}
	take([]string{"*A AGENTS.md", "D todo"}, "AGENTS.md", "todo")
	must(t, os.Rename(dst+"/new", dst+"/new.log")) // what was applied before
	take([]string{})
	o.Filter = sandbox.ChangesFilter{}
	take([]string{"A build", "A build/docs", "A build/docs/a", "A build/docs/b", "D docs", "D l", "A l.log", "D new", "A new.log", "A notes.log", "D notes.txt"})
	diff(t, "base", read(t, base), read(t, dst))
}

// A manifest of the first version says less, and is read.
func TestOlderManifest(t *testing.T) {
	const one = "carboy manifest 1\n\x02\x01\x00\x01a\xa4\x03\x02\x00\x00"
	m := []byte(one + "\x00\x01")
	m = binary.BigEndian.AppendUint32(m, crc32.Checksum(m, crc32.MakeTable(crc32.Castagnoli)))
	dst := t.TempDir()
	tree{"b": "new"}.write(t, dst)
	o := options(false, time.Time{})
	o.Origins = true
	set, err := workspace.Load(t.Context(), bytes.NewReader(copyStream(t, dst, m, o)), workspace.LoadOptions{})
	must(t, err)
	defer set.Close()
	base := t.TempDir()
	tree{"a": "1"}.write(t, base)
	d, err := workspace.Compare(t.Context(), openBase(t, base), set, workspace.CompareOptions{})
	must(t, err)
	diff(t, "changes", letters(d.Items), []string{"D a", "A b"})
}
