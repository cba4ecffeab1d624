package scrub_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// run runs a tool and returns what it printed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// format makes an image of so many MiB.
func format(t testing.TB, mib int64, args ...string) string {
	t.Helper()
	if _, err := os.Stat("/usr/sbin/mke2fs"); err != nil {
		t.Skip("needs mke2fs")
	}
	path := filepath.Join(t.TempDir(), "disk.ext4")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, mib<<20); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(args, "-t") {
		args = append([]string{"-t", "ext4"}, args...)
	}
	run(t, "mke2fs", append(append([]string{"-q", "-F"}, args...), path)...)
	return path
}

// mount mounts an image until it is unmounted, or the test ends.
func mount(t testing.TB, image string, opts ...string) (at string, unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	at = t.TempDir()
	o := strings.Join(append([]string{"loop"}, opts...), ",")
	if out, err := exec.Command("mount", "-o", o, image, at).CombinedOutput(); err != nil {
		t.Skipf("mount -o %s: %v: %s", o, err, out)
	}
	done := false
	unmount = func() {
		if !done {
			done = true
			run(t, "umount", at)
			freed := func() bool { return run(t, "losetup", "-j", image) == "" }
			if !patience.Until(20*time.Second, freed) { // a moment later
				t.Errorf("%s still has a loop device", image)
			}
		}
	}
	t.Cleanup(unmount)
	return at, unmount
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// marks are texts that stand in an image before a scrub, and not afterwards.
var marks = []string{
	"CURRENT-c0ntent", "OVERWRITTEN-c0ntent", "DELETED-c0ntent", "INLINE-c0ntent", "LINKTARGET-fast", "LINKTARGET-slow",
	"filename-s3cret", "deleted-name-s3cret", "dirname-s3cret", "ATTRIBUTE-small", "ATTRIBUTE-large", "TAIL-c0ntent", "RENAMED-c0ntent",
	"PREALLOC-c0ntent", "SHARED-attr",
}

// plant writes marks below /run of a mounted image, and other files elsewhere.
func plant(t testing.TB, at string) {
	t.Helper()
	p := func(rel string) string { return filepath.Join(at, rel) }
	write := func(rel, data string) {
		check(t, os.WriteFile(p(rel), []byte(data), 0o600))
	}
	for _, d := range []string{"run/pyro-secrets/dirname-s3cret/below", "keep/deep/er", "keep/many", "run/pyro-services"} {
		check(t, os.MkdirAll(p(d), 0o755))
	}
	write("keep/a.txt", "kept")
	write("keep/deep/b.bin", strings.Repeat("0123456789abcdef", 9000)+"end")
	check(t, os.Symlink("a.txt", p("keep/link")), os.Symlink(strings.Repeat("x", 200), p("keep/long")), unix.Mkfifo(p("keep/fifo"), 0o600))
	check(t, unix.Setxattr(p("keep/a.txt"), "user.kept", []byte("attribute"), 0))
	for i := range 400 {
		write(fmt.Sprintf("keep/many/a file with a name of some length %04d", i), "")
	}
	write("run/pyro-secrets/TOKEN", "CURRENT-c0ntent")
	write("run/pyro-secrets/filename-s3cret", "INLINE-c0ntent")
	check(t, os.Symlink("/LINKTARGET-fast", p("run/fast")), os.Symlink("/"+strings.Repeat("y", 100)+"LINKTARGET-slow", p("run/slow")))
	write("run/big", strings.Repeat("z", 5000)+"TAIL-c0ntent")
	write("run/over", strings.Repeat("OVERWRITTEN-c0ntent", 300))
	write("run/gone-deleted-name-s3cret", strings.Repeat("DELETED-c0ntent", 1000))
	write("keep/was-secret", strings.Repeat("RENAMED-c0ntent", 1000)) // a deleted one elsewhere
	check(t, unix.Setxattr(p("run/over"), "user.small", []byte("ATTRIBUTE-small"), 0))
	check(t, unix.Setxattr(p("run/big"), "user.large", []byte(strings.Repeat("ATTRIBUTE-large", 40)), 0))
	for _, f := range []string{"run/big2", "run/big3"} { // the same block of attributes
		write(f, "x")
		check(t, unix.Setxattr(p(f), "user.shared", []byte(strings.Repeat("SHARED-attr", 40)), 0))
	}
	for i := range 300 { // an index of more than one level of blocks, in small ones
		write(fmt.Sprintf("run/pyro-services/filename-s3cret of a log that has many %04d", i), "")
	}
	run(t, "sync", "-f", at)
	check(t, os.WriteFile(p("run/over"), []byte("now"), 0o600), os.Remove(p("run/gone-deleted-name-s3cret")), os.Remove(p("keep/was-secret")))
	// What was there is found behind the end of what is allocated for another.
	run(t, "sync", "-f", at)
	f, err := os.Create(p("keep/allocated"))
	check(t, err)
	defer f.Close()
	write("run/pre", strings.Repeat("PREALLOC-c0ntent", 1<<12))
	run(t, "sync", "-f", at)
	check(t, os.Remove(p("run/pre")))
	run(t, "sync", "-f", at)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 300<<10); !errors.Is(err, unix.EOPNOTSUPP) {
		check(t, err)
	}
	_, err = f.WriteString("a short text")
	check(t, err)
}

