package cli_test

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
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli"
)

// FuzzFrame holds that no news leaves its line of the terminal.
func FuzzFrame(f *testing.F) {
	f.Add("aaaaaaaaaaaa", "download", int64(1), int64(2), uint32(80))
	f.Add("\x1b[2J", "\n", int64(-5), int64(1)<<62, uint32(0))
	f.Add("", "unpack", int64(1)<<60, int64(1)<<60, uint32(80))
	f.Fuzz(func(t *testing.T, layer, phase string, done, total int64, cols uint32) {
		cols %= 1000
		for _, l := range cli.Frame(cols, 24, api.ImageProgress{Layer: layer, Phase: phase, Done: done, Total: total}) {
			if utf8.RuneCountInString(l) > max(0, int(cols)-1) || strings.ContainsFunc(l, unicode.IsControl) {
				t.Errorf("%q on a terminal of %d columns", l, cols)
			}
		}
	})
}

// TestCredentialsErrorsAreOurs holds that what a helper prints is never shown.
func TestCredentialsErrorsAreOurs(t *testing.T) {
	for _, text := range []string{
		"error getting credentials - err: exit status 1, out: `hunter2`",
		`error getting credentials - err: exec: "docker-credential-x": executable file not found in $PATH, out: ` + "``",
		"hunter2: invalid character",
	} {
		if got := cli.CredentialsErr(errors.New(text)); strings.Contains(got, "hunter2") || got == "" {
			t.Errorf("of %q is told %q", text, got)
		}
	}
}

// packed lists what a packed directory holds.
func packed(t *testing.T, dir string, uid int) (list, left []string) {
	t.Helper()
	var buf bytes.Buffer
	left, err := cli.PackImage(t.Context(), &buf, dir, uid)
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
	if _, err := cli.PackImage(ctx, io.Discard, t.TempDir(), -1); !errors.Is(err, stop) {
		t.Errorf("pack = %v, want the cause", err)
	}
}

func TestFrame(t *testing.T) {
	news := []api.ImageProgress{
		{Phase: "resolve"},
		{Phase: "done"},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 1 << 20, Total: 2 << 20},
		{Layer: "bbbbbbbbbbbb", Phase: "done"},
		{Layer: "cccccccccccc", Phase: "unpack", Done: 3 << 20},
		{Layer: "dddddddddddd", Phase: "evil\x1b[2J"},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 5 << 20, Total: 2 << 20}, // more than there is
	}
	want := []string{
		"aaaaaaaaaaaa  download    [========================]  5 MiB of 2 MiB",
		"cccccccccccc  unpack      3 MiB",
		`dddddddddddd  evil\x1b[2J`,
		"1 layer done",
	}
	if diff := cmp.Diff(want, cli.Frame(100, 30, news...)); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
	var many []api.ImageProgress
	for i := range 100 {
		many = append(many, api.ImageProgress{Layer: fmt.Sprint(i), Phase: "download", Done: 1, Total: 2})
	}
	for _, s := range [][2]uint32{{80, 24}, {20, 5}, {1, 1}, {0, 0}} {
		lines := cli.Frame(s[0], s[1], many...)
		if len(lines) > max(2, int(s[1])-1) {
			t.Errorf("%d lines on a terminal of %d", len(lines), s[1])
		}
		for _, l := range lines {
			if len(l) > max(0, int(s[0])-1) {
				t.Errorf("%q on a terminal of %d columns", l, s[0])
			}
		}
	}
}

// TestPullOnTerminal holds that bars are drawn and taken away, and that Ctrl-C
// ends a pull.
func TestPullOnTerminal(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "image", "pull", "slow:1")
	s.expect("bbbbbbbbbbbb  download    [")
	s.expect("1 layer done")
	s.send("\x03")
	code, rest := s.wait()
	if code == 0 || !strings.Contains(rest, "\r\x1b[J") {
		t.Errorf("exit code %d, and at the end %q, want the bars cleared", code, rest)
	}
	s = onTerminal(t, d, nil, "image", "pull", "--quiet", "debian:12")
	if code, rest := s.wait(); code != 0 || strings.Contains(rest, "\x1b") || !strings.Contains(rest, "debian:12@sha256:") {
		t.Errorf("a quiet pull: exit code %d, %q", code, rest)
	}
}

// TestRunInterruptedWhilePulling holds that Ctrl-C during the pull of a run
// makes no sandbox.
func TestRunInterruptedWhilePulling(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "run", "--image", "slow:1", "--", "true")
	s.expect("bbbbbbbbbbbb")
	s.send("\x03")
	if code, rest := s.wait(); code == 0 || d.count() != 0 {
		t.Errorf("exit code %d, %d sandboxes, %q", code, d.count(), rest)
	}
}
