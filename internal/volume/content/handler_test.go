package content_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/volume/content"
)

// rig is a volume's tree in a directory, and beside it what is not the volume's.
type rig struct {
	t    *testing.T
	base string
	dir  string
	h    http.Handler
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files get other owners")
	}
	r := &rig{t: t, base: t.TempDir()}
	r.dir = filepath.Join(r.base, "volume")
	r.must(os.Mkdir(r.dir, 0o777), os.WriteFile(filepath.Join(r.base, "shadow"), []byte("secret"), 0o600))
	h, err := content.HandlerForTest(r.dir, 0)
	r.must(err)
	r.h = h
	return r
}

func (r *rig) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) send(method, op, query string, body io.Reader) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "http://volume"+op+"?"+query, body)
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, req)
	return rec
}

func (r *rig) want(status int, method, op, query, body string) string {
	r.t.Helper()
	rec := r.send(method, op, query, strings.NewReader(body))
	if rec.Code != status {
		r.t.Errorf("%s %s?%s = %d %s, want %d", method, op, query, rec.Code, rec.Body, status)
	}
	return rec.Body.String()
}

func path(p string) string { return "path=" + url.QueryEscape(p) }

type entry struct {
	Name, Type, Path, Target string
	Size                     int64
	Mode, UID, GID           uint32
}

func (r *rig) entry(s string) (e entry) {
	r.t.Helper()
	r.must(json.Unmarshal([]byte(s), &e))
	return e
}

func TestFiles(t *testing.T) {
	r := newRig(t)
	r.want(404, "GET", "/file", path("/a"), "")
	got := r.entry(r.want(201, "PUT", "/file", path("/a"), "hello"))
	if want := (entry{Name: "a", Type: "file", Path: "/a", Size: 5, Mode: 0o666, UID: 1000, GID: 1000}); got != want {
		t.Errorf("written = %+v, want %+v", got, want)
	}
	r.want(409, "PUT", "/file", path("/a"), "other")
	r.want(201, "PUT", "/file", path("/a")+"&force=true&uid=7&gid=8&mode=384", "other")
	got = r.entry(r.want(200, "GET", "/path", path("a"), ""))
	if want := (entry{Name: "a", Type: "file", Path: "/a", Size: 5, Mode: 0o600, UID: 7, GID: 8}); got != want {
		t.Errorf("replaced = %+v, want %+v", got, want)
	}
	if s := r.want(200, "GET", "/file", path("/a"), ""); s != "other" {
		t.Errorf("read %q", s)
	}
	r.want(404, "PUT", "/file", path("/d/e/f"), "x")
	r.want(201, "PUT", "/file", path("/d/e/f")+"&force=true", "x")
	got = r.entry(r.want(200, "GET", "/path", path("/d/e"), ""))
	if got.Mode != 0o777 || got.UID != 1000 {
		t.Errorf("parent = %+v", got)
	}
	r.want(201, "PUT", "/file", path("/empty"), "")
	if s := r.want(200, "GET", "/file", path("/empty"), ""); s != "" {
		t.Errorf("read %q", s)
	}
	r.want(409, "PUT", "/file", path("/d")+"&force=true", "x")
	r.want(409, "PUT", "/file", path("/")+"&force=true", "x")
	r.want(400, "PUT", "/file", path("/a/b")+"&force=true", "x")
	r.want(400, "GET", "/file", path("/d"), "")
	r.noTemporaries()
}

func (r *rig) noTemporaries() {
	r.t.Helper()
	r.must(filepath.WalkDir(r.dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".carboy-upload-") {
			r.t.Errorf("%s was left", p)
		}
		return err
	}))
}

func TestRanges(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/file", path("/a"), "0123456789")
	req := httptest.NewRequest("GET", "http://volume/file?path=/a", nil)
	req.Header.Set("Range", "bytes=2-4")
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, req)
	if rec.Code != 206 || rec.Body.String() != "234" {
		t.Errorf("range = %d %q", rec.Code, rec.Body)
	}
}

// TestBrokenUpload: what did not come whole has changed nothing.
func TestBrokenUpload(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/file", path("/a"), "old")
	for _, p := range []string{"/a", "/b"} {
		broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(io.ErrUnexpectedEOF))
		if rec := r.send("PUT", "/file", path(p)+"&force=true", broken); rec.Code < 400 {
			t.Errorf("a broken upload of %s = %d", p, rec.Code)
		}
	}
	if s := r.want(200, "GET", "/file", path("/a"), ""); s != "old" {
		t.Errorf("after a broken upload: %q", s)
	}
	r.want(404, "GET", "/path", path("/b"), "")
	r.noTemporaries()
}

