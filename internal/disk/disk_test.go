package disk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// imageOf is an image with what is in a directory.
func imageOf(t *testing.T, fill func(dir string) error) string {
	t.Helper()
	dir := t.TempDir()
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fill(tree); err != nil {
		t.Fatal(err)
	}
	mkfs(t, image, 16<<20, "-d", tree)
	return image
}

func write(dir, name, text string) error {
	file := filepath.Join(dir, name)
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
}

// TestOrder: a listing is ordered by whole paths, where a dash comes before a slash.
func TestOrder(t *testing.T) {
	image := imageOf(t, func(dir string) error {
		return errors.Join(write(dir, "src/child.txt", "x"), write(dir, "src-a", "x"), write(dir, "src/child/z", "x"),
			write(dir, "src.d/x", "x"), write(dir, "src0", "x"), os.RemoveAll(filepath.Join(dir, "lost+found")))
	})
	got, err := disk.List(t.Context(), image, "/", true)
	if err != nil {
		t.Fatal(err)
	}
	const want = "/lost+found /src /src-a /src.d /src.d/x /src/child /src/child.txt /src/child/z /src0"
	if paths(got) != want {
		t.Errorf("got  %s\nwant %s", paths(got), want)
	}
	got, err = disk.List(t.Context(), image, "/src/", false)
	if err != nil || paths(got) != "/src/child /src/child.txt" {
		t.Errorf("got %s, %v", paths(got), err)
	}
}

