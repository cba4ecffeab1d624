package files_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/archive"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/test/long"
)

// TestArchiveOfMuchThatIsLeftOut holds that a client of the common kind, which
// reads no more than 4 KiB of trailers, gets to the end.
func TestArchiveOfMuchThatIsLeftOut(t *testing.T) {
	g := newGuest(t)
	g.put("src/a", "1")
	for i := range 300 {
		must(t, syscall.Mkfifo(g.path(fmt.Sprintf("src/%03d-of-many-\u00f6\n", i)), 0o644))
	}
	resp, body := g.do("GET", "/carboy/archive", at("src"), nil, nil)
	if resp.StatusCode != 200 || len(body) == 0 {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	if got := resp.Trailer.Get(files.TrailerEntries) + "/" + resp.Trailer.Get(files.TrailerCount); got != "2/300" {
		t.Errorf("entries/skipped = %s, want 2/300", got)
	}
	var skipped []archive.Skip
	must(t, json.Unmarshal([]byte(resp.Trailer.Get(files.TrailerSkipped)), &skipped))
	if len(skipped) < 20 {
		t.Errorf("only %d are named", len(skipped))
	}
}

func TestArchive(t *testing.T) {
	g := newGuest(t)
	g.put("src/a", "1")
	g.put("src/sub/b\n\xff", "2")
	must(t, os.Symlink("a", g.path("src/link")))
	must(t, syscall.Mkfifo(g.path("src/fif\u00f6\n"), 0o644))
	must(t, os.WriteFile(g.path("src/private"), []byte("x"), 0o600))
	resp, body := g.do("GET", "/carboy/archive", at("src"), nil, nil)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	if got := resp.Trailer.Get(files.TrailerEntries) + "/" + resp.Trailer.Get(files.TrailerCount); got != "5/2" {
		t.Errorf("entries/skipped = %s, want 5/2", got)
	}
	var skipped []archive.Skip
	must(t, json.Unmarshal([]byte(resp.Trailer.Get(files.TrailerSkipped)), &skipped))
	want := []archive.Skip{{Name: "src/fif\u00f6\n", Reason: "fifo"}, {Name: "src/private", Reason: "permission denied"}}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Errorf("skipped mismatch (-want +got):\n%s", diff)
	}

	must(t, os.Mkdir(g.path("dst"), 0o777))
	must(t, os.Chmod(g.path("dst"), 0o777))
	for _, q := range []url.Values{at("dst"), {"path": {"dst/renamed"}, "mode": {"as"}}} {
		resp, answer := g.do("POST", "/carboy/archive", q, nil, strings.NewReader(body))
		var got archive.Result
		must(t, json.Unmarshal([]byte(answer), &got))
		if diff := cmp.Diff(archive.Result{Entries: 5, Bytes: 2, Skipped: []archive.Skip{}}, got); resp.StatusCode != 200 || diff != "" {
			t.Errorf("status %d, result mismatch (-want +got):\n%s", resp.StatusCode, diff)
		}
	}
	for _, top := range []string{"dst/src", "dst/renamed"} {
		if got := g.text(top+"/a") + g.text(top+"/link") + g.text(top+"/sub/b\n\xff"); got != "112" {
			t.Errorf("%s has %q, want 112", top, got)
		}
		var st unix.Stat_t
		must(t, unix.Lstat(g.path(top, "sub"), &st))
		if st.Uid != 1000 || st.Mode&0o777 != 0o755 {
			t.Errorf("%s/sub is of %d with mode %o", top, st.Uid, st.Mode&0o777)
		}
	}
}

func TestArchiveErrors(t *testing.T) {
	g := newGuest(t)
	g.put("file", "1")
	must(t, os.Mkdir(g.path("roots"), 0o755))
	must(t, os.Mkdir(g.path("closed"), 0o700))
	must(t, syscall.Mkfifo(g.path("fifo"), 0o644))
	var evil bytes.Buffer
	w := tar.NewWriter(&evil)
	must(t, w.WriteHeader(&tar.Header{Name: "../x", Typeflag: tar.TypeReg}))
	must(t, w.Close())
	one := tarOf(t, "f", "1")
	tests := []struct {
		name, method string
		query        url.Values
		body         string
		status       int
	}{
		{"get-missing", "GET", at("missing"), "", 404},
		{"get-closed", "GET", at("closed"), "", 403},
		{"get-fifo", "GET", at("fifo"), "", 400},
		{"get-bad-follow", "GET", url.Values{"path": {"file"}, "follow": {"x"}}, "", 400},
		{"head", "HEAD", at("file"), "", 405},
		{"unknown-parameter", "GET", url.Values{"path": {"file"}, "username": {"user"}}, "", 400},
		{"unknown-user", "GET", url.Values{"path": {"file"}, "user": {"eve"}}, "", 401},
		{"post-missing", "POST", at("missing"), one, 404},
		{"post-into-a-file", "POST", at("file"), one, 400},
		{"post-not-allowed", "POST", at("roots"), one, 403},
		{"post-bad-mode", "POST", url.Values{"path": {"."}, "mode": {"x"}}, one, 400},
		{"post-as-the-root", "POST", url.Values{"path": {"/"}, "mode": {"as"}}, one, 400},
		{"post-no-tar", "POST", at("."), strings.Repeat("no tar", 200), 400},
		{"post-nothing", "POST", at("."), "", 400},
		{"post-cut", "POST", at("."), one[:1024], 400},
		{"post-up", "POST", at("."), evil.String(), 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := g.do(tt.method, "/carboy/archive", tt.query, nil, strings.NewReader(tt.body))
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, tt.status, body)
			}
		})
	}
}

