package backendtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// rename is a script that renames one path to another by the system call itself: mv copies where
// that fails.
func rename(from, to string, flags int) string {
	return fmt.Sprintf(`perl -e '$f="%s"; $t="%s"; syscall(%d, -100, $f, -100, $t, %d) == 0 or print "%s: $!\n"'`,
		from, to, unix.SYS_RENAMEAT2, flags, from)
}

// What came from the host is renamed in a view as it would be on the host, and the changes are those that
// were made, before and after a stop and a start.
func testRenames(t *testing.T, s *suite) {
	w := s.open(t)
	dir := tree(t, map[string]string{
		"src/a": "a\n", "src/sub/b": "b\n", "src/sub/c": "c\n", "other/o": "o\n", "one/x": "1\n", "two/y": "2\n", "file": "f\n",
		"deep/er/z": "z\n",
	})
	must(t, os.Symlink("a", filepath.Join(dir, "src/link")))
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
	for _, step := range []struct{ script, want string }{
		{rename("src", "lib", 0), ""},
		{"cat lib/a lib/link; echo A > lib/a; rm lib/sub/c; ls lib/sub; test -e src || echo gone", "a\na\nb\ngone\n"},
		{rename("other", "taken", unix.RENAME_NOREPLACE), ""},
		{rename("taken", "lib", unix.RENAME_NOREPLACE), "taken: File exists\n"},
		{rename("one", "two", unix.RENAME_EXCHANGE), ""},
		{rename("file", "two/x", unix.RENAME_EXCHANGE), ""},
		{rename("lib/sub", "taken/sub", 0), ""},
		{rename("deep/er", "er", 0), ""},
		{"mkdir deep/er && echo new > deep/er/z && cat file two/x one/y taken/sub/b er/z", "1\nf\n2\nb\nz\n"},
	} {
		b.says(t, "cd /workspace; "+step.script, step.want)
	}
	want := map[string]string{
		"src": "deleted", "lib": "dir", "lib/a": "file A\n", "lib/link": "symlink a", "other": "deleted", "taken": "dir", "taken/o": "file o\n",
		"taken/sub": "dir", "taken/sub/b": "file b\n", "one": "dir", "one/y": "file 2\n", "two": "dir", "two/x": "file f\n", "file": "file 1\n",
		"deep": "dir", "deep/er": "dir", "deep/er/z": "file new\n", "er": "dir", "er/z": "file z\n",
	}
	full := sandbox.ChangesOptions{Content: true}
	// Deletions in what was renamed are told, or not: nothing is at the new path on the host.
	wanted := func(what string) {
		t.Helper()
		got := w.changesOf(t, b.sb, full)
		maps.DeleteFunc(got, func(path, kind string) bool { return kind == "deleted" && want[path] == "" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	wanted("of a running instance")
	w.mustStop(t, b.id)
	wanted("of a stopped instance")
	listed(t, w, b.sb, want)
	b = w.restart(t, b.sb)
	wanted("of one that was started again")
	b.says(t, "cd /workspace; cat lib/a lib/link; "+rename("lib", "src", unix.RENAME_NOREPLACE), "A\nA\n")
	b.says(t, "cd /workspace; cat src/a taken/sub/b two/x; ls -A | tr '\\n' ' '", "A\nb\nf\ndeep er file one src taken two ")
	for name, content := range map[string]string{"src/a": "a\n", "src/sub/c": "c\n", "one/x": "1\n", "file": "f\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != content {
			t.Errorf("the host's %s is %q, %v", name, got, err)
		}
	}
}

// listed compares what is read from a stopped instance's disk with its changes, which are all that
// it has.
func listed(t *testing.T, w *world, sb *sandbox.Sandbox, want map[string]string) {
	t.Helper()
	disks, ok := w.Backend.(sandbox.DiskFiles)
	if !ok {
		return
	}
	var raw bytes.Buffer
	must(t, disks.ListDisk(t.Context(), sb, "/workspace", true, &raw))
	var list api.DiskListing
	must(t, json.Unmarshal(raw.Bytes(), &list))
	var got, all []string
	for _, e := range list.Entries {
		got = append(got, strings.TrimPrefix(e.Path, "/workspace/"))
	}
	for path, kind := range want {
		if kind != "deleted" {
			all = append(all, path)
		}
	}
	slices.Sort(got)
	slices.Sort(all)
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("on the disk (-want +got):\n%s", diff)
	}
}

// Whoever runs inside, root too, can't make a directory show another one by the marks that overlays
// keep: neither where it was made, nor in the changes, nor after a start.
func testForgedMarks(t *testing.T, s *suite) {
	w := s.open(t)
	dir := tree(t, map[string]string{"src/a": "a\n", "other/o": "o\n"})
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
	want := map[string]string{}
	for _, user := range s.users() {
		made := "made-" + user
		want[made], want[made+"/x"] = "dir", "file x\n"
		b.sh(t, user, "mkdir /workspace/"+made+"; echo x > /workspace/"+made+"/x")
		for _, attr := range []string{"trusted.overlay.", "user.overlay.", "trusted.overlay.overlay.", "user.overlay.overlay."} {
			for _, at := range []string{made, "src"} {
				b.sh(t, user, fmt.Sprintf(`perl -e '$d="/workspace/%s"; for (["redirect", "/other"], ["opaque", "y"]) {
					$n="%s$$_[0]"; $v=$$_[1]; syscall(%d, $d, $n, $v, length $v, 0) }'`, at, attr, unix.SYS_SETXATTR))
			}
		}
	}
	look := func(what string) {
		t.Helper()
		b.says(t, "cd /workspace; cat src/a; ls src made-*/ | sort -u | tr '\\n' ' '; ls -A other", "a\n"+looked(s.users())+"o\n")
		got := w.changesOf(t, b.sb, sandbox.ChangesOptions{Content: true})
		maps.DeleteFunc(got, func(path, kind string) bool { return path == "src" && kind == "dir" }) // touched, and as it was
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	look("as they were set")
	w.mustStop(t, b.id)
	b = w.restart(t, b.sb)
	look("after a start")
}

// looked is what ls prints of the directories that users made and of src, sorted and once.
func looked(users []string) string {
	lines := []string{"", "src:", "a", "x"}
	for _, u := range users {
		lines = append(lines, "made-"+u+"/:")
	}
	slices.Sort(lines)
	return strings.Join(lines, " ") + " "
}
