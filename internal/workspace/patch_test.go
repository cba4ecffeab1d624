package workspace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func patch(t *testing.T, d *workspace.Diff, opts workspace.PatchOptions) string {
	t.Helper()
	var b bytes.Buffer
	must(t, d.WritePatch(t.Context(), &b, opts))
	return b.String()
}

func TestPatch(t *testing.T) {
	base, upper := twoDirs(t, tree{
		"text": "one\ntwo\nthree\n", "bin": "a\x00b", "run": "same", "gone": "bye\n", "dir/x": "1\n", "l": "-> text", "no-newline": "a",
	})
	tree{
		"text": "one\n2\x1b[31m\nthree\n", "bin": "a\x00c", "run": "x! same", "dir": "now a file\n", "l": "-> bin",
		"new\x1b\n\"q\"": "hi\n", "p": "fifo", "no-newline": "b", "empty": "",
	}.write(t, upper)
	whiteout(t, upper+"/gone")
	got := patch(t, compare(t, base, stream(t, upper, options(true, future))), workspace.PatchOptions{})
	want := `diff --git a/bin b/bin
Binary files a/bin and b/bin differ
diff --git a/dir/x b/dir/x
deleted file mode 100644
--- a/dir/x
+++ /dev/null
@@ -1 +0,0 @@
-1
diff --git a/dir b/dir
new file mode 100644
--- /dev/null
+++ b/dir
@@ -0,0 +1 @@
+now a file
diff --git a/empty b/empty
new file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/l b/l
--- a/l
+++ b/l
@@ -1 +1 @@
-text
\ No newline at end of file
+bin
\ No newline at end of file
diff --git "a/new\033\n\"q\"" "b/new\033\n\"q\""
new file mode 100644
--- /dev/null
+++ "b/new\033\n\"q\""
@@ -0,0 +1 @@
+hi
diff --git a/no-newline b/no-newline
--- a/no-newline
+++ b/no-newline
@@ -1 +1 @@
-a
\ No newline at end of file
+b
\ No newline at end of file
Only in the workspace's view: b/p is a fifo
diff --git a/run b/run
old mode 100644
new mode 100755
diff --git a/text b/text
--- a/text
+++ b/text
@@ -1,3 +1,3 @@
 one
-two
+2\x1b[31m
 three
`
	diff(t, "patch", got, want)
}

// A raw patch does with git apply what Apply does.
func TestRawPatchIsGits(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	base, upper := twoDirs(t, tree{"a": "1\n2\n3\n", "b/c": "x\ty\n", "d": "gone\n", "e": "run\n", "t": "file\n", "größe": "1\n", "link": "-> a"})
	tree{"a": "1\n\x1b\n3\n", "b/c": "x\r\n", "n\"\x1b": "new", "e": "x! run\n", "f": "x! new\n", "größe": "2\n", "t": "-> a", "link": "-> b"}.write(t, upper)
	whiteout(t, upper+"/d")
	s := stream(t, upper, options(true, future))
	target := filepath.Join(t.TempDir(), "copy")
	copyTree(t, base, target)
	text := patch(t, compare(t, base, s), workspace.PatchOptions{Raw: true})
	cmd := exec.Command("git", "apply", "--whitespace=nowarn")
	cmd.Dir, cmd.Stdin = target, strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, text)
	}
	_, err := apply(t, base, s, workspace.ApplyOptions{})
	must(t, err)
	diff(t, "git's", read(t, target), read(t, base))
}

func TestPatchOfLargeFiles(t *testing.T) {
	base, upper := twoDirs(t, tree{"big": "x"})
	tree{"big": "y", "many": strings.Repeat("a\n", 300_000), "absent": "z"}.write(t, upper)
	must(t, os.Truncate(upper+"/big", 9<<20))
	s := stream(t, upper, options(true, future))
	got := patch(t, compare(t, base, s), workspace.PatchOptions{})
	for _, want := range []string{
		"Files a/big and b/big differ: 1 and 9437184 bytes, too large to show\n",
		"Files /dev/null and b/many differ: 0 and 600000 bytes, too large to show\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%.2000s", want, got)
		}
	}
	got = patch(t, compare(t, base, stream(t, upper, options(false, future))), workspace.PatchOptions{})
	if want := "Files /dev/null and b/absent differ: content was not asked for\n"; !strings.Contains(got, want) {
		t.Errorf("no %q in:\n%s", want, got)
	}
}

func TestSummary(t *testing.T) {
	base, upper := twoDirs(t, tree{"m": "1", "d": "1", "x": "1", "t": "1"})
	tree{"m": "2", "x": "x! 1", "t/u": "1", "a": "1", ".envrc": "1"}.write(t, upper)
	whiteout(t, upper+"/d")
	got := compare(t, base, stream(t, upper, options(true, future))).Summary()
	diff(t, "summary", got, workspace.Summary{Added: 3, Modified: 1, Deleted: 1, ModeChanged: 1, TypeChanged: 1, Held: 1})
}

func TestNotes(t *testing.T) {
	base, upper := twoDirs(t, tree{"x": "1", "d/a/b": "1", "e/a": "1"})
	tree{"x": "x! 1", "s": "1"}.write(t, upper)
	must(t, os.Chmod(upper+"/s", 0o755|os.ModeSetuid))
	whiteout(t, upper+"/d")
	whiteout(t, upper+"/e")
	got := map[string][]string{}
	for _, it := range compare(t, base, stream(t, upper, options(true, future))).Items {
		got[it.Path] = it.Notes
	}
	diff(t, "notes", got, map[string][]string{"d": {"removes 2 entries"}, "e": {"removes 1 entry"}, "s": {"set-id bits are dropped"}, "x": {"becomes executable"}})
}
