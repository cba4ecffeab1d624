package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

var when = time.Unix(1_700_000_000, 123_456_789)

// item is what a test wants of a path.
type item struct {
	Mode fs.FileMode
	Text string // content, or a link's target
	Mod  time.Time
}

// snapshot describes what is below dir. Times of directories made in passing
// are left to the tests that want them.
func snapshot(t *testing.T, dir string) map[string]item {
	t.Helper()
	got := make(map[string]item)
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		it := item{Mode: st.Mode(), Mod: st.ModTime()}
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			it.Text = string(b)
		case st.Mode()&fs.ModeSymlink != 0:
			if it.Text, err = os.Readlink(p); err != nil {
				return err
			}
		}
		rel, _ := filepath.Rel(dir, p)
		got[rel] = it
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, p, text string, mode fs.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, []byte(text), 0o600))
	must(t, os.Chmod(p, mode))
	must(t, os.Chtimes(p, when, when))
}

func TestRoundTrip(t *testing.T) {
	src := filepath.Join(t.TempDir(), "tree")
	long := strings.Repeat("long-", 40)
	write(t, filepath.Join(src, "plain"), "hello", 0o644)
	write(t, filepath.Join(src, "sub/run"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(src, "sub/empty"), "", 0o600)
	write(t, filepath.Join(src, "new\nline"), "n", 0o644)
	write(t, filepath.Join(src, "bad\xff\xfeutf8"), "b", 0o644)
	write(t, filepath.Join(src, long, long, long, "deep"), "d", 0o444)
	must(t, os.Symlink("/nowhere/at all", filepath.Join(src, "dangling")))
	must(t, os.Link(filepath.Join(src, "plain"), filepath.Join(src, "sub/second")))
	must(t, os.Mkdir(filepath.Join(src, "closed"), 0o555))
	write(t, filepath.Join(src, "sticky/x"), "", 0o644)
	must(t, os.Chmod(filepath.Join(src, "sticky"), 0o777|fs.ModeSticky))
	for _, d := range []string{"sub", "closed", "sticky", long, long + "/" + long, long + "/" + long + "/" + long} {
		must(t, os.Chtimes(filepath.Join(src, d), when, when))
	}
	var buf bytes.Buffer
	made, err := archive.Create(t.Context(), &buf, src, archive.CreateOptions{})
	must(t, err)
	dst := t.TempDir()
	took, err := archive.Extract(t.Context(), &buf, dst, archive.ExtractOptions{})
	must(t, err)
	if diff := cmp.Diff(made, took); diff != "" {
		t.Errorf("results differ (-created +extracted):\n%s", diff)
	}
	want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "tree"))
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		return strings.Contains(p.GoString(), `["dangling"].Mod`)
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("tree mismatch (-want +got):\n%s", diff)
	}
	a, _ := os.Stat(filepath.Join(dst, "tree/plain"))
	b, _ := os.Stat(filepath.Join(dst, "tree/sub/second"))
	if !os.SameFile(a, b) {
		t.Error("the hard link became two files")
	}
}

func TestCreateSkips(t *testing.T) {
	src := filepath.Join(t.TempDir(), "t")
	write(t, filepath.Join(src, "ok"), "x", 0o644)
	write(t, filepath.Join(src, "suid"), "x", 0o755|fs.ModeSetuid)
	must(t, syscall.Mkfifo(filepath.Join(src, "fifo"), 0o644))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(src, "sock")}))
	if err := unix.Mknod(filepath.Join(src, "null"), unix.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Skip("no device can be made: ", err)
	}

	var buf bytes.Buffer
	res, err := archive.Create(t.Context(), &buf, src, archive.CreateOptions{})
	must(t, err)
	want := archive.Result{Entries: 3, Bytes: 2, Skipped: []archive.Skip{
		{Name: "t/fifo", Reason: "fifo"},
		{Name: "t/null", Reason: "device"},
		{Name: "t/sock", Reason: "socket"},
		{Name: "t/suid", Reason: "set-id bits dropped"},
	}}
	if diff := cmp.Diff(want, res); diff != "" {
		t.Errorf("result mismatch (-want +got):\n%s", diff)
	}
	if _, err := archive.Create(t.Context(), io.Discard, filepath.Join(src, "fifo"), archive.CreateOptions{}); err == nil {
		t.Error("Create of a fifo succeeded")
	}
}

func TestCreateFollow(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "real"), "x", 0o644)
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	for _, follow := range []bool{false, true} {
		var buf bytes.Buffer
		_, err := archive.Create(t.Context(), &buf, filepath.Join(dir, "link"), archive.CreateOptions{Follow: follow})
		must(t, err)
		h, err := tar.NewReader(&buf).Next()
		must(t, err)
		want := byte(tar.TypeSymlink)
		if follow {
			want = tar.TypeReg
		}
		if h.Name != "link" || h.Typeflag != want {
			t.Errorf("follow %v: %q of type %c, want %q of type %c", follow, h.Name, h.Typeflag, "link", want)
		}
	}
}

func TestCreateDeepTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "deep")
	must(t, os.Mkdir(top, 0o755))
	fd, err := unix.Open(top, unix.O_DIRECTORY, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	res, err := archive.Create(t.Context(), io.Discard, top, archive.CreateOptions{})
	must(t, err)
	if res.Entries != 513 || len(res.Skipped) != 1 {
		t.Errorf("%d entries and %d skipped, want 513 and 1", res.Entries, len(res.Skipped))
	}
}

func TestCreateWriteError(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "big"), strings.Repeat("x", 1<<20), 0o644)
	for _, cause := range []error{syscall.EPERM, syscall.EPIPE} {
		_, err := archive.Create(t.Context(), failing{cause}, src, archive.CreateOptions{})
		if !errors.Is(err, cause) {
			t.Errorf("Create = %v, want %v", err, cause)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func BenchmarkCreate(b *testing.B) {
	src := b.TempDir()
	for i := range 1000 {
		write(b, filepath.Join(src, fmt.Sprint(i%20), fmt.Sprint(i)), strings.Repeat("x", 2000), 0o644)
	}
	for b.Loop() {
		if _, err := archive.Create(b.Context(), io.Discard, src, archive.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
