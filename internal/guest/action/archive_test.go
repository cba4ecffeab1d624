package action_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
)

// pack makes a gzipped archive.
func pack(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var raw bytes.Buffer
	zip := gzip.NewWriter(&raw)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		text := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Linkname, h.Size = "", int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

// file is a regular one, whose text is in the place of a link's target.
func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: text}
}

// extract sends an archive as one of size bytes.
func extract(w *world, dir string, size int, raw []byte, half bool) (*action.ExtractReply, error) {
	w.t.Helper()
	line, err := json.Marshal(action.ExtractRequest{Action: action.ExtractArchive, Destination: dir, ArchiveSize: int64(size)})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply[action.ExtractReply](w, w.send(append(append(line, '\n'), raw...), half))
}

func TestExtract(t *testing.T) {
	w := open(t)
	raw := pack(t, file("note.txt", "hello\n"), file("d/e", "x"))
	for _, half := range []bool{false, true} {
		got, err := extract(w, "in/here", len(raw), raw, half)
		if err != nil || got.EntryCount != 2 || got.BytesWritten != 7 || got.Destination != filepath.Join(w.dir, "in/here") {
			t.Fatalf("got %+v, %v", got, err)
		}
		var st unix.Stat_t
		text, err := os.ReadFile(filepath.Join(w.dir, "in/here/note.txt"))
		if serr := unix.Stat(filepath.Join(w.dir, "in/here/d/e"), &st); err != nil || serr != nil || string(text) != "hello\n" || st.Uid != 1000 {
			t.Errorf("%q, %v; %v, uid %d", text, err, serr, st.Uid)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	w := open(t)
	secret := filepath.Join(shared(t), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := pack(t, file("a", strings.Repeat("random enough ", 1000)))
	tests := []struct {
		name, words string
		size        int
		raw         []byte
	}{
		{"size-zero", "archive_size is 0", 0, good},
		{"size-negative", "archive_size is -1", -1, good},
		{"size-huge", "archive_size is", 1 << 40, good},
		{"missing", "is shorter than it says: 0 bytes of 10", 10, nil},
		{"shorter", fmt.Sprintf("is shorter than it says: %d bytes of %d", len(good)-3, len(good)), len(good), good[:len(good)-3]},
		{"longer", "is longer than the", len(good), append(bytes.Clone(good), "more"...)},
		{"says-less", "not a complete tar archive", len(good) - 9, good},
		{"says-more", "not a complete tar archive", len(good) + 4, append(bytes.Clone(good), "more"...)},
		{"no-gzip", "is no gzip", 5, []byte("hello")},
		{"no-tar", "not a complete tar archive", 0, gz(t, []byte("hello"))},
		{"broken-sum", "gzip: invalid checksum", 0, broken(good)},
		{"up", "refused", 0, pack(t, file("../out", "x"))},
		{"absolute", "refused", 0, pack(t, file("/tmp/action-out", "x"))},
		{"through-a-link", "refused", 0, pack(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: filepath.Dir(secret)}, file("l/x", "x"))},
		{"hard-link-out", "refused", 0, pack(t, tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../" + filepath.Base(filepath.Dir(secret)) + "/secret"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			size := tt.size
			if size == 0 && tt.name != "size-zero" {
				size = len(tt.raw)
			}
			_, err := extract(w, "d-"+tt.name, size, tt.raw, true)
			refused(t, err, tt.words)
		})
	}
	// The destination is the user's to choose, within the user's rights.
	if _, err := extract(w, "/root/there", len(good), good, true); err == nil {
		t.Error("the user writes to root's home")
	}
	// What is no file, directory or link is left out, and said.
	raw := pack(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p"}, tar.Header{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 3}, file("s", "x"))
	got, err := extract(w, "special", len(raw), raw, true)
	if err != nil || got.EntryCount != 1 || got.SkippedCount != 2 || len(got.Skipped) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	left, err := os.ReadDir(filepath.Dir(secret))
	if err != nil || len(left) != 1 {
		t.Errorf("outside there are %v, %v", left, err)
	}
	// A body that does not begin with a new line is none.
	_, err = reply[map[string]any](w, w.send([]byte(`{"action":"extract_archive","destination":"x","archive_size":3}abc`), true))
	refused(t, err, "on a new line")
}

// An archive that is cut anywhere is an error, and leaves no half of a file.
func TestCutArchives(t *testing.T) {
	w := open(t)
	raw := pack(t, file("a", "hello"), file("b", "world"))
	for n := range len(raw) {
		if _, err := extract(w, "cut", len(raw), raw[:n], true); err == nil {
			t.Errorf("%d bytes of %d are an archive", n, len(raw))
		}
		for name, want := range map[string]string{"a": "hello", "b": "world"} {
			if text, err := os.ReadFile(filepath.Join(w.dir, "cut", name)); err == nil && string(text) != want {
				t.Errorf("after %d bytes %s has %q", n, name, text)
			}
		}
	}
}

func gz(t testing.TB, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func broken(raw []byte) []byte {
	raw = bytes.Clone(raw)
	raw[len(raw)-8] ^= 1
	return raw
}

// export returns what is at a path as an archive's names and texts.
func export(w *world, p string) (*action.ExportReply, map[string]string, error) {
	w.t.Helper()
	line, err := json.Marshal(action.ExportRequest{Action: action.ExportArchive, Path: p})
	if err != nil {
		w.t.Fatal(err)
	}
	raw := w.send(line, true)
	head, body, _ := bytes.Cut(raw, []byte("\n"))
	got, err := reply[action.ExportReply](w, head)
	if err != nil {
		return nil, nil, err
	}
	if int64(len(body)) != got.ArchiveSize {
		w.t.Errorf("the archive has %d bytes, and says %d", len(body), got.ArchiveSize)
	}
	zip, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	texts := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return got, texts, nil
		}
		text, rerr := io.ReadAll(r)
		if err := errors.Join(err, rerr); err != nil {
			w.t.Fatal(err)
		}
		texts[h.Name] = string(text) + h.Linkname
	}
}

func TestExport(t *testing.T) {
	w := open(t)
	must[action.ExecReply](w, action.ExecRequest{Command: "mkdir -p out/d; echo hello >out/d/f; ln -s d/f out/l; mkfifo out/p; printf x >one; mkdir -m 0 out/closed; touch out/no; chmod 0 out/no"})
	got, texts, err := export(w, "out")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"out/": "", "out/d/": "", "out/d/f": "hello\n", "out/l": "d/f"}
	if fmt.Sprint(texts) != fmt.Sprint(want) || got.ArtifactType != "directory" || got.EntryCount != 4 || got.BytesWritten != 6 ||
		got.SkippedCount != 3 || !slices.ContainsFunc(got.Skipped, func(s string) bool { return s == "out/p: fifo" }) {
		t.Errorf("got %+v with %v, want %v", got, texts, want)
	}
	if got, texts, err := export(w, filepath.Join(w.dir, "one")); err != nil || texts["one"] != "x" || got.ArtifactType != "file" || got.SkippedCount != 0 {
		t.Errorf("a file: %+v, %v, %v", got, texts, err)
	}
	if got, texts, err := export(w, "out/l"); err != nil || texts["l"] != "d/f" || got.ArtifactType != "symlink" {
		t.Errorf("a link: %+v, %v, %v", got, texts, err)
	}
	for p, words := range map[string]string{"": "the path is empty", "missing": "does not exist", "out/p": "neither a file", "/root": "permission denied", "a\x00b": "NUL"} {
		_, _, err := export(w, p)
		refused(t, err, words)
	}
	if names, err := filepath.Glob("/tmp/.archive-*"); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
}

// What was exported can be extracted, and is the same.
func TestExportAndExtract(t *testing.T) {
	w := open(t)
	must[action.ExecReply](w, action.ExecRequest{Command: "mkdir src; cp -r /usr/include/linux/netfilter src/ 2>/dev/null; head -c 100000 /bin/sh >src/sh; ln -s sh src/link; date >src/d"})
	raw := w.send([]byte(`{"action":"export_archive","path":"src"}`), false)
	_, body, _ := bytes.Cut(raw, []byte("\n"))
	if _, err := extract(w, "copy", len(body), body, false); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("diff", "-r", "--no-dereference", filepath.Join(w.dir, "src"), filepath.Join(w.dir, "copy/src")).CombinedOutput(); err != nil {
		t.Errorf("%v: %.500s", err, out)
	}
}
