package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli/archive"
)

// packed lists what a packed directory holds.
func packed(t *testing.T, dir string, uid int) (list, left []string) {
	t.Helper()
	var buf bytes.Buffer
	left, err := archive.PackImage(t.Context(), &buf, dir, uid)
	if err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(&buf)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return list, left
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%c %s %o %d:%d %s%s", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.Linkname, body)))
	}
}

func TestPackRootDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte("secret"), 0o600))
	must(os.Chmod(dir, 0o755))
	must(os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "bin", "a"), []byte("program"), 0o755))
	must(os.Link(filepath.Join(dir, "bin", "a"), filepath.Join(dir, "bin", "b")))
	must(os.WriteFile(filepath.Join(dir, "bin", "su"), nil, 0o755))
	must(os.Chmod(filepath.Join(dir, "bin", "su"), 0o755|os.ModeSetuid))
	must(os.Symlink(outside, filepath.Join(dir, "link")))
	must(os.Mkdir(filepath.Join(dir, "tmp"), 0o755))
	must(os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky))
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(syscall.Mknod(filepath.Join(dir, "socket"), syscall.S_IFSOCK|0o600, 0))

	me := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	for name, uid := range map[string]int{"as-root": -1, "as-a-user": os.Getuid()} {
		t.Run(name, func(t *testing.T) {
			list, left := packed(t, dir, uid)
			want := []string{
				"5 ./ 755 ID", "5 bin/ 755 ID", "0 bin/a 755 ID program", "1 bin/b 755 ID bin/a", "0 bin/su 755 ID",
				"2 link 777 ID " + outside, "6 pipe 600 ID", "5 tmp/ 1777 ID",
			}
			for i, w := range want {
				id := me
				if uid >= 0 {
					id = "0:0"
				}
				want[i] = strings.Replace(w, "ID", id, 1)
			}
			if diff := cmp.Diff(want, list); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"bin/su: its set-id bit, which has no effect in a sandbox", "socket: it is a device or a socket"}, left); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackLayout(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"oci-layout": "{}", "index.json": "[]", "blobs/sha256/aa": "blob", "other": "not sent"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, left := packed(t, dir, os.Getuid())
	want := []string{"0 oci-layout 644 0:0 {}", "0 index.json 644 0:0 []", "5 blobs/ 755 0:0", "5 blobs/sha256/ 755 0:0", "0 blobs/sha256/aa 644 0:0 blob"}
	if diff := cmp.Diff(want, list); diff != "" || len(left) > 0 {
		t.Errorf("archive, left out %q (-want +got):\n%s", left, diff)
	}
}

// TestPackManyOddFiles holds that what is left out is named, but not without
// bound.
func TestPackManyOddFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		if err := syscall.Mknod(filepath.Join(dir, fmt.Sprintf("s%02d", i)), syscall.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, left := packed(t, dir, -1); len(left) != 21 || left[20] != "10 more" {
		t.Errorf("left out %q", left)
	}
}

func TestPackStops(t *testing.T) {
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := archive.PackImage(ctx, io.Discard, t.TempDir(), -1); !errors.Is(err, stop) {
		t.Errorf("pack = %v, want the cause", err)
	}
}