// TestNamedUpload is the way of file systems in which every file has a name.
func TestNamedUpload(t *testing.T) {
	r := newRig(t)
	h, err := content.HandlerForTest(r.dir, 4)
	r.must(err)
	r.h = h
	r.want(507, "PUT", "/file", path("/a"), "12345")
	r.want(404, "GET", "/path", path("/a"), "")
	r.want(201, "PUT", "/file", path("/a"), "1234")
	r.noTemporaries()
	if err := content.NamedUploadForTest(r.dir, "named", strings.NewReader("x"), false); err != nil {
		t.Error(err)
	}
	if err := content.NamedUploadForTest(r.dir, "named", strings.NewReader("y"), false); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second one = %v", err)
	}
	if err := content.NamedUploadForTest(r.dir, "named", strings.NewReader("z"), true); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(r.dir, "named")); string(b) != "z" {
		t.Errorf("it holds %q", b)
	}
	r.noTemporaries()
}

func TestDirectories(t *testing.T) {
	r := newRig(t)
	r.want(404, "POST", "/dir", path("/a/b/c"), "")
	got := r.entry(r.want(201, "POST", "/dir", path("/a/b/c")+"&force=true&mode=448&uid=5", ""))
	if want := (entry{Name: "c", Type: "directory", Path: "/a/b/c", Size: got.Size, Mode: 0o700, UID: 5, GID: 1000}); got != want {
		t.Errorf("made = %+v, want %+v", got, want)
	}
	r.want(409, "POST", "/dir", path("/a"), "")
	r.want(201, "POST", "/dir", path("/a")+"&force=true", "")
	r.want(409, "POST", "/dir", path("/"), "")
	r.want(201, "POST", "/dir", path("/")+"&force=true", "")
	r.want(201, "PUT", "/file", path("/a/z"), "x")
	r.want(409, "POST", "/dir", path("/a/z")+"&force=true", "")
	for depth, want := range map[string]string{"": "/a", "1": "/a", "0": "/a", "2": "/a /a/b /a/z", "10": "/a /a/b /a/b/c /a/z"} {
		var list []entry
		r.must(json.Unmarshal([]byte(r.want(200, "GET", "/dir", path("/")+"&depth="+depth, "")), &list))
		var names []string
		for _, e := range list {
			names = append(names, e.Path)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("depth %q: %s, want %s", depth, got, want)
		}
	}
	r.want(400, "GET", "/dir", path("/")+"&depth=11", "")
	r.want(400, "GET", "/dir", path("/a/z"), "")
	r.want(404, "GET", "/dir", path("/none"), "")
	r.want(204, "DELETE", "/path", path("/a"), "")
	r.want(404, "DELETE", "/path", path("/a"), "")
	r.want(400, "DELETE", "/path", path("/"), "")
	r.want(400, "DELETE", "/path", path("/.."), "")
}

func TestMetadata(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/file", path("/a"), "x")
	got := r.entry(r.want(200, "PATCH", "/path", path("/a"), `{"mode":448,"uid":9}`))
	if want := (entry{Name: "a", Type: "file", Path: "/a", Size: 1, Mode: 0o700, UID: 9, GID: 1000}); got != want {
		t.Errorf("changed = %+v, want %+v", got, want)
	}
	for _, bad := range []string{`{"mode":2541}`, `{"mode":-1}`, `{"uid":65536}`, `{"gid":65536}`, `{"owner":1}`, `[]`, `{}{}`, ``} {
		r.want(400, "PATCH", "/path", path("/a"), bad)
	}
	for _, bad := range []string{"mode=1024", "mode=x", "uid=65536", "force=1", "uid=1&uid=2", "owner=1"} {
		r.want(400, "PUT", "/file", path("/b")+"&"+bad, "x")
	}
	r.want(400, "GET", "/path", "", "")
	r.want(400, "GET", "/path", path("/a")+"&depth=1", "")
	r.want(400, "GET", "/path", path("/a\x00b"), "")
	r.want(400, "GET", "/path", path(strings.Repeat("a", 5000)), "")
	r.want(400, "GET", "/path", path(strings.Repeat("a", 300)), "")
	r.want(404, "POST", "/file", path("/a"), "")
}

