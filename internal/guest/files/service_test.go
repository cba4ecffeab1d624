package files_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/api/envd/filesystem/filesystemconnect"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
)

// guest is a running service and a home of its user.
type guest struct {
	t    testing.TB
	home string
	url  string
	srv  *httptest.Server
	svc  *files.Service
	fs   filesystemconnect.FilesystemClient
}

func newGuest(t testing.TB, prepare ...func(*files.Service)) *guest {
	t.Helper()
	needRoot(t)
	home := openDir(t)
	must(t, os.Chown(home, 1000, 1000))
	svc := files.New(files.Options{
		Provide: true,
		Lookup: func(name string) (account.Account, error) {
			a := user
			switch name {
			case "user":
			case "root":
				a = root
			default:
				return a, fmt.Errorf("user %q: %w", name, account.ErrUnknown)
			}
			a.Home = home
			return a, nil
		},
	})
	for _, fn := range prepare {
		fn(svc)
	}
	mux := http.NewServeMux()
	svc.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		must(t, svc.Close())
		srv.Close()
	})
	return &guest{t, home, srv.URL, srv, svc, filesystemconnect.NewFilesystemClient(srv.Client(), srv.URL)}
}

func (g *guest) path(elem ...string) string {
	return filepath.Join(append([]string{g.home}, elem...)...)
}

// put writes a file of the user's.
func (g *guest) put(name, text string) {
	g.t.Helper()
	p := g.path(name)
	must(g.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(g.t, os.WriteFile(p, []byte(text), 0o644))
	for q := p; q != g.home; q = filepath.Dir(q) {
		must(g.t, os.Lchown(q, 1000, 1000))
	}
}

func (g *guest) text(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(g.path(name))
	must(g.t, err)
	return string(b)
}

// do sends a request and returns the answer with its body read.
func (g *guest) do(method, route string, query url.Values, header http.Header, body io.Reader) (*http.Response, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+route+"?"+query.Encode(), body)
	must(g.t, err)
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("Accept-Encoding") == "" {
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(g.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(g.t, err)
	return resp, string(b)
}

// as makes a call one of another user.
func as[T any](name string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(name+":")))
	return req
}

func (g *guest) wantCode(err error, want connect.Code) {
	g.t.Helper()
	if got := connect.CodeOf(err); err == nil || got != want {
		g.t.Errorf("error is %v, want code %v", err, want)
	}
}

