package files_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
)

// owned says whose a file is, and its mode.
func owned(t *testing.T, p string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(p, &st))
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
}

// What a request's user may not make is made for that user, as by envd: new
// things alone, where that user can look, and through no link.
func TestProvided(t *testing.T) {
	g := newGuest(t)
	must(t, os.Mkdir(g.path("roots"), 0o755))
	must(t, os.Mkdir(g.path("closed"), 0o700))
	must(t, os.Mkdir(g.path("anothers"), 0o755))
	must(t, os.Chown(g.path("anothers"), 1001, 1001))
	must(t, os.Symlink("roots", g.path("link")))
	must(t, os.WriteFile(g.path("roots/there"), []byte("keep"), 0o644))
	g.put("mine", "moved")
	put := func(p string) int {
		resp, _ := g.do("POST", "/files", at(p), octets, strings.NewReader("text"))
		return resp.StatusCode
	}
	if got := put("roots/file"); got != 200 || g.text("roots/file") != "text" || owned(t, g.path("roots/file")) != "1000:1000 644" {
		t.Errorf("a file where root alone may write: %d", got)
	}
	if got := put("roots/a/b/file"); got != 200 || g.text("roots/a/b/file") != "text" {
		t.Errorf("a file in new directories there: %d", got)
	}
	_, err := g.fs.MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: "roots/dir/sub"}))
	must(t, err)
	_, err = g.fs.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: "mine", Destination: "roots/moved/mine"}))
	must(t, err)
	for _, p := range []string{"roots/a", "roots/a/b", "roots/dir", "roots/dir/sub", "roots/moved"} {
		if got := owned(t, g.path(p)); got != "1000:1000 755" {
			t.Errorf("%s is %s, want its user's", p, got)
		}
	}
	for _, p := range []string{"roots/there", "closed/x", "closed/d/x", "link/x", "link/d/x", "anothers/x", "anothers/d/x"} {
		if got := put(p); got != 403 {
			t.Errorf("%s: %d, want 403", p, got)
		}
	}
	if g.text("roots/there") != "keep" || owned(t, g.path("roots")) != "0:0 755" {
		t.Error("what was there is changed")
	}
	for _, p := range []string{"closed/x", "closed/d", "roots/x", "roots/d", "anothers/x", "anothers/d"} {
		if _, err := os.Lstat(g.path(p)); err == nil {
			t.Errorf("%s was made", p)
		}
	}
}

// Nothing is made behind a link that takes a directory's place while requests
// go there.
func TestProvidedRace(t *testing.T) {
	g := newGuest(t)
	for _, name := range []string{"roots", "target"} {
		must(t, os.Mkdir(g.path(name), 0o755))
	}
	must(t, os.Symlink("target", g.path("link")))
	must(t, os.Lchown(g.path("link"), 1000, 1000))
	done, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, g.path("roots"), unix.AT_FDCWD, g.path("link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	took := 0
	for i := range 1000 {
		resp, _ := g.do("POST", "/files", at(fmt.Sprintf("roots/%d", i)), octets, strings.NewReader("x"))
		if resp.StatusCode == 200 {
			took++
		}
	}
	close(done)
	<-swapped
	if took == 0 {
		t.Error("no request came through: nothing was raced with")
	}
	if made, err := os.ReadDir(g.path("target")); err != nil || len(made) > 0 {
		t.Errorf("%d files were made behind the link (%v), of %d", len(made), err, took)
	}
}

// A file that was provided, and did not come whole, is removed again.
func TestProvidedIsWithdrawn(t *testing.T) {
	g := newGuest(t)
	must(t, os.Mkdir(g.path("roots"), 0o755))
	broken := io.MultiReader(strings.NewReader("some"), errorReader{})
	req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/files?path="+g.path("roots/file"), broken)
	must(t, err)
	req.Header = octets.Clone()
	if resp, err := g.srv.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("status %d for a body that broke off", resp.StatusCode)
	}
	g.srv.CloseClientConnections()
	g.srv.Close() // it waits for the request
	must(t, g.svc.Close())
	if left, err := os.ReadDir(g.path("roots")); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }

// Nothing is provided where that is not asked for, or nobody may act as root.
func TestNothingProvided(t *testing.T) {
	needRoot(t)
	t.Run("not-asked-for", func(t *testing.T) { nothingProvided(t, false, nil) })
	t.Run("no-root", func(t *testing.T) { nothingProvided(t, true, files.ErrDenied) })
}

func nothingProvided(t *testing.T, provide bool, noRoot error) {
	home := openDir(t)
	must(t, os.Chown(home, 1000, 1000))
	must(t, os.Mkdir(filepath.Join(home, "roots"), 0o755))
	svc := files.New(files.Options{Provide: provide, Lookup: func(name string) (account.Account, error) {
		if name == "root" {
			return root, noRoot
		}
		a := user
		a.Home = home
		return a, nil
	}})
	mux := http.NewServeMux()
	svc.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { srv.Close(); must(t, svc.Close()) })
	for _, p := range []string{"roots/file", "roots/dir/file"} {
		resp, err := srv.Client().Post(srv.URL+"/files?path="+p, octets.Get("Content-Type"), strings.NewReader("x"))
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", p, resp.StatusCode)
		}
	}
	if _, err := os.Lstat(filepath.Join(home, "roots/dir")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a directory was made: %v", err)
	}
}
