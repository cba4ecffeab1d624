package files_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var octets = http.Header{"Content-Type": {"application/octet-stream"}}

func at(p string) url.Values { return url.Values{"path": {p}} }

func with(h http.Header, kv ...string) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

func gzipped(text string) io.Reader {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return &buf
}

func TestDownload(t *testing.T) {
	g := newGuest(t)
	g.put("file", "0123456789")
	g.put("empty", "")
	g.put("bad\xff\n", "raw name")
	must(t, os.Symlink("file", g.path("link")))
	must(t, os.Mkdir(g.path("dir"), 0o755))
	must(t, syscall.Mkfifo(g.path("fifo"), 0o666))
	must(t, os.WriteFile(g.path("private"), []byte("x"), 0o600))
	version, err := os.ReadFile("/proc/version")
	must(t, err)
	tests := []struct {
		name   string
		query  url.Values
		header http.Header
		status int
		want   string // the body, or for an error a part of it
	}{
		{name: "whole", query: at("file"), status: 200, want: "0123456789"},
		{name: "signature-is-ignored", query: url.Values{"path": {"file"}, "signature": {"x"}, "signature_expiration": {"1"}}, status: 200, want: "0123456789"},
		{name: "link", query: at("~/link"), status: 200, want: "0123456789"},
		{name: "range", query: at("file"), header: with(nil, "Range", "bytes=2-4"), status: 206, want: "234"},
		{name: "range-at-the-end", query: at("file"), header: with(nil, "Range", "bytes=-3"), status: 206, want: "789"},
		{name: "range-beyond", query: at("file"), header: with(nil, "Range", "bytes=99-"), status: 416, want: ""},
		{name: "empty", query: at("empty"), status: 200, want: ""},
		{name: "any-name", query: at("bad\xff\n"), status: 200, want: "raw name"},
		{name: "made-up-by-the-kernel", query: at("/proc/version"), status: 200, want: string(version)},
		{name: "missing", query: at("missing"), status: 404, want: "does not exist"},
		{name: "no-path", status: 400, want: "is a directory"},
		{name: "directory", query: at("dir"), status: 400, want: "is a directory"},
		{name: "fifo", query: at("fifo"), status: 400, want: "not a regular file"},
		{name: "device", query: at("/dev/zero"), status: 400, want: "not a regular file"},
		{name: "private", query: at("private"), status: 403, want: "permission denied"},
		{name: "private-as-root", query: url.Values{"path": {"private"}, "username": {"root"}}, status: 200, want: "x"},
		{name: "unknown-user", query: url.Values{"path": {"file"}, "username": {"eve"}}, status: 401, want: "eve"},
		{name: "other-home", query: at("~eve/x"), status: 400, want: "home"},
		{name: "nothing-acceptable", query: at("file"), header: with(nil, "Accept-Encoding", "br, identity;q=0"), status: 406, want: "supported: [identity, gzip]"},
		{name: "range-but-gzip-only", query: at("file"), header: with(nil, "Accept-Encoding", "gzip, *;q=0", "Range", "bytes=1-2"), status: 406, want: "range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, got := g.do("GET", "/files", tt.query, tt.header, nil)
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, tt.status, got)
			}
			if resp.StatusCode < 400 && got != tt.want {
				t.Errorf("body %q, want %q", got, tt.want)
			}
			if resp.StatusCode >= 400 && tt.want != "" {
				var e struct {
					Message string `json:"message"`
					Code    int    `json:"code"`
				}
				must(t, json.Unmarshal([]byte(got), &e))
				if e.Code != tt.status || !strings.Contains(e.Message, tt.want) {
					t.Errorf("error %+v, want code %d and %q", e, tt.status, tt.want)
				}
			}
		})
	}
}

func TestDownloadGzip(t *testing.T) {
	g := newGuest(t)
	g.put("file", strings.Repeat("x", 100_000))
	resp, got := g.do("GET", "/files", at("file"), with(nil, "Accept-Encoding", "gzip"), nil)
	if resp.Header.Get("Content-Encoding") != "gzip" || len(got) > 10_000 {
		t.Fatalf("%d bytes, encoding %q", len(got), resp.Header.Get("Content-Encoding"))
	}
	z, err := gzip.NewReader(strings.NewReader(got))
	must(t, err)
	b, err := io.ReadAll(z)
	must(t, err)
	if string(b) != g.text("file") {
		t.Error("content differs")
	}
}