func TestStat(t *testing.T) {
	g := newGuest(t)
	g.put("file", "hello")
	must(t, os.Symlink("file", g.path("link")))
	must(t, os.Symlink("nothing", g.path("dangling")))
	must(t, os.Symlink("loop", g.path("loop")))
	must(t, os.Mkdir(g.path("dir"), 0o750))
	must(t, syscall.Mkfifo(g.path("fifo"), 0o600))
	must(t, unix.Setxattr(g.path("file"), "user.e2b.note", []byte("n"), 0))
	must(t, unix.Setxattr(g.path("file"), "user.e2b.bad", []byte("\xff"), 0))
	must(t, unix.Setxattr(g.path("file"), "user.other", []byte("o"), 0))
	const (
		file = filesystem.FileType_FILE_TYPE_FILE
		dir  = filesystem.FileType_FILE_TYPE_DIRECTORY
	)
	note := map[string]string{"note": "n"}
	tests := []struct {
		name, path string
		want       *filesystem.EntryInfo
	}{
		{"file", "file", &filesystem.EntryInfo{Type: file, Size: 5, Mode: 0o644, Permissions: "-rw-r--r--", Owner: "1000", Metadata: note}},
		{"directory", "dir", &filesystem.EntryInfo{Type: dir, Mode: 0o750, Permissions: "drwxr-x---", Owner: "root"}},
		{"link", "link", &filesystem.EntryInfo{
			Type: file, Size: 4, Mode: 0o644, Permissions: "Lrwxrwxrwx", Owner: "root",
			SymlinkTarget: new(g.path("file")), Metadata: note,
		}},
		{"dangling", "dangling", &filesystem.EntryInfo{
			Size: 7, Permissions: "Lrwxrwxrwx", Owner: "root", SymlinkTarget: new(g.path("dangling")),
		}},
		{"loop", "loop", &filesystem.EntryInfo{Size: 4, Permissions: "Lrwxrwxrwx", Owner: "root", SymlinkTarget: new(g.path("loop"))}},
		{"fifo", "fifo", &filesystem.EntryInfo{Mode: 0o600, Permissions: "prw-------", Owner: "root"}},
	}
	names, _ := account.LoadNames("/")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := g.fs.Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: tt.path}))
			must(t, err)
			got := resp.Msg.GetEntry()
			if got.GetModifiedTime().AsTime().IsZero() {
				t.Error("no modification time")
			}
			got.ModifiedTime = nil
			if got.GetType() == dir {
				got.Size = 0
			}
			tt.want.Name, tt.want.Path, tt.want.Group = tt.path, g.path(tt.path), "root"
			if tt.want.Owner == "1000" {
				tt.want.Owner, tt.want.Group = names.User(1000), names.Group(1000)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("entry mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLeavesNothing uses everything again and again: no descriptor stays.
func TestLeavesNothing(t *testing.T) {
	g := newGuest(t)
	round := func() {
		g.put("d/e/f", "1")
		must(t, os.Mkdir(g.path("closed"), 0o700))
		w, err := g.fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", Recursive: true}))
		must(t, err)
		for _, name := range []string{"d/new", "d", "closed/x"} {
			g.do("POST", "/files", at(name), octets, strings.NewReader("x"))
			g.do("GET", "/files", at(name), nil, nil)
		}
		_, tarball := g.do("GET", "/carboy/archive", at("d"), nil, nil)
		for _, p := range []string{".", "closed", "missing"} {
			g.do("POST", "/carboy/archive", at(p), nil, strings.NewReader(tarball))
			g.do("POST", "/carboy/archive", at(p), nil, strings.NewReader(tarball[:600]))
			g.do("GET", "/carboy/archive", at(p), nil, nil)
		}
		for _, p := range []string{"d", "closed", "missing", "/"} {
			_, _ = g.fs.ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: p}))
			_, _ = g.fs.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: p}))
		}
		_, err = g.fs.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: w.Msg.GetWatcherId()}))
		must(t, err)
		must(t, os.RemoveAll(g.path("closed")))
	}
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(names)
	}
	round()
	before := open()
	for range 30 {
		round()
	}
	// The connections in use may differ by a few, what leaks by thirties.
	if after := open(); after > before+10 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestStatErrors(t *testing.T) {
	g := newGuest(t)
	g.put("file", "")
	must(t, os.Mkdir(g.path("closed"), 0o700))
	stat := func(req *connect.Request[filesystem.StatRequest]) error {
		_, err := g.fs.Stat(t.Context(), req)
		return err
	}
	g.wantCode(stat(connect.NewRequest(&filesystem.StatRequest{Path: "missing"})), connect.CodeNotFound)
	g.wantCode(stat(connect.NewRequest(&filesystem.StatRequest{Path: "file/x"})), connect.CodeInvalidArgument)
	g.wantCode(stat(connect.NewRequest(&filesystem.StatRequest{Path: "closed/x"})), connect.CodePermissionDenied)
	g.wantCode(stat(connect.NewRequest(&filesystem.StatRequest{Path: "~other/x"})), connect.CodeInvalidArgument)
	g.wantCode(stat(connect.NewRequest(&filesystem.StatRequest{Path: strings.Repeat("a", 300)})), connect.CodeInvalidArgument)
	g.wantCode(stat(as("nobody-such", &filesystem.StatRequest{Path: "file"})), connect.CodeUnauthenticated)
	bad := connect.NewRequest(&filesystem.StatRequest{Path: "file"})
	bad.Header().Set("Authorization", "Basic ?")
	g.wantCode(stat(bad), connect.CodeUnauthenticated)
	// As root the closed directory is open.
	g.wantCode(stat(as("root", &filesystem.StatRequest{Path: "closed/x"})), connect.CodeNotFound)
}

func TestMakeDir(t *testing.T) {
	g := newGuest(t)
	g.put("file", "")
	mk := func(p string) error {
		_, err := g.fs.MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: p}))
		return err
	}
	must(t, mk("a/b/c"))
	for _, p := range []string{"a", "a/b", "a/b/c"} {
		var st unix.Stat_t
		must(t, unix.Stat(g.path(p), &st))
		if st.Uid != 1000 || st.Gid != 1000 || st.Mode&0o7777 != 0o755 {
			t.Errorf("%s is of %d:%d, mode %o", p, st.Uid, st.Gid, st.Mode&0o7777)
		}
	}
	g.wantCode(mk("a/b"), connect.CodeAlreadyExists)
	g.wantCode(mk("file"), connect.CodeInvalidArgument)
	g.wantCode(mk("file/x"), connect.CodeInvalidArgument)
	g.wantCode(mk("/root/x"), connect.CodePermissionDenied)
}