// shape is what stands in a mounted image, but below /run: each path with all that can be
// told of it.
func shape(t testing.TB, at string) map[string]string {
	t.Helper()
	m := map[string]string{}
	check(t, filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(at, path)
		if strings.HasPrefix(rel, "run/") {
			t.Errorf("%s stands there", rel)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		what := fmt.Sprintf("%d %o %d:%d %d %d.%d", st.Ino, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
		if rel == "run" {
			what = fmt.Sprint(st.Ino, st.Mode)
		}
		list := make([]byte, 1<<12)
		n, _ := unix.Llistxattr(path, list)
		for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
			v := make([]byte, 1<<12)
			n, _ := unix.Lgetxattr(path, name, v)
			what += fmt.Sprintf(" %s=%q", name, v[:max(n, 0)])
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			check(t, err)
			what += " " + target
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			check(t, err)
			what += fmt.Sprintf(" %d %x", st.Nlink, sha256.Sum256(b))
		}
		m[rel] = what
		return nil
	}))
	return m
}

// standing returns the marks that an image has.
func standing(t testing.TB, image string) (found []string) {
	t.Helper()
	b, err := os.ReadFile(image)
	check(t, err)
	for _, m := range marks {
		if bytes.Contains(b, []byte(m)) {
			found = append(found, m)
		}
	}
	return found
}

// features are sets of them, as mke2fs takes them.
var features = map[string][]string{
	"ordinary":       nil,
	"small-blocks":   {"-b", "1024"},
	"inline":         {"-O", "inline_data"},
	"no-checksums":   {"-O", "^metadata_csum,^64bit"},
	"group-sums":     {"-O", "^metadata_csum,uninit_bg"},
	"block-maps":     {"-O", "^extents,^64bit,^flex_bg", "-b", "1024"},
	"ext3":           {"-t", "ext3"},
	"bigalloc":       {"-O", "bigalloc", "-C", "16384"},
	"seed":           {"-O", "metadata_csum_seed,orphan_file"},
	"meta-groups":    {"-O", "meta_bg,^resize_inode", "-b", "1024"},
	"sparse2":        {"-O", "sparse_super2,^resize_inode"},
	"quota":          {"-O", "quota,project"},
	"no-journal":     {"-O", "^has_journal"},
	"small-inodes":   {"-I", "128"},
	"large-inodes":   {"-I", "1024"},
	"many-groups":    {"-b", "1024", "-g", "1024"},
	"everywhere":     {"-O", "^sparse_super,^resize_inode", "-b", "1024"},
	"casefold":       {"-O", "casefold"},
	"filled-by-mkfs": {"-E", "lazy_itable_init=1,lazy_journal_init=1"},
}

func TestScrubErases(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(features)) {
		t.Run(name, func(t *testing.T) {
			image := format(t, 40, features[name]...)
			at, unmount := mount(t, image)
			plant(t, at)
			unmount()
			if len(standing(t, image)) < len(marks)-3 {
				t.Fatalf("before: %q stand there, want nearly all", standing(t, image))
			}
			kept := before(t, image)
			if err := scrub.Scrub(t.Context(), image, scrub.Options{}); err != nil {
				t.Fatal(err)
			}
			if found := standing(t, image); len(found) > 0 {
				t.Errorf("found %q", found)
			}
			run(t, "e2fsck", "-fn", image)
			at, _ = mount(t, image)
			after := shape(t, at)
			for path := range kept {
				if kept[path] != after[path] {
					t.Errorf("%s: was %s\nis %s", path, kept[path], after[path])
				}
			}
			if len(after) != len(kept) {
				t.Errorf("%d paths, want %d", len(after), len(kept))
			}
			// It is still one that can be written to.
			check(t, os.WriteFile(filepath.Join(at, "run/new"), make([]byte, 1<<20), 0o600))
		})
	}
}