func TestUpload(t *testing.T) {
	g := newGuest(t)
	g.put("old", "a longer content")
	g.put("real", "r")
	must(t, os.Chmod(g.path("old"), 0o640))
	must(t, os.Link(g.path("old"), g.path("old2")))
	must(t, os.Symlink("real", g.path("link")))
	must(t, os.Symlink("made", g.path("dangling")))
	tests := []struct {
		name   string
		path   string
		header http.Header
		body   io.Reader
		check  string // the file to look at; "": path
		want   string
	}{
		{name: "new", path: "a/b/new", body: strings.NewReader("new"), want: "new"},
		{name: "empty", path: "empty", body: strings.NewReader(""), want: ""},
		{name: "in-place", path: "old", body: strings.NewReader("short"), check: "old2", want: "short"},
		{name: "through-a-link", path: "link", body: strings.NewReader("x"), check: "real", want: "x"},
		{name: "through-a-dangling-link", path: "dangling", body: strings.NewReader("y"), check: "made", want: "y"},
		{name: "gzip", path: "z", header: with(octets, "Content-Encoding", "gzip"), body: gzipped("unpacked"), want: "unpacked"},
		{name: "large", path: "large", body: strings.NewReader(strings.Repeat("l", 1<<20)), want: strings.Repeat("l", 1<<20)},
		{name: "any-name", path: "n\n\xff", body: strings.NewReader("n"), want: "n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := octets
			if tt.header != nil {
				h = tt.header
			}
			resp, body := g.do("POST", "/files", at(tt.path), h, tt.body)
			if resp.StatusCode != 200 {
				t.Fatalf("status %d: %s", resp.StatusCode, body)
			}
			var got []map[string]any
			must(t, json.Unmarshal([]byte(body), &got))
			p := strings.ToValidUTF8(g.path(tt.path), "\uFFFD")
			want := []map[string]any{{"path": p, "name": p[strings.LastIndex(p, "/")+1:], "type": "file"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer mismatch (-want +got):\n%s", diff)
			}
			check := tt.check
			if check == "" {
				check = tt.path
			}
			if got := g.text(check); got != tt.want {
				t.Errorf("%s has %.40q, want %.40q", check, got, tt.want)
			}
		})
	}
	var st unix.Stat_t
	must(t, unix.Stat(g.path("a/b/new"), &st))
	if st.Uid != 1000 || st.Gid != 1000 || st.Mode&0o777 != 0o644 {
		t.Errorf("new file is of %d:%d, mode %o", st.Uid, st.Gid, st.Mode&0o777)
	}
	must(t, unix.Stat(g.path("old"), &st))
	if st.Mode&0o777 != 0o640 || st.Nlink != 2 {
		t.Errorf("the old file has mode %o and %d names, want 640 and 2", st.Mode&0o777, st.Nlink)
	}
}