func TestMove(t *testing.T) {
	g := newGuest(t)
	g.put("a", "1")
	g.put("dir/x", "2")
	g.put("old", "old")
	mv := func(from, to string) error {
		_, err := g.fs.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to}))
		return err
	}
	must(t, mv("a", "new/deep/b"))
	if got := g.text("new/deep/b"); got != "1" {
		t.Errorf("moved file has %q", got)
	}
	must(t, mv("new/deep/b", "old"))
	if got := g.text("old"); got != "1" {
		t.Errorf("replaced file has %q", got)
	}
	must(t, mv("dir", "dir2"))
	g.wantCode(mv("missing", "made/for/it"), connect.CodeNotFound)
	if _, err := os.Stat(g.path("made")); err == nil {
		t.Error("a failed move made directories")
	}
	g.wantCode(mv("dir2", "dir2/inside"), connect.CodeInvalidArgument)
	g.wantCode(mv("old", "new/deep"), connect.CodeAlreadyExists)
	g.wantCode(mv("old", "/dev/shm/carboy-moved"), connect.CodeFailedPrecondition)
	must(t, os.Mkdir(g.path("closed"), 0o755))
	g.wantCode(mv("old", "closed/x"), connect.CodePermissionDenied)
}

func TestRemove(t *testing.T) {
	g := newGuest(t)
	g.put("dir/a/b/c", "")
	g.put("dir/d", "")
	g.put("keep", "k")
	must(t, os.Symlink(g.path("keep"), g.path("dir/a/link")))
	must(t, os.Mkdir(g.path("closed"), 0o755))
	must(t, os.WriteFile(g.path("closed/x"), nil, 0o666))
	rm := func(p string) error {
		_, err := g.fs.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: p}))
		return err
	}
	must(t, rm("dir"))
	must(t, rm("dir"))
	must(t, rm("missing/below"))
	if got := g.text("keep"); got != "k" {
		t.Errorf("the target of a removed link has %q", got)
	}
	g.wantCode(rm("/"), connect.CodeInvalidArgument)
	g.wantCode(rm("closed"), connect.CodePermissionDenied)
	g.wantCode(rm("closed/x"), connect.CodePermissionDenied)
	must(t, rm("keep"))
}

func TestRemoveLarge(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "carboy-files-")
	must(t, err)
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o644))
		if i%10 == 0 {
			must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint("dir", i), "sub"), 0o755))
		}
	}
	// Deeper than a path and than descriptors allow.
	fd, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	must(t, err)
	for range 5000 {
		must(t, unix.Mkdirat(fd, "deep", 0o755))
		next, err := unix.Openat(fd, "deep", unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	must(t, files.RemoveAll(t.Context(), dir))
	if _, err := os.Lstat(dir); err == nil {
		t.Error("it is still there")
	}
}

func TestListDir(t *testing.T) {
	g := newGuest(t)
	g.put("d/b/c/x", "1")
	g.put("d/a", "1")
	g.put("d/new\nline", "")
	g.put("d/bad\xff", "")
	must(t, os.Symlink("d", g.path("link")))
	must(t, os.Symlink("b", g.path("d/z")))
	must(t, os.Mkdir(g.path("d/closed"), 0o700))
	must(t, os.Symlink("loop", g.path("loop")))
	list := func(p string, depth uint32) ([]string, error) {
		resp, err := g.fs.ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: p, Depth: depth}))
		if err != nil {
			return nil, err
		}
		var got []string
		for _, e := range resp.Msg.GetEntries() {
			rel, _ := filepath.Rel(g.home, e.GetPath())
			got = append(got, rel)
		}
		return got, nil
	}
	tests := []struct {
		name, path string
		depth      uint32
		want       []string
	}{
		{"default", "d", 0, []string{"d/a", "d/b", "d/bad\uFFFD", "d/closed", "d/new\nline", "d/z"}},
		{"deep", "d", 9, []string{"d/a", "d/b", "d/b/c", "d/b/c/x", "d/bad\uFFFD", "d/closed", "d/new\nline", "d/z"}},
		{"two", "d/b", 2, []string{"d/b/c", "d/b/c/x"}},
		{"through-a-link", "link/b", 1, []string{"link/b/c"}},
		{"a-link", "d/z", 1, []string{"d/z/c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := list(tt.path, tt.depth)
			must(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("list mismatch (-want +got):\n%s", diff)
			}
		})
	}
	for p, want := range map[string]connect.Code{
		"missing": connect.CodeNotFound, "d/a": connect.CodeInvalidArgument,
		"loop": connect.CodeFailedPrecondition, "d/closed": connect.CodePermissionDenied,
	} {
		_, err := list(p, 1)
		g.wantCode(err, want)
	}
}

func TestListDirBound(t *testing.T) {
	g := newGuest(t)
	must(t, os.Mkdir("/dev/shm/carboy-many", 0o755))
	defer os.RemoveAll("/dev/shm/carboy-many")
	fd, err := unix.Open("/dev/shm/carboy-many", unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, os.WriteFile("/dev/shm/carboy-many/first", nil, 0o644))
	for i := range 100_000 {
		must(t, unix.Linkat(fd, "first", fd, fmt.Sprint(i), 0))
	}
	_, err = g.fs.ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: "/dev/shm/carboy-many"}))
	g.wantCode(err, connect.CodeResourceExhausted)
}
