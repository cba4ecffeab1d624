package workspace_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func exchange(t *testing.T, a, b string) {
	t.Helper()
	must(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// Each case renames in a view; the changes are what git would show, and applied they make the base
// what the view is.
func TestRenamedDirectories(t *testing.T) {
	privateMounts(t)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, view string)
		want []string
	}{
		{"one", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
		}, []string{"A lib", "A lib/a", "A lib/l", "A lib/sub", "A lib/sub/b", "A lib/sub/c", "D src"}},
		{"and written to", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
			tree{"lib/a": "new", "lib/n": "new", "lib/sub/b": "new"}.write(t, v)
			must(t, os.Remove(v+"/lib/sub/c"))
			must(t, os.Remove(v+"/lib/l"))
		}, []string{"A lib", "A lib/a", "A lib/n", "A lib/sub", "A lib/sub/b", "D src"}},
		{"there and back", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
			must(t, os.Rename(v+"/lib", v+"/other/src"))
			must(t, os.Rename(v+"/other/src", v+"/src"))
		}, []string{}},
		{"written to there and back", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
			tree{"lib/a": "new"}.write(t, v)
			must(t, os.Rename(v+"/lib", v+"/src"))
		}, []string{"M src/a"}},
		{"exchanged", func(t *testing.T, v string) {
			exchange(t, v+"/src", v+"/other")
		}, []string{"A other/a", "A other/l", "D other/o", "A other/sub", "A other/sub/b", "A other/sub/c", "D src/a", "D src/l", "A src/o", "D src/sub"}},
		{"exchanged with a file", func(t *testing.T, v string) {
			exchange(t, v+"/src", v+"/file")
		}, []string{"T file", "A file/a", "A file/l", "A file/sub", "A file/sub/b", "A file/sub/c", "T src"}},
		{"out of one that is replaced", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/old"))
			must(t, os.Mkdir(v+"/src", 0o755))
			must(t, os.Rename(v+"/old/sub", v+"/src/sub"))
			must(t, os.RemoveAll(v+"/old"))
		}, []string{"D src/a", "D src/l"}},
		{"a parent and what was in it", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src/sub", v+"/src/s"))
			must(t, os.Rename(v+"/src", v+"/lib"))
			must(t, os.Rename(v+"/lib/s", v+"/other/t"))
		}, []string{"A lib", "A lib/a", "A lib/l", "A other/t", "A other/t/b", "A other/t/c", "D src"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			privateMounts(t)
			base := t.TempDir()
			tree{"src/a": "1", "src/sub/b": "2", "src/sub/c": "3", "src/l": "-> a", "other/o": "4", "file": "5"}.write(t, base)
			view, upper := overlay(t, base)
			tt.do(t, view)
			s := streamOver(t, upper, base, options(true, future))
			diff(t, "diff", letters(compare(t, base, s).Items), tt.want)
			target := filepath.Join(t.TempDir(), "copy")
			copyTree(t, base, target)
			_, err := apply(t, target, s, workspace.ApplyOptions{})
			must(t, err)
			diff(t, "base", read(t, target), read(t, view))

			// Negative control: without the base, what it has is not to be had, and that is said.
			if err := workspace.WriteChanges(t.Context(), &bytes.Buffer{}, workspace.OverlayUpper(openDir(t, upper), nil, nil), options(true, future)); len(tt.want) > 0 && tt.want[0] != "M src/a" && err == nil {
				t.Error("a stream without the base, and no error")
			}
		})
	}
}

// Only what is selected is written, by its new path.
func TestRenamedSelection(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{"src/a": "1", "src/sub/b": "2", "src/sub/c": "3"}.write(t, base)
	view, upper := overlay(t, base)
	must(t, os.Rename(view+"/src", view+"/lib"))
	s := streamOver(t, upper, base, options(true, future, "lib/sub/b", "src"))
	var got []string
	for c, err := range workspace.Read(bytes.NewReader(s)) {
		must(t, err)
		got = append(got, string(c.Kind)+" "+c.Path)
	}
	diff(t, "stream", got, []string{"dir lib", "dir lib/sub", "file lib/sub/b", "deleted src"})
}

// Whatever an upper layer says, nothing is read but what lies in the base, by no link.
func TestForgedRedirects(t *testing.T) {
	privateMounts(t)
	above := t.TempDir()
	base := filepath.Join(above, "base")
	tree{"base/target/t": "x", "base/up": "-> ..", "base/out": "-> " + above + "/secrets", "base/target/in": "-> /etc", "secrets/s": "x"}.write(t, above)
	for _, tt := range []struct {
		to    string
		fails bool
		shows string // what the directory shows
	}{
		{to: "/target", shows: "t"}, // the control: this is how a true one is
		{to: "target", shows: "t"},
		{to: "/no/such"},
		{to: "/up"},
		{to: "/up/secrets"},
		{to: "/out"},
		{to: "/target/in"},
		{to: "/target/t"},
		{to: "..", fails: true},
		{to: "/..", fails: true},
		{to: "/../secrets", fails: true},
		{to: "../secrets", fails: true},
		{to: "/target/../../secrets", fails: true},
		{to: "target/../..", fails: true},
		{to: "/", fails: true},
		{to: ".", fails: true},
		{to: "//target", fails: true},
		{to: "/target/", fails: true},
		{to: "a/b", fails: true},
		{to: "/" + strings.Repeat("x/", 3000) + "x", fails: true},
		{to: "/target\x00", fails: true},
	} {
		upper := t.TempDir()
		must(t, os.Mkdir(upper+"/d", 0o755))
		if err := unix.Setxattr(upper+"/d", "trusted.overlay.redirect", []byte(tt.to), 0); err != nil {
			if len(tt.to) > 1000 {
				continue // more than the file system takes
			}
			t.Skipf("needs root, and a file system that takes trusted attributes: %v", err)
		}
		var b bytes.Buffer
		err := workspace.WriteChanges(t.Context(), &b, workspace.OverlayUpper(openDir(t, upper), below(base), nil), options(true, future))
		if (err != nil) != tt.fails {
			t.Errorf("%q: %v", tt.to, err)
		}
		if err != nil {
			continue
		}
		got := ""
		for c, err := range workspace.Read(&b) {
			must(t, err)
			if name, ok := strings.CutPrefix(c.Path, "d/"); ok && c.Kind == workspace.File {
				got += name
			}
		}
		if got != tt.shows {
			t.Errorf("%q shows %q, want %q", tt.to, got, tt.shows)
		}
	}
}