func TestUploadRefuses(t *testing.T) {
	g := newGuest(t)
	g.put("file", "keep")
	must(t, os.Mkdir(g.path("dir"), 0o755))
	must(t, syscall.Mkfifo(g.path("fifo"), 0o666))
	must(t, os.Chmod(g.path("fifo"), 0o666))
	must(t, os.WriteFile(g.path("roots"), []byte("keep"), 0o644))
	tests := []struct {
		name   string
		query  url.Values
		header http.Header
		body   string
		status int
	}{
		{name: "no-path", header: octets, status: 400},
		{name: "directory", query: at("dir"), header: octets, status: 400},
		{name: "fifo", query: at("fifo"), header: octets, status: 400},
		{name: "below-a-file", query: at("file/x"), header: octets, status: 400},
		{name: "roots-file", query: at("roots"), header: octets, status: 403},
		{name: "roots-directory", query: at("/root/x"), header: octets, status: 403},
		{name: "unknown-user", query: url.Values{"path": {"file"}, "username": {"eve"}}, header: octets, status: 401},
		{name: "no-content-type", query: at("file"), status: 400},
		{name: "other-content-type", query: at("file"), header: with(nil, "Content-Type", "text/plain"), status: 400},
		{name: "no-boundary", query: at("file"), header: with(nil, "Content-Type", "multipart/form-data"), status: 400},
		{name: "unknown-encoding", query: at("file"), header: with(octets, "Content-Encoding", "br"), status: 400},
		{name: "not-gzip", query: at("file"), header: with(octets, "Content-Encoding", "gzip"), body: "plain", status: 400},
		{name: "metadata-not-ascii", query: at("file"), header: with(octets, "X-Metadata-A", "\u00e9"), status: 400},
		{name: "metadata-too-much", query: at("file"), header: with(octets, "X-Metadata-A", strings.Repeat("a", 4096)), status: 400},
		{name: "metadata-long-key", query: at("file"), header: with(octets, "X-Metadata-"+strings.Repeat("a", 247), "x"), status: 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := g.do("POST", "/files", tt.query, tt.header, strings.NewReader(tt.body))
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, tt.status, body)
			}
		})
	}
	for _, name := range []string{"file", "roots"} {
		if got := g.text(name); got != "keep" {
			t.Errorf("%s has %q after refused uploads", name, got)
		}
	}
}

// form makes a multipart body of name and content pairs.
func form(t *testing.T, pairs ...string) (http.Header, io.Reader) {
	t.Helper()
	var buf bytes.Buffer
	m := multipart.NewWriter(&buf)
	for i := 0; i < len(pairs); i += 2 {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", fmt.Sprintf(`form-data; name="file"; filename=%q`, pairs[i]))
		w, err := m.CreatePart(h)
		must(t, err)
		_, err = io.WriteString(w, pairs[i+1])
		must(t, err)
	}
	must(t, m.Close())
	return with(nil, "Content-Type", m.FormDataContentType()), &buf
}

func TestUploadForm(t *testing.T) {
	g := newGuest(t)
	h, body := form(t, "a", "1", "sub/b", "2", g.path("c"), "3")
	resp, text := g.do("POST", "/files", nil, h, body)
	if resp.StatusCode != 200 {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	if got := g.text("a") + g.text("sub/b") + g.text("c"); got != "123" {
		t.Errorf("files have %q, want 123", got)
	}
	h, body = form(t, "ignored", "4")
	if resp, text = g.do("POST", "/files", at("named"), h, body); resp.StatusCode != 200 || g.text("named") != "4" {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	h, body = form(t, "d", "1", "./d", "2")
	resp, text = g.do("POST", "/files", nil, h, body)
	if resp.StatusCode != 400 || !strings.Contains(text, g.path("d")) || g.text("d") != "1" {
		t.Errorf("status %d: %s; d has %q", resp.StatusCode, text, g.text("d"))
	}
	h, body = form(t)
	if resp, text = g.do("POST", "/files", nil, h, body); resp.StatusCode != 200 || text != "[]" {
		t.Errorf("an empty form: status %d: %s", resp.StatusCode, text)
	}
}

func TestUploadMetadata(t *testing.T) {
	g := newGuest(t)
	up := func(h http.Header) map[string]string {
		t.Helper()
		resp, body := g.do("POST", "/files", at("f"), h, strings.NewReader("x"))
		if resp.StatusCode != 200 {
			t.Fatalf("status %d: %s", resp.StatusCode, body)
		}
		var got []struct {
			Metadata map[string]string `json:"metadata"`
		}
		must(t, json.Unmarshal([]byte(body), &got))
		return got[0].Metadata
	}
	steps := []struct {
		header http.Header
		want   map[string]string
	}{
		{with(octets, "X-Metadata-Author", "me", "X-Metadata-Use", "test"), map[string]string{"author": "me", "use": "test"}},
		{with(octets, "X-Metadata-Author", "you"), map[string]string{"author": "you"}},
		{octets, nil},
	}
	for i, s := range steps {
		if diff := cmp.Diff(s.want, up(s.header)); diff != "" {
			t.Errorf("step %d mismatch (-want +got):\n%s", i, diff)
		}
	}
}

// cut is a body that breaks off.
type cut struct {
	r io.Reader
}

func (c cut) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err == io.EOF {
		err = fmt.Errorf("the client is gone")
	}
	return n, err
}

// TestUploadCut breaks uploads off: what they made goes, what was there is
// cut short, and no answer calls it written.
func TestUploadCut(t *testing.T) {
	g := newGuest(t)
	g.put("old", "before")
	for _, name := range []string{"new", "old"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/files?path="+name, cut{strings.NewReader(strings.Repeat("n", 1<<20))})
		must(t, err)
		req.Header = octets.Clone()
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			resp.Body.Close()
			t.Errorf("%s: status %d, want a broken connection", name, resp.StatusCode)
		}
	}
	// A gzip body that is cut is answered.
	var z bytes.Buffer
	_, err := io.Copy(&z, gzipped(strings.Repeat("n", 1<<20)))
	must(t, err)
	for name, want := range map[string]string{"new2": "unexpected EOF", "old": "is incomplete"} {
		resp, body := g.do("POST", "/files", at(name), with(octets, "Content-Encoding", "gzip"), bytes.NewReader(z.Bytes()[:z.Len()-20]))
		if resp.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: status %d: %s", name, resp.StatusCode, body)
		}
	}
	g.srv.Close() // returns when no request is under way
	for _, name := range []string{"new", "new2"} {
		if _, err := os.Lstat(g.path(name)); err == nil {
			t.Errorf("half of %s is left", name)
		}
	}
}