func tarOf(t *testing.T, name, text string) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o644}))
	_, err := io.WriteString(w, text)
	must(t, err)
	must(t, w.Close())
	return buf.String()
}

// TestArchiveBreaksOff ends the service's way to the file mid-stream: the
// client must not take what it got for the whole.
func TestArchiveBreaksOff(t *testing.T) {
	g := newGuest(t)
	must(t, os.WriteFile(g.path("big"), nil, 0o644))
	must(t, os.Truncate(g.path("big"), 1<<30))
	req, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/carboy/archive?path=big", nil)
	must(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
	must(t, err)
	g.srv.CloseClientConnections()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ended well")
	}
	if got := resp.Trailer.Get(files.TrailerEntries); got != "" {
		t.Errorf("a broken archive says that it has %s entries", got)
	}
}

// TestHugeSparseFile reads 5 GiB through each way, with bounded memory.
func TestHugeSparseFile(t *testing.T) {
	long.Only(t, "it moves 5 GiB of zeros")
	const size = 5<<30 + 7
	g := newGuest(t)
	dir, err := os.MkdirTemp("", "carboy-huge-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o777))
	src := filepath.Join(dir, "src")
	must(t, os.WriteFile(src, []byte("start"), 0o644))
	must(t, os.Truncate(src, size))
	f, err := os.OpenFile(src, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("end"), size-3)
	must(t, err)
	must(t, f.Close())

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	get := func(route string, check func(io.Reader)) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", g.url+route+"?path="+src, nil)
		must(t, err)
		req.Header.Set("Accept-Encoding", "identity")
		resp, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		defer resp.Body.Close()
		check(resp.Body)
	}
	whole := func(r io.Reader) {
		t.Helper()
		n, err := io.Copy(io.Discard, io.LimitReader(r, size-3))
		must(t, err)
		end, err := io.ReadAll(r)
		must(t, err)
		if n != size-3 || string(end) != "end" {
			t.Errorf("%d bytes and then %.10q", n, end)
		}
	}
	get("/carboy/archive", func(r io.Reader) {
		tr := tar.NewReader(r)
		h, err := tr.Next()
		must(t, err)
		if h.Size != size {
			t.Errorf("size %d in the archive", h.Size)
		}
		whole(tr)
	})
	for unit, want := range map[string]string{"bytes=0-4": "start", "bytes=-3": "end", "bytes=4294967296-4294967297": "\x00\x00"} {
		resp, body := g.do("GET", "/files", at(src), with(nil, "Range", unit), nil)
		if resp.StatusCode != 206 || body != want {
			t.Errorf("%s: status %d: %q", unit, resp.StatusCode, body)
		}
	}
	get("/files", func(r io.Reader) { // the first of it; the size is said in the header
		if b, err := io.ReadAll(io.LimitReader(r, 5)); err != nil || string(b) != "start" {
			t.Errorf("the file starts with %q, %v", b, err)
		}
	})
	runtime.ReadMemStats(&after)
	if used := after.Sys - before.Sys; after.Sys > before.Sys && used > 64<<20 {
		t.Errorf("memory grew by %d MiB", used>>20)
	}
}

// TestHugeUpload writes more than 32 bits count.
func TestHugeUpload(t *testing.T) {
	long.Only(t, "it writes 4 GiB")
	const size = 4<<30 + 7
	g := newGuest(t)
	resp, body := g.do("POST", "/files", at("huge"), octets, io.LimitReader(zeros{}, size))
	if resp.StatusCode != 200 {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	st, err := os.Stat(g.path("huge"))
	must(t, err)
	if st.Size() != size {
		t.Errorf("%d bytes, want %d", st.Size(), int64(size))
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
