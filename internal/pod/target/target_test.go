package target_test

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/pod/target"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// workspace is a tree with links of every kind, seen at /workspace.
func workspace(t *testing.T) (dir string, w *target.Workspace) {
	t.Helper()
	dir = t.TempDir()
	for _, d := range []string{"src/deep", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"to-src": "src", "to-inside": "/workspace/src", "to-host": "/etc", "to-up": "..", "src/to-other": "../other", "dangling": "src/later",
		"loop-a": "loop-b", "loop-b": "loop-a", "to-file": "file", "to-root": "/workspace", "src/far-up": "../../../../../../etc",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := target.Open(dir, "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return dir, w
}

func TestResolve(t *testing.T) {
	_, w := workspace(t)
	for _, tt := range []struct{ path, want string }{ // want begins with "!" for an error, "" for ErrOutside
		{"/workspace", "/workspace"},
		{"/workspace/", "/workspace"},
		{"/workspace/src", "/workspace/src"},
		{"//workspace/./src//deep/", "/workspace/src/deep"},
		{"/workspace/src/../other", "/workspace/other"},
		{"/workspace/to-src/deep", "/workspace/src/deep"},
		{"/workspace/to-inside/deep", "/workspace/src/deep"},
		{"/workspace/to-src/to-other/x", "/workspace/other/x"},
		{"/workspace/to-src/../file", "/workspace/file"},
		{"/workspace/to-root/src", "/workspace/src"},
		{"/workspace/later/x", "/workspace/later/x"}, // not there yet
		{"/workspace/dangling/x", "/workspace/src/later/x"},
		{"/workspace/to-file", "/workspace/file"},
		{"/workspace/../etc", ""},
		{"/workspace/src/../../etc", ""},
		{"/etc", ""},
		{"/", ""},
		{"/workspacex", ""},
		{"/workspace/to-host", ""},
		{"/workspace/to-host/passwd", ""},
		{"/workspace/to-up", ""},
		{"/workspace/src/far-up", ""},
		{"/workspace/later/../../etc", "!is not there"},
		{"/workspace/later/..", "!is not there"},
		{"/workspace/loop-a", "!too many levels of symbolic links"},
		{"/workspace/file/x", "!not a directory"},
		{"workspace/src", "!scope.target must be absolute: workspace/src"},
		{"", "!scope.target must be absolute"},
		{"/workspace/" + strings.Repeat("x", 300), "!file name too long"},
	} {
		got, err := w.Resolve(t.Context(), "", tt.path)
		switch problem, isError := strings.CutPrefix(tt.want, "!"); {
		case isError:
			if err == nil || !strings.Contains(err.Error(), problem) || sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%.60s: %q, %v; want %s", tt.path, got, err, problem)
			}
		case tt.want == "":
			if !errors.Is(err, target.ErrOutside) {
				t.Errorf("%s: %q, %v; want that it leads out", tt.path, got, err)
			}
		case err != nil || got != tt.want:
			t.Errorf("%s: %q, %v; want %q", tt.path, got, err, tt.want)
		}
	}
}

// TestUpFromAllowed is the way past a check of texts: it begins with what is allowed, and leads
// elsewhere. The control: by its text it is within.
func TestUpFromAllowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "allow"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "allow", "link")); err != nil {
		t.Fatal(err)
	}
	w, err := target.Open("/", "/")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	parent, err := scope.Writable(filepath.Join(dir, "allow"))
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []string{filepath.Join(dir, "allow") + strings.Repeat("/..", 20) + "/etc", filepath.Join(dir, "allow", "link")} {
		if !strings.HasPrefix(asked, dir+"/allow/") {
			t.Fatalf("%s: the control says that it is elsewhere anyway", asked)
		}
		got, err := w.Resolve(t.Context(), "", asked)
		if err != nil {
			t.Fatal(err)
		}
		if got != "/etc" || parent.Within(scope.Rule{Target: got, Permission: scope.Write, Recursive: true}, nil) == nil {
			t.Errorf("%s is %s, and is within", asked, got)
		}
	}
}

// TestSwapped: who swaps directories for links meanwhile gets a path of before or of after, and
// never one outside.
func TestSwapped(t *testing.T) {
	dir, w := workspace(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(filepath.Join(dir, "src"), filepath.Join(dir, "gone"))
			_ = os.Symlink("/etc", filepath.Join(dir, "src"))
			_ = os.Remove(filepath.Join(dir, "src"))
			_ = os.Rename(filepath.Join(dir, "gone"), filepath.Join(dir, "src"))
		}
	}()
	for range 3000 {
		got, err := w.Resolve(t.Context(), "", "/workspace/src/deep")
		if err == nil && got != "/workspace/src/deep" {
			t.Errorf("it is %s", got)
			break
		}
	}
	close(stop)
	<-done
}

func TestOpenRefuses(t *testing.T) {
	for _, at := range []string{"", "workspace", "/workspace/", "/a/../b"} {
		if _, err := target.Open(t.TempDir(), at); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", at, err)
		}
	}
	if _, err := target.Open("/nowhere/at/all", "/workspace"); err == nil {
		t.Error("a directory that is not there was opened")
	}
}

// FuzzResolve: what comes out is clean, inside, and resolves to itself.
func FuzzResolve(f *testing.F) {
	for _, p := range []string{"/workspace/to-src/../x", "/workspace/./../workspace/a", "/workspace/dangling/..", "\x00", "/workspace/\xff/.."} {
		f.Add(p)
	}
	dir := f.TempDir()
	for name, to := range map[string]string{"to-src": "src", "out": "/etc", "up": "../..", "dangling": "src/later/x"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		f.Fatal(err)
	}
	w, err := target.Open(dir, "/workspace")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got, err := w.Resolve(t.Context(), "", p)
		if err != nil {
			return
		}
		if path.Clean(got) != got || got != "/workspace" && !strings.HasPrefix(got, "/workspace/") {
			t.Errorf("%q is %q", p, got)
		}
		if again, err := w.Resolve(t.Context(), "", got); err != nil || again != got {
			t.Errorf("%q is %q, which is %q, %v", p, got, again, err)
		}
	})
}