func TestPaths(t *testing.T) {
	image := imageOf(t, func(dir string) error {
		return errors.Join(write(dir, "d/e/f", "x"), os.Symlink("d/e", dir+"/in"), os.Symlink("/d", dir+"/root"), os.Symlink("../../../d", dir+"/above"),
			os.Symlink("round", dir+"/round"), os.Symlink("nowhere", dir+"/dangling"), os.Symlink("in/f", dir+"/file"))
	})
	for _, tt := range []struct {
		name, path, want string
		kind             sandbox.Kind
		said             string
	}{
		{"root", "/", "/above /d /dangling /file /in /lost+found /root /round", "", ""},
		{"slashes", "//d///e/./", "/d/e/f", "", ""},
		{"link-at-the-end", "/in", "/in", "", ""},
		{"link-in-the-middle", "/in/f", "/in/f", "", ""},
		{"absolute-link", "/root/e", "/root/e/f", "", ""},
		{"link-above-the-root", "/above/e", "/above/e/f", "", ""},
		{"cycle", "/round/x", "", sandbox.Invalid, "failed to inspect workspace disk path: /round/x: inode "},
		{"dangling", "/dangling/x", "", sandbox.NotFound, "workspace disk path does not exist: /dangling/x"},
		{"below-a-file", "/d/e/f/g", "", sandbox.NotFound, "workspace disk path does not exist: /d/e/f/g"},
		{"relative", "d", "", sandbox.Invalid, `path "d"`},
		{"upwards", "/d/../d", "", sandbox.Invalid, `path "/d/../d"`},
		{"empty", "", "", sandbox.Invalid, `path ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := disk.List(t.Context(), image, tt.path, false)
			if tt.said != "" {
				wantError(t, err, tt.kind, tt.said)
			} else if err != nil || paths(got) != tt.want {
				t.Errorf("got %s, %v, want %s", paths(got), err, tt.want)
			}
		})
	}
	_, err := disk.Read(t.Context(), image, "/file", 1)
	wantError(t, err, sandbox.Invalid, "regular files")
}

func TestContent(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		max        int64
		want, as   string
	}{
		{"text", "hello", 5, "hello", ""},
		{"nothing", "", 5, "", ""},
		{"whole-characters", "héé", 5, "héé", ""},
		{"character-cut", "héé", 4, "hé", ""},
		{"long-character-cut", "a😀", 4, "a", ""},
		{"only-a-cut-character", "😀", 1, "", ""},
		{"bytes", "a\xffb", 3, "Yf9i", "base64"},
		{"bytes-at-the-bound", "ab\xff", 2, "ab", ""},
		{"cut-by-the-end", "a\xc3", 2, "YcM=", "base64"},
		{"cut-and-no-character", "a\xc3b", 2, "YcM=", "base64"},
		{"stray-byte", "a\x80\x80", 2, "YYA=", "base64"},
		{"bytes-before-a-cut-character", "\xffé", 2, "/8M=", "base64"},
		{"nul", "a\x00b", 3, "a\x00b", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			max := int(min(tt.max, int64(len(tt.text))))
			data := []byte(tt.text)
			if got, as := disk.Content(data, max); got != tt.want || as != tt.as {
				t.Errorf("got %q as %q, want %q as %q", got, as, tt.want, tt.as)
			}
		})
	}
	image := imageOf(t, func(dir string) error { return write(dir, "f", "héé") })
	got, err := disk.Read(t.Context(), image, "/f", 4)
	wantJSON(t, got, err, `{"path": "/f", "size_bytes": 5, "max_bytes": 4, "content": "hé", "truncated": true}`)
	if _, err = disk.Read(t.Context(), image, "/f", disk.MaxRead+1); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("the error is %v", err)
	}
}

func allocated(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

// TestExportHoles: what is a hole in the image is one in the copy.
func TestExportHoles(t *testing.T) {
	dir := t.TempDir()
	image, output := filepath.Join(dir, "image"), filepath.Join(dir, "copy")
	mkfs(t, image, 256<<20)
	var told []int64
	got, err := disk.Export(t.Context(), image, output, func(done, total int64) {
		if told = append(told, done); total != 256<<20 {
			t.Errorf("a total of %d", total)
		}
	})
	if err != nil || got.BytesWritten != 256<<20 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if out, err := exec.CommandContext(t.Context(), "cmp", image, output).CombinedOutput(); err != nil {
		t.Errorf("the copy differs: %s", out)
	}
	if from, to := allocated(t, image), allocated(t, output); to > from+1<<20 || to > 128<<20 {
		t.Errorf("the copy takes %d bytes, and the image %d", to, from)
	}
	if len(told) == 0 || told[len(told)-1] != 256<<20 {
		t.Errorf("progress was told %v", told)
	}
	if st, err := os.Stat(output); err != nil || st.Mode() != 0o600 {
		t.Errorf("the copy is %v, %v", st, err)
	}
}

// TestExportEnds: an export that ends early leaves nothing, and neither a name that is taken in
// the meantime nor a link is written through.
func TestExportEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		tell func(cancel func(), output string)
		said string
	}{
		{"cancelled", func(cancel func(), _ string) { cancel() }, "context canceled"},
		{"taken-meanwhile", func(_ func(), output string) { _ = os.WriteFile(output, []byte("present\n"), 0o600) }, "output_path already exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			image, dir := seedImage(t), t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			output := filepath.Join(dir, "copy")
			_, err := disk.Export(ctx, image, output, func(_, _ int64) { tt.tell(cancel, output) })
			if err == nil || !strings.Contains(err.Error(), tt.said) {
				t.Errorf("the error is %v", err)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range left {
				if got, err := os.ReadFile(filepath.Join(dir, e.Name())); string(got) != "present\n" {
					t.Errorf("%s is left, %v", e.Name(), err)
				}
			}
		})
	}
	t.Run("a-link-to-nothing", func(t *testing.T) {
		dir := t.TempDir()
		output := filepath.Join(dir, "copy")
		if err := os.Symlink("target", output); err != nil {
			t.Fatal(err)
		}
		_, err := disk.Export(t.Context(), seedImage(t), output, nil)
		wantError(t, err, sandbox.Conflict, "output_path already exists")
		if _, err := os.Lstat(filepath.Join(dir, "target")); err == nil {
			t.Error("the link was written through")
		}
	})
}

// TestNoFile: what is no regular file is refused at once, and a missing image is said to be.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := disk.List(t.Context(), pipe, "/", false)
	wantError(t, err, sandbox.Invalid, "it is no regular file")
	_, err = disk.List(t.Context(), filepath.Join(dir, "missing"), "/", false)
	wantError(t, err, sandbox.NotFound, "no such file")
}

// TestOpenFile: a file is read as a stream, and its holes as zeros.
func TestOpenFile(t *testing.T) {
	want := append(make([]byte, 1<<20), "end"...)
	image := imageOf(t, func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "sparse"))
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("end"), 1<<20)
		return errors.Join(err, f.Close())
	})
	im, err := disk.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	f, err := im.OpenFile("/sparse")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}
