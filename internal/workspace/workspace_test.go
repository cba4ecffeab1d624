package workspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// tree describes files for tests: a path's value is its content; "/" makes a
// directory, "-> x" a symlink, "x! y" an executable with content y, "\x00"
// deletes, "fifo" makes one.
type tree map[string]string

func (tr tree) write(t *testing.T, dir string) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(tr)) {
		put(t, filepath.Join(dir, p), tr[p])
	}
}

func put(t *testing.T, path, what string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	target, isLink := strings.CutPrefix(what, "-> ")
	program, isExec := strings.CutPrefix(what, "x! ")
	switch {
	case what == "\x00":
		must(t, os.RemoveAll(path))
	case what == "/":
		must(t, os.MkdirAll(path, 0o755))
	case what == "fifo":
		must(t, unix.Mkfifo(path, 0o644))
	case isLink:
		if st, err := os.Lstat(path); err == nil && !st.IsDir() {
			must(t, os.Remove(path))
		}
		must(t, os.Symlink(target, path))
	case isExec:
		must(t, os.WriteFile(path, []byte(program), 0o755))
		must(t, os.Chmod(path, 0o755))
	default:
		must(t, os.WriteFile(path, []byte(what), 0o644))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read is the opposite of write.
func read(t *testing.T, dir string) tree {
	t.Helper()
	tr := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		st, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case st.IsDir():
			tr[rel] = "/"
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			tr[rel] = "-> " + target
			return err
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			tr[rel] = string(b)
			if st.Mode()&0o100 != 0 {
				tr[rel] = "x! " + string(b)
			}
			return err
		default:
			tr[rel] = "special"
		}
		return nil
	})
	must(t, err)
	return tr
}

// The times of workspaces in tests: what is written in a test is between.
var (
	past   = time.Now().Add(-time.Hour)
	future = time.Now().Add(24 * time.Hour)
)

// whiteout makes what overlayfs makes of a deletion.
func whiteout(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, unix.Mknod(path, unix.S_IFCHR, 0))
}

func opaque(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o755))
	must(t, unix.Lsetxattr(path, "trusted.overlay.opaque", []byte("y"), 0))
}

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func openBase(t *testing.T, path string) *workspace.Base {
	t.Helper()
	b, err := workspace.OpenBase(path)
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func options(content bool, since time.Time, paths ...string) workspace.Options {
	return workspace.Options{ChangesOptions: sandbox.ChangesOptions{Content: content, Paths: paths}, Since: since}
}

// stream returns the changes in an upper directory.
func stream(t *testing.T, upper string, opts workspace.Options) []byte {
	t.Helper()
	return written(t, workspace.OverlayUpper(openDir(t, upper), nil, nil), opts)
}

// streamFor is stream where reader owns the base.
func streamFor(t *testing.T, reader *rights.Reader, upper string, opts workspace.Options) []byte {
	t.Helper()
	return written(t, workspace.OverlayUpper(openDir(t, upper), nil, reader), opts)
}

// streamOver is stream for a view of base in which something may have been renamed.
func streamOver(t *testing.T, upper, base string, opts workspace.Options) []byte {
	t.Helper()
	return written(t, workspace.OverlayUpper(openDir(t, upper), below(base), nil), opts)
}

func below(base string) *workspace.Below {
	return &workspace.Below{Open: func() (*os.File, error) { return os.Open(base) }}
}

func written(t *testing.T, src workspace.Source, opts workspace.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := workspace.WriteChanges(t.Context(), &b, src, opts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Where no file can be made for contents, the error names the directory, and what to do.
func TestNoSpool(t *testing.T) {
	s := raw(t, header(), end("0"))
	for _, dir := range []string{"/proc", t.TempDir()} {
		set, err := workspace.Load(t.Context(), bytes.NewReader(s), workspace.LoadOptions{SpoolDir: openDir(t, dir), SpoolHint: "elsewhere"})
		if dir != "/proc" {
			must(t, err)
			set.Close()
			continue
		}
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || e.Kind != sandbox.Denied || !strings.HasPrefix(e.Msg, "directory /proc: no file can be made there: ") || e.Hint != "elsewhere" {
			t.Errorf("%s: %#v", dir, err)
		}
	}
}

func compare(t *testing.T, base string, stream []byte, paths ...string) *workspace.Diff {
	t.Helper()
	set, err := workspace.Load(t.Context(), bytes.NewReader(stream), workspace.LoadOptions{SpoolDir: openDir(t, t.TempDir())})
	must(t, err)
	t.Cleanup(func() { set.Close() })
	d, err := workspace.Compare(t.Context(), openBase(t, base), set, workspace.CompareOptions{Paths: paths})
	must(t, err)
	return d
}

// letters lists a diff as "M path", with "*" before what is held.
func letters(items []workspace.Item) []string {
	out := []string{}
	for _, it := range items {
		held := ""
		if it.Held != "" {
			held = "*"
		}
		out = append(out, fmt.Sprintf("%s%s %s", held, it.Class.Letter(), it.Path))
	}
	return out
}

func paths(items []workspace.Item) []string {
	out := []string{}
	for _, it := range items {
		out = append(out, it.Path)
	}
	return out
}

func diff(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// twoDirs returns a base with the given files and an empty upper directory.
func twoDirs(t *testing.T, base tree) (string, string) {
	t.Helper()
	dir := t.TempDir()
	b, u := filepath.Join(dir, "base"), filepath.Join(dir, "upper")
	must(t, os.Mkdir(b, 0o755))
	must(t, os.Mkdir(u, 0o755))
	base.write(t, b)
	return b, u
}

func apply(t *testing.T, base string, stream []byte, opts workspace.ApplyOptions) (*workspace.Result, error) {
	t.Helper()
	return workspace.Apply(t.Context(), openBase(t, base), bytes.NewReader(stream), opts)
}
