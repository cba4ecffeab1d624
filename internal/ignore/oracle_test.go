package ignore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/ignore"
)

// TestAsGit compares with git check-ignore: patterns that people write, and thousands of
// others made of what is special in them.
func TestAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	root := t.TempDir()
	runGit(t, root, nil, "init", "-q")
	lists := append(written, random(400)...)
	for _, lines := range lists {
		check(t, root, lines)
	}
}

// written are lists that people write.
var written = [][]string{
	{"node_modules/", "dist", "*.log", "!keep.log"},
	{"/build", "build/", "!/src/build/"},
	{"**/tmp", "a/**", "!a/b", "a/**/z"},
	{"*", "!*/", "!*.go"},
	{"a/*", "!a/b/"},
	{`\#x`, `\!x`, "trail ", `kept\ `, "cr\r", "# comment", ""},
	{"[a-c].txt", "[!a]z", "[]]", "[[:digit:]]x", "[x", `[\]]`, "[a-", "[[:nope:]]a"},
	{"foo/", "foo", "!foo/bar"},
	{"/", "//", "/*", "!/a"},
	{"a**b", "**", "!a/**/b"},
	{"doc/**/*.txt", `a\/b`, `x\`, "?"},
}

// random makes n lists of n lines of what is special.
func random(n int) [][]string {
	r := rand.New(rand.NewPCG(1, 2))
	bits := []string{"a", "b", "c", "*", "**", "/", "?", "[ab]", "[!a]", "[a-c]", `\*`, "!", " ", "x", "/**/", "**/", "/**", ".", "[", "]", "-", `\`, "#", "[^b]", "[[:alpha:]]", "ab"}
	var lists [][]string
	for range n {
		var lines []string
		for range 1 + r.IntN(5) {
			var line strings.Builder
			for range 1 + r.IntN(5) {
				line.WriteString(bits[r.IntN(len(bits))])
			}
			lines = append(lines, line.String())
		}
		lists = append(lists, lines)
	}
	return lists
}

// tree is what the patterns are asked about; a slash at the end says directory.
var tree = []string{
	"a/", "a/b/", "a/b/c/", "a/b/c/a", "a/b/z", "a/z", "a/x.log", "a/keep.log", "b/", "b/a/", "b/a/b", "b/ab", "ab", "abc", "c",
	"x", "#x", "!x", "trail", "kept ", "cr", "a.txt", "d.txt", "]", "[x", "1x", "az", "bz", "keep.log", "y.log", "main.go",
	"node_modules/", "node_modules/m/", "node_modules/m/i.js", "src/", "src/build/", "src/build/o", "build/", "build/o", "dist", "tmp",
	"foo/", "foo/bar", "doc/", "doc/d/", "doc/d/x.txt", "doc/x.txt", "*", "a*", "-", ".x", "link",
}

func check(t *testing.T, root string, lines []string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, ".gitignore"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range tree {
		at := filepath.Join(root, p)
		if strings.HasSuffix(p, "/") {
			_ = os.MkdirAll(at, 0o755)
		} else if p == "link" {
			_ = os.Symlink("a", at)
		} else if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var in bytes.Buffer
	for _, p := range tree {
		in.WriteString(strings.TrimSuffix(p, "/") + "\x00")
	}
	want := map[string]bool{}
	for p := range strings.SplitSeq(strings.TrimSuffix(runGit(t, root, in.Bytes(), "check-ignore", "--no-index", "-z", "--stdin"), "\x00"), "\x00") {
		want[p] = true
	}
	list := ignore.NewList(lines, "", nil)
	below := ignore.NewList(within("p q/[r", lines), "p q", nil)
	for _, p := range tree {
		name, dir := strings.TrimSuffix(p, "/"), strings.HasSuffix(p, "/")
		if got := list.Has(name, dir); got != want[name] {
			t.Errorf("%q: %q is ignored: %v, git says %v", lines, p, got, want[name])
		}
		if oddStars.MatchString(strings.Join(lines, "\n")) {
			continue
		}
		if got := below.Has("[r/"+name, dir); got != want[name] {
			t.Errorf("%q: %q in a directory below is ignored: %v, git says %v", lines, p, got, want[name])
		}
	}
}

// oddStars are those that git takes for a beginning because nothing special comes before
// them: that is lost below a directory whose name has something special.
var oddStars = regexp.MustCompile(`[^/*\n]\*\*+(/|$)`)

func within(dir string, lines []string) (out []string) {
	for _, line := range lines {
		if p, ok := ignore.ParseLine(line); ok {
			out = append(out, p.Within(dir))
		}
	}
	return out
}

// runGit runs git where nothing but the repository has a say; that nothing matches is no
// failure.
func runGit(t *testing.T, dir string, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent")
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func TestIndexPaths(t *testing.T) {
	for _, version := range []int{2, 3, 4} {
		t.Run(fmt.Sprint("version-", version), func(t *testing.T) {
			dir := t.TempDir()
			runGit(t, dir, nil, "init", "-q")
			names := []string{"a", "dir/abc", "dir/abd", "dir/sub/x y", "\xffz"}
			for _, n := range names {
				_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755)
				if err := os.WriteFile(filepath.Join(dir, n), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			runGit(t, dir, nil, "add", ".")
			if version == 3 { // an entry with more flags
				if err := os.WriteFile(filepath.Join(dir, "later"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				runGit(t, dir, nil, "add", "-N", "later")
				names = []string{"a", "dir/abc", "dir/abd", "dir/sub/x y", "later", "\xffz"}
			}
			if version == 4 {
				runGit(t, dir, nil, "update-index", "--index-version", "4")
			}
			b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ignore.IndexPaths(b)
			if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", names) {
				t.Errorf("IndexPaths = %q, %v, want %q", got, err, names)
			}
			for i := range b {
				_, _ = ignore.IndexPaths(b[:i]) // no panic
			}
		})
	}
}

// TestManyStars ends: a pattern may be a stranger's.
func TestManyStars(t *testing.T) {
	list := ignore.NewList([]string{"/" + strings.Repeat("*a", 100) + "b", strings.Repeat("**/a/", 50) + "b"}, "", nil)
	if list.Has(strings.Repeat("a", 250)+"/"+strings.Repeat("a/", 100)+"c", false) {
		t.Error("it matches")
	}
}

func TestKept(t *testing.T) {
	list := ignore.NewList([]string{"out/", "*.log"}, "", []string{"out/deep/kept", "x.log"})
	for path, want := range map[string]bool{"out/deep/kept": false, "out/deep/other": true, "out": true, "x.log": false, "y.log": true} {
		if got := list.Has(path, path == "out"); got != want {
			t.Errorf("Has(%q) = %v, want %v", path, got, want)
		}
	}
	if !list.Leads("out") || !list.Leads("out/deep") || list.Leads("out/deep/kept") {
		t.Error("Leads does not lead to what is kept")
	}
}

// What a user types and matches nothing is refused; git takes it in silence.
func TestCheckGlob(t *testing.T) {
	for _, tt := range []struct {
		name, glob string
		ok         bool
	}{
		{"plain", "docs/*.md", true},
		{"set", "[a-z]*.log", true},
		{"set-of-a-bracket", "[]]", true},
		{"negated-set", "x[!a]", true},
		{"class", "[[:digit:]]", true},
		{"literal-bracket", `\[`, true},
		{"literal-backslash", `a\\`, true},
		{"closing-bracket-alone", "a]", true},
		{"bracket", "[", false},
		{"bracket-later", "a/b[c", false},
		{"bracket-after-a-set", "[a][b", false},
		{"bracket-of-a-directory", "[/", false},
		{"empty-set", "[]", false},
		{"unknown-class", "[[:nope:]]", false},
		{"backslash", `a\`, false},
		{"nothing", "", false},
		{"comment", "#a", false},
		{"exclamation", "!a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := ignore.CheckGlob(tt.glob); (err == nil) != tt.ok {
				t.Errorf("CheckGlob(%q) = %v", tt.glob, err)
			}
		})
	}
}

func FuzzIndexPaths(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = ignore.IndexPaths(b) })
}

func FuzzPattern(f *testing.F) {
	f.Add("a/**/b*[!x]", "a/c/bz")
	f.Fuzz(func(t *testing.T, line, path string) {
		if len(line) > 200 || len(path) > 200 {
			return
		}
		list := ignore.NewList([]string{line}, "", nil)
		if p, ok := ignore.ParseLine(line); ok && path != "" {
			again := ignore.NewList([]string{p.Within("")}, "", nil)
			if list.Has(path, true) != again.Has(path, true) {
				t.Errorf("%q and %q differ on %q", line, p.Within(""), path)
			}
		}
	})
}
