package tool_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	inside "github.com/carboy-sandbox/carboy/internal/guest/tool"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is the real agent's half, over a workspace of its user.
type world struct {
	*tool.Tools
	t    testing.TB
	root string
}

// newWorld serves a new workspace. Where it is not rootful, nobody in it acts
// as root.
func newWorld(t testing.TB, rootful bool) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acts as several users: needs root")
	}
	dir, err := os.MkdirTemp("", "carboy-tools-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	root := filepath.Join(dir, "workspace")
	must(t, os.Mkdir(root, 0o755))
	must(t, os.Chown(root, 1000, 1000))
	lookup := func(name string) (account.Account, error) {
		switch {
		case name == "user":
			return account.Account{Name: "user", UID: 1000, GID: 1000, Home: "/home/user"}, nil
		case name == "root" && rootful:
			return account.Account{Name: "root", Home: "/root"}, nil
		case name == "root":
			return account.Account{}, fmt.Errorf("%w: this sandbox does not act as root", files.ErrDenied)
		}
		return account.Account{}, fmt.Errorf("user %q: %w", name, account.ErrUnknown)
	}
	fs := files.New(files.Options{Lookup: lookup})
	svc := inside.New(inside.Options{Lookup: lookup, Turn: fs.Turn})
	mux := http.NewServeMux()
	svc.Register(mux)
	fs.Register(mux)
	t.Cleanup(func() { must(t, errors.Join(svc.Close(), fs.Close())) })
	return &world{serve(t, mux, root), t, root}
}

// serve returns Tools whose agent is h.
func serve(t testing.TB, h http.Handler, root string) *tool.Tools {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	native := tool.New(tool.Options{Root: root, Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", strings.TrimPrefix(srv.URL, "http://"))
	}})
	t.Cleanup(native.Close)
	return native
}

func (w *world) path(rel string) string { return filepath.Join(w.root, rel) }

// put writes a file of the user's.
func (w *world) put(rel, text string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.path(rel)), 0o755))
	must(w.t, os.WriteFile(w.path(rel), []byte(text), 0o644))
	for p := w.path(rel); p != w.root; p = filepath.Dir(p) {
		must(w.t, os.Lchown(p, 1000, 1000))
	}
}

func (w *world) text(rel string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(rel))
	must(w.t, err)
	return string(b)
}

func (w *world) gone(rel string) {
	w.t.Helper()
	if _, err := os.Lstat(w.path(rel)); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("%s is still there: %v", rel, err)
	}
}

func wantKind(t testing.TB, err error, kind sandbox.Kind, part string) {
	t.Helper()
	if sandbox.KindOf(err) != kind || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("error %v of kind %q, want %q and %q", err, sandbox.KindOf(err), kind, part)
	}
}

func attachment(name, text string) tools.Attachment {
	return tools.Attachment{Name: name, Data: []byte(text)}
}