// The user's directory may have been an overlay's upper layer, or have been given its marks: the
// kernel heeds none in the lowest layer, and nor does what reads the changes.
func TestMarksInTheBase(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{"evil/e": "e", "evil/sub/f": "f", "target/t": "t", "target/sub/t": "t"}.write(t, base)
	for dir, to := range map[string]string{"evil": "/target", "evil/sub": "/target/sub"} {
		if err := unix.Setxattr(base+"/"+dir, "trusted.overlay.redirect", []byte(to), 0); err != nil {
			t.Skipf("needs root, and a file system that takes trusted attributes: %v", err)
		}
	}
	must(t, unix.Setxattr(base+"/target", "trusted.overlay.opaque", []byte("y"), 0))
	view, upper := overlay(t, base)
	diff(t, "view", read(t, view), read(t, base))
	must(t, os.Rename(view+"/evil", view+"/moved"))
	diff(t, "moved view", read(t, view+"/moved"), tree{"e": "e", "sub": "/", "sub/f": "f"})
	got := letters(compare(t, base, streamOver(t, upper, base, options(true, future))).Items)
	diff(t, "diff", got, []string{"D evil", "A moved", "A moved/e", "A moved/sub", "A moved/sub/f"})
}

// What the owner of the base may not read is named, not told, in a renamed directory as well; and its
// old place stays until it is named, for it would be lost with that.
func TestRenamedDirectoryUnreadable(t *testing.T) {
	const user = 4711
	for _, owner := range []int{user, 0} { // 0 is the negative control: root may read all
		t.Run(fmt.Sprint(owner), func(t *testing.T) {
			privateMounts(t)
			base := t.TempDir()
			tree{"src/a": "1", "src/secret": "only root's", "other/closed/f": "root's too"}.write(t, base)
			must(t, os.Chmod(filepath.Dir(base), 0o755))
			must(t, os.Chmod(base+"/src/secret", 0o600))
			must(t, os.Chmod(base+"/other/closed", 0o700))
			must(t, os.Chown(base, owner, owner))
			view, upper := overlay(t, base)
			must(t, os.Rename(view+"/src", view+"/lib"))
			must(t, os.Rename(view+"/other", view+"/more"))
			low := &workspace.Below{Open: below(base).Open, As: asOf(t, owner)}
			s := written(t, workspace.OverlayUpper(openDir(t, upper), low, &rights.Reader{UID: uint32(owner), GID: uint32(owner)}), options(true, future))
			want := []string{"A lib", "A lib/a", "*A lib/secret", "A more", "*A more/closed", "*D other", "*D src"}
			if owner == 0 {
				want = []string{"A lib", "A lib/a", "A lib/secret", "A more", "A more/closed", "A more/closed/f", "D other", "D src"}
			}
			diff(t, "changes", letters(compare(t, base, s).Items), want)
			if told := bytes.Contains(s, []byte("only root's")) || bytes.Contains(s, []byte("root's too")); told != (owner == 0) {
				t.Errorf("the stream has what only root may read: %t", told)
			}
		})
	}
}

// asOf reads files with a user's rights.
func asOf(t *testing.T, user int) func(func() error) error {
	return func(f func() error) error {
		defer unix.Setfsuid(0)
		must(t, unix.Setfsuid(user))
		return f()
	}
}

// BenchmarkRenamed50k is how long the changes take of a directory of 50,000 files that was renamed.
func BenchmarkRenamed50k(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	base, name := filepath.Split(manyFiles(b))
	upper := b.TempDir()
	if err := os.Mkdir(upper+"/new", 0o755); err != nil {
		b.Fatal(err)
	}
	if err := unix.Setxattr(upper+"/new", "trusted.overlay.redirect", []byte("/"+name), 0); err != nil {
		b.Skip(err)
	}
	for _, content := range []bool{false, true} {
		b.Run(fmt.Sprintf("content=%v", content), func(b *testing.B) {
			for b.Loop() {
				d, err := os.Open(upper)
				if err != nil {
					b.Fatal(err)
				}
				var out countWriter
				err = workspace.WriteChanges(b.Context(), &out, workspace.OverlayUpper(d, below(base), nil), options(content, past))
				d.Close()
				if err != nil || out < 50_000*512 {
					b.Fatalf("%d bytes, %v", out, err)
				}
			}
		})
	}
}

type countWriter int

func (c *countWriter) Write(p []byte) (int, error) {
	*c += countWriter(len(p))
	return len(p), nil
}
