package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a running service, and a workspace of its user.
type world struct {
	t    testing.TB
	root string // the workspace
	url  string
}

// newWorld serves a new directory, with what o has else.
func newWorld(t testing.TB, o tool.Options) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acts as several users: needs root")
	}
	dir, err := os.MkdirTemp("", "carboy-tool-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	root := filepath.Join(dir, "workspace")
	must(t, os.Mkdir(root, 0o755))
	must(t, os.Chown(root, 1000, 1000))

	fs := files.New(files.Options{Lookup: lookup})
	o.Lookup, o.Turn = lookup, fs.Turn
	svc := tool.New(o)
	mux := http.NewServeMux()
	svc.Register(mux)
	fs.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		must(t, errors.Join(svc.Close(), fs.Close()))
	})
	return &world{t, root, srv.URL}
}

func lookup(name string) (account.Account, error) {
	switch name {
	case "user":
		return account.Account{Name: "user", UID: 1000, GID: 1000, Home: "/home/user"}, nil
	case "root":
		return account.Account{Name: "root", Home: "/root"}, nil
	case "denied":
		return account.Account{}, fmt.Errorf("%w: no root here", files.ErrDenied)
	}
	return account.Account{}, fmt.Errorf("user %q: %w", name, account.ErrUnknown)
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

// post calls a tool with a body as it is.
func (w *world) post(ctx context.Context, name, query string, body []byte) (int, []byte, error) {
	u := w.url + tool.Prefix + name + "?root=" + url.QueryEscape(w.root) + query
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// call calls a tool, and returns its result.
func call[R any](w *world, name string, q any) (res R) {
	w.t.Helper()
	body, err := json.Marshal(q)
	must(w.t, err)
	status, b, err := w.post(w.t.Context(), name, "", body)
	must(w.t, err)
	if status != http.StatusOK {
		w.t.Fatalf("%s: status %d: %s", name, status, b)
	}
	must(w.t, json.Unmarshal(b, &res))
	return res
}

func (w *world) read(q tools.ReadRequest) tools.ReadResult {
	w.t.Helper()
	return call[tools.ReadResult](w, tools.ToolRead, q)
}

func (w *world) write(q tools.WriteRequest) tools.WriteResult {
	w.t.Helper()
	return call[tools.WriteResult](w, tools.ToolWrite, q)
}

func (w *world) edit(p, from, to string) tools.EditResult {
	w.t.Helper()
	return call[tools.EditResult](w, tools.ToolEdit, tools.EditRequest{Path: p, OldString: from, NewString: to})
}

func (w *world) glob(pattern, p string) tools.GlobResult {
	w.t.Helper()
	return call[tools.GlobResult](w, tools.ToolGlob, tools.GlobRequest{Pattern: pattern, Path: p})
}

func (w *world) grep(q tools.GrepRequest) tools.GrepResult {
	w.t.Helper()
	return call[tools.GrepResult](w, tools.ToolGrep, q)
}

// wantFailure checks that a tool refused for a reason that its text tells.
func wantFailure(t testing.TB, f tools.Failure, code, part string) {
	t.Helper()
	if f.OK || f.Code != code || !strings.Contains(f.Error, part) {
		t.Errorf("got %+v, want code %s and %q", f, code, part)
	}
}

func wantOK(t testing.TB, f tools.Failure) {
	t.Helper()
	if !f.OK || f.Error != "" || f.Code != "" {
		t.Fatalf("got %+v, want it done", f)
	}
}

const second = time.Second