func TestUploadNoSpace(t *testing.T) {
	g := newGuest(t)
	must(t, os.Mkdir(g.path("small"), 0o755))
	if err := unix.Mount("tmpfs", g.path("small"), "tmpfs", 0, "size=64k,mode=777"); err != nil {
		t.Skip(err)
	}
	defer func() { must(t, unix.Unmount(g.path("small"), 0)) }()
	resp, body := g.do("POST", "/files", at("small/x"), octets, strings.NewReader(strings.Repeat("x", 1<<20)))
	if resp.StatusCode != 507 || !strings.Contains(body, "not enough disk space") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	if _, err := os.Stat(g.path("small/x")); err == nil {
		t.Error("half a file is left")
	}
}

func TestCompose(t *testing.T) {
	g := newGuest(t)
	compose := func(dst string, src ...string) (int, string) {
		b, err := json.Marshal(map[string]any{"source_paths": src, "destination": dst})
		must(t, err)
		resp, body := g.do("POST", "/files/compose", nil, nil, bytes.NewReader(b))
		return resp.StatusCode, body
	}
	g.put("p1", "one ")
	g.put("p2", "two")
	g.put("out/whole", "old")
	if status, body := compose("out/whole", "p1", "p2", "p1"); status != 200 || !strings.Contains(body, g.path("out/whole")) {
		t.Fatalf("status %d: %s", status, body)
	}
	if got := g.text("out/whole"); got != "one twoone " {
		t.Errorf("composed file has %q", got)
	}
	for _, p := range []string{"p1", "p2"} {
		if _, err := os.Stat(g.path(p)); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
	g.put("p1", "1")
	must(t, os.Mkdir(g.path("dir"), 0o755))
	must(t, os.Link(g.path("p1"), g.path("same")))
	tests := []struct {
		name, dst string
		src       []string
		status    int
	}{
		{"no-sources", "x", nil, 400},
		{"no-destination", "", []string{"p1"}, 400},
		{"missing-source", "x", []string{"p1", "missing"}, 404},
		{"directory", "x", []string{"dir"}, 400},
		{"destination-is-a-source", "./p1", []string{"p1"}, 400},
		{"destination-is-the-same-file", "same", []string{"p1"}, 400},
		{"destination-is-a-directory", "dir", []string{"p1"}, 400},
		{"not-allowed", "/root/x", []string{"p1"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if status, body := compose(tt.dst, tt.src...); status != tt.status {
				t.Errorf("status %d, want %d: %s", status, tt.status, body)
			}
		})
	}
	if got := g.text("p1"); got != "1" {
		t.Errorf("p1 has %q after refused requests", got)
	}
	left, err := os.ReadDir(g.home)
	must(t, err)
	for _, e := range left {
		if strings.HasPrefix(e.Name(), ".carboy-") {
			t.Errorf("%s is left", e.Name())
		}
	}
}