// TestHostileTree: nothing that is outside is read, written or removed by way
// of what a guest can make.
func TestHostileTree(t *testing.T) {
	r := newRig(t)
	in := func(p string) string { return filepath.Join(r.dir, p) }
	r.must(
		os.Mkdir(in("dir"), 0o755), os.WriteFile(in("dir/f"), []byte("inside"), 0o644),
		os.Symlink("../shadow", in("up")), os.Symlink(filepath.Join(r.base, "shadow"), in("absolute")),
		os.Symlink("..", in("dots")), os.Symlink("dir", in("near")), os.Symlink("loop", in("loop")),
		os.Symlink("/proc/self/root", in("magic")),
		unix.Mkfifo(in("fifo"), 0o666), unix.Mknod(in("socket"), unix.S_IFSOCK|0o666, 0),
		unix.Mknod(in("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))),
	)
	for _, p := range []string{"/up", "/absolute", "/dots/shadow", "/magic" + r.base + "/shadow", "/loop", "/fifo", "/socket"} {
		body := r.want(400, "GET", "/file", path(p), "")
		if strings.Contains(body, "secret") {
			t.Errorf("%s: read what is outside", p)
		}
		r.want(400, "PATCH", "/path", path(p), `{"mode":511}`)
	}
	// Without the mount's nodev, too.
	r.want(400, "GET", "/file", path("/device"), "")
	r.want(404, "GET", "/file", path("/../shadow"), "")
	for _, p := range []string{"/dots/new", "/dots/shadow"} {
		r.want(400, "PUT", "/file", path(p)+"&force=true", "mine")
		r.want(400, "POST", "/dir", path(p)+"&force=true", "")
		r.want(400, "DELETE", "/path", path(p), "")
	}
	r.want(400, "GET", "/dir", path("/dots"), "")
	r.want(201, "PUT", "/file", path("/up")+"&force=true", "mine") // the link's own place
	r.want(204, "DELETE", "/path", path("/dots"), "")
	if b, err := os.ReadFile(filepath.Join(r.base, "shadow")); err != nil || string(b) != "secret" {
		t.Errorf("what is outside = %q, %v", b, err)
	}
	if s := r.want(200, "GET", "/file", path("/near/f"), ""); s != "inside" {
		t.Errorf("through a link inside: %q", s)
	}
	if e := r.entry(r.want(200, "GET", "/path", path("/absolute"), "")); e.Type != "symlink" || e.Target != filepath.Join(r.base, "shadow") {
		t.Errorf("a link = %+v", e)
	}
	if e := r.entry(r.want(200, "GET", "/path", path("/fifo"), "")); e.Type != "unknown" {
		t.Errorf("a pipe = %+v", e)
	}
	r.want(200, "GET", "/dir", path("/")+"&depth=10", "")
	for _, p := range []string{"/fifo", "/socket", "/device", "/magic", "/loop", "/dir"} {
		r.want(204, "DELETE", "/path", path(p), "")
	}
}

// TestPlainReadLeaves is the control: whoever reads by the path alone is led out.
func TestPlainReadLeaves(t *testing.T) {
	r := newRig(t)
	r.must(os.Symlink("../shadow", filepath.Join(r.dir, "up")))
	if b, err := os.ReadFile(filepath.Join(r.dir, "up")); err != nil || string(b) != "secret" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestDeepTree(t *testing.T) {
	r := newRig(t)
	fd, err := unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	r.must(err)
	for range 3000 {
		r.must(unix.Mkdirat(fd, "ddddddddddd", 0o755))
		next, err := unix.Openat(fd, "ddddddddddd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		r.must(err, unix.Close(fd))
		fd = next
	}
	r.must(unix.Close(fd))
	r.want(204, "DELETE", "/path", path("/ddddddddddd"), "")
	r.want(404, "GET", "/path", path("/ddddddddddd"), "")
}

func TestCancelledList(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "http://volume/dir?path=/", nil))
	if rec.Code == 200 {
		t.Errorf("a list that nobody waits for = %d", rec.Code)
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "a", "/a/../../b", "..", "//x//", "a\x00", ".", strings.Repeat("/a", 3000), "\xff"} {
		f.Add(s)
	}
	dir := f.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "shadow"), []byte("secret"), 0o600),
		os.MkdirAll(filepath.Join(dir, "volume/a"), 0o755), os.Symlink("../..", filepath.Join(dir, "volume/a/up"))); err != nil {
		f.Fatal(err)
	}
	h, err := content.HandlerForTest(filepath.Join(dir, "volume"), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		rel, err := content.CleanPathForTest(p)
		if err == nil && rel != "." && (strings.HasPrefix(rel, "/") || !filepath.IsLocal(rel)) {
			t.Errorf("%q became %q", p, rel)
		}
		for _, op := range []string{"/file", "/path", "/dir"} {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest("GET", "http://volume"+op+"?path="+url.QueryEscape(p), nil))
			if bytes.Contains(rec.Body.Bytes(), []byte("secret")) {
				t.Errorf("%s of %q shows what is outside", op, p)
			}
		}
	})
}