// before is the shape of an image without what is to be erased.
func before(t testing.TB, image string) map[string]string {
	t.Helper()
	copied := image + ".before"
	run(t, "cp", "--sparse=always", image, copied)
	at, unmount := mount(t, copied)
	entries, err := os.ReadDir(filepath.Join(at, "run"))
	check(t, err)
	for _, e := range entries {
		check(t, os.RemoveAll(filepath.Join(at, "run", e.Name())))
	}
	m := shape(t, at)
	unmount()
	return m
}

// TestScrubErasesEachPart is the negative control: what one part of it does not overwrite
// is found.
func TestScrubErasesEachPart(t *testing.T) {
	for _, part := range slices.Sorted(maps.Keys(scrub.Parts)) {
		t.Run(part, func(t *testing.T) {
			image := format(t, 16, "-b", "1024", "-O", "inline_data,^metadata_csum")
			at, unmount := mount(t, image, "data=journal")
			plant(t, at)
			unmount()
			seed(t, image, part)
			copied := image + ".whole"
			run(t, "cp", image, copied)
			if err := scrub.Scrub(t.Context(), image, scrub.Keeping(scrub.Options{}, part)); err != nil {
				t.Fatal(err)
			}
			if len(standing(t, image)) == 0 {
				t.Error("nothing is found, although it was left")
			}
			if err := scrub.Scrub(t.Context(), copied, scrub.Options{}); err != nil {
				t.Fatal(err)
			}
			if found := standing(t, copied); len(found) > 0 {
				t.Errorf("found %q", found)
			}
		})
	}
}

// seed puts a mark into a part of an image where the kernel leaves none behind that is easily made.
func seed(t *testing.T, image, part string) {
	t.Helper()
	switch part {
	case "tails":
		poke(t, image, block(t, image, "/keep/deep/b.bin", -1)*1024+700, "TAIL-c0ntent")
	case "attributes":
		at, unmount := mount(t, image)
		check(t, unix.Setxattr(filepath.Join(at, "keep/deep"), "user.x", bytes.Repeat([]byte("k"), 300), 0))
		unmount()
		var acl int64
		for line := range strings.Lines(run(t, "debugfs", "-R", "stat /keep/deep", image)) {
			if _, after, ok := strings.Cut(line, "File ACL: "); ok {
				_, err := fmt.Sscan(after, &acl)
				check(t, err)
			}
		}
		poke(t, image, acl*1024+400, "ATTRIBUTE-large")
	case "nodes":
		at, unmount := mount(t, image)
		f, err := os.Create(filepath.Join(at, "keep/pieces"))
		check(t, err)
		for i := range 40 {
			_, err := f.WriteAt([]byte("x"), int64(i)*8192)
			check(t, err, f.Sync())
		}
		f.Close()
		unmount()
		var node int64
		for line := range strings.Lines(run(t, "debugfs", "-R", "ex /keep/pieces", image)) {
			fields := strings.Fields(line)
			if len(fields) > 8 && fields[0] == "0/" {
				_, err := fmt.Sscan(fields[7], &node)
				check(t, err)
			}
		}
		poke(t, image, node*1024+900, "TAIL-c0ntent")
	case "directories":
		check(t, os.WriteFile(image+".s", nil, 0o600))
		run(t, "debugfs", "-w", "-R", "write "+image+".s /keep/many/filename-s3cret", image)
		run(t, "debugfs", "-w", "-R", "rm /keep/many/filename-s3cret", image)
	case "inodes":
		run(t, "debugfs", "-w", "-R", "symlink /keep/many/l LINKTARGET-fast", image)
		run(t, "debugfs", "-w", "-R", "rm /keep/many/l", image)
	case "tables":
		poke(t, image, 2*1024+1000, "TAIL-c0ntent") // behind the descriptors
	}
}

func poke(t *testing.T, image string, at int64, data string) {
	t.Helper()
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	check(t, err)
	_, err = f.WriteAt([]byte(data), at)
	check(t, err, f.Close())
}

// block is the number of a file's block, counted from its end where it is negative.
func block(t *testing.T, image, path string, i int) int64 {
	t.Helper()
	list := strings.Fields(run(t, "debugfs", "-R", "blocks "+path, image))
	list = slices.DeleteFunc(list, func(s string) bool { return strings.Trim(s, "0123456789") != "" })
	if i < 0 {
		i += len(list)
	}
	var n int64
	_, err := fmt.Sscan(list[i], &n)
	check(t, err)
	return n
}
