package volume

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// answers are what a volume's process says, by operation and path: files as
// they are, directories as their entries.
type answers map[string]string

func (a answers) serve(w http.ResponseWriter, r *http.Request, operation string) {
	text, ok := a[operation+" "+r.URL.Query().Get("path")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		text = `{"code":"not_found","message":"it is not there"}`
	}
	if short, ok := strings.CutSuffix(text, "<cut>"); ok {
		w.Header().Set("Content-Length", "1000")
		text = short
	}
	_, _ = w.Write([]byte(text))
}

func entriesOf(list ...listed) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestCopyOut(t *testing.T) {
	file := func(name string, mode uint32) listed { return listed{name, "file", mode} }
	dir := func(name string) listed { return listed{name, "directory", 0o755} }
	cases := []struct {
		name string
		has  answers
		want sandbox.Kind
	}{
		{"all of it", answers{
			"/dir /pkg":        entriesOf(dir("sub"), file("run", 0o700), listed{"link", "symlink", 0o777}, listed{"pipe", "unknown", 0}, dir(".venv")),
			"/dir /pkg/sub":    entriesOf(file("a", 0o600)),
			"/file /pkg/run":   "#!/bin/sh",
			"/file /pkg/sub/a": "text",
		}, ""},
		{"nothing there", answers{}, sandbox.NotFound},
		{"a file that goes away", answers{"/dir /pkg": entriesOf(file("a", 0o644))}, sandbox.NotFound},
		{"a name that leads out", answers{"/dir /pkg": entriesOf(file("../a", 0o644)), "/file /a": "x"}, sandbox.Unavailable},
		{"a name with directories", answers{"/dir /pkg": entriesOf(file("b/a", 0o644)), "/file /pkg/b/a": "x"}, sandbox.Unavailable},
		{"the directory itself", answers{"/dir /pkg": entriesOf(dir("."))}, sandbox.Unavailable},
		{"no name", answers{"/dir /pkg": entriesOf(dir(""))}, sandbox.Unavailable},
		{"no listing", answers{"/dir /pkg": "<html>"}, sandbox.Unavailable},
		{"a file that ends too soon", answers{"/dir /pkg": entriesOf(file("a", 0o644)), "/file /pkg/a": "x<cut>"}, sandbox.Unavailable},
		{"too much of one", answers{"/dir /pkg": entriesOf(file("a", 0o644)), "/file /pkg/a": strings.Repeat("x", 11)}, sandbox.Exhausted},
		{"too much of all", answers{
			"/dir /pkg": entriesOf(file("a", 0o644), file("b", 0o644)), "/file /pkg/a": strings.Repeat("x", 10), "/file /pkg/b": strings.Repeat("x", 10),
		}, sandbox.Exhausted},
		{"too many", answers{"/dir /pkg": entriesOf(dir("a"), dir("b"), dir("c"), dir("d"), dir("e"), dir("f")), "/dir /pkg/a": "[]", "/dir /pkg/b": "[]", "/dir /pkg/c": "[]", "/dir /pkg/d": "[]", "/dir /pkg/e": "[]", "/dir /pkg/f": "[]"}, sandbox.Exhausted},
		{"too deep", answers{
			"/dir /pkg": entriesOf(dir("a")), "/dir /pkg/a": entriesOf(dir("a")), "/dir /pkg/a/a": entriesOf(dir("a")), "/dir /pkg/a/a/a": entriesOf(dir("a")),
		}, sandbox.Exhausted},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			at := t.TempDir()
			to, err := os.OpenRoot(at)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			c := copying{serve: tt.has.serve, from: "/pkg", to: to, b: Bounds{Entries: 5, Entry: 10, Total: 18, Depth: 2, Except: []string{".venv"}}}
			if err := c.dir(t.Context(), ".", 0); sandbox.KindOf(err) != tt.want {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if tt.want == "" {
				wantCopy(t, at)
			}
		})
	}
}

// wantCopy looks at the copy of all that may be copied.
func wantCopy(t *testing.T, at string) {
	t.Helper()
	for rel, want := range map[string]os.FileMode{"run": 0o755, "sub": os.ModeDir | 0o755, "sub/a": 0o644, "link": os.ModeSymlink | 0o777, "pipe": os.ModeSymlink | 0o777} {
		if st, err := os.Lstat(filepath.Join(at, rel)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", rel, st, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(at, "sub/a")); err != nil || string(b) != "text" {
		t.Errorf("sub/a: %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(at, ".venv")); err == nil {
		t.Error("what is left out was copied")
	}
	if _, err := os.Stat(filepath.Join(at, "link")); err == nil {
		t.Error("a link leads somewhere")
	}
}

// TestLook: what is at a path is told as the volume's process has it; what makes no sense is no answer.
func TestLook(t *testing.T) {
	has := answers{
		"/path /src": `{"type":"directory"}`, "/path /src/a": `{"type":"file"}`, "/path /link": `{"type":"symlink","target":"../etc"}`, "/path /broken": "<html>",
	}
	for rel, want := range map[string]struct {
		kind, link string
		err        sandbox.Kind
	}{
		"src": {"directory", "", ""}, "src/a": {"file", "", ""}, "link": {"symlink", "../etc", ""}, "none": {err: sandbox.NotFound}, "broken": {err: sandbox.Unavailable},
	} {
		kind, link, err := look(t.Context(), has.serve, rel)
		if kind != want.kind || link != want.link || sandbox.KindOf(err) != want.err {
			t.Errorf("%s: %q, %q, %v", rel, kind, link, err)
		}
	}
}
