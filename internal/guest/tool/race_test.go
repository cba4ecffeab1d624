package tool_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

const (
	rounds = 200
	secret = "tenant-b-secret"
)

// newSwap makes a workspace in which a hostile process keeps exchanging the
// directory shared with a link to one that is not below the root, and that the
// user may read and write all the same: only the walk keeps out of it.
func newSwap(t *testing.T) (w *world, outside string) {
	w = newWorld(t, tool.Options{})
	outside = filepath.Join(filepath.Dir(w.root), "other")
	must(t, os.Mkdir(outside, 0o777))
	must(t, os.Chmod(outside, 0o777))
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte(secret), 0o666))
	must(t, os.Chmod(filepath.Join(outside, "f"), 0o666))
	must(t, os.WriteFile(filepath.Join(outside, "tenant-b-only.txt"), []byte(secret), 0o644))
	w.put("shared/f", "mine")
	must(t, os.Symlink(outside, w.path("link")))
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, w.path("shared"), unix.AT_FDCWD, w.path("link"), unix.RENAME_EXCHANGE)
			}
		}
	})
	t.Cleanup(func() { close(stop); done.Wait() })
	return w, outside
}

func touched(t *testing.T, outside string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(outside, "f"))
	if err != nil || string(b) != secret {
		return "the file outside has " + string(b)
	}
	entries, err := os.ReadDir(outside)
	must(t, err)
	if len(entries) != 2 {
		return "something was made or removed outside"
	}
	return ""
}

// attacks go through the path that is being swapped.
var attacks = []struct{ name, tool, body string }{
	{"read", tools.ToolRead, `{"path":"shared/f"}`},
	{"list", tools.ToolRead, `{"path":"shared"}`},
	{"write", tools.ToolWrite, `{"path":"shared/f","content":"attack"}`},
	{"write-new", tools.ToolWrite, `{"path":"shared/new/deep","content":"attack"}`},
	{"edit", tools.ToolEdit, `{"path":"shared/f","old_string":"` + secret + `","new_string":"attack"}`},
	{"glob", tools.ToolGlob, `{"path":"shared","pattern":"*"}`},
	{"glob-above", tools.ToolGlob, `{"pattern":"*"}`},
	{"grep", tools.ToolGrep, `{"path":"shared","pattern":"secret"}`},
	{"grep-above", tools.ToolGrep, `{"pattern":"secret"}`},
	{"clear", "clear", `{"path":"shared/f"}`},
	{"collect", "collect", `{"path":"shared"}`},
}

// TestSwappedAncestor is test_host_workspace_operations_do_not_follow_a_swapped_ancestor.
func TestSwappedAncestor(t *testing.T) {
	for _, a := range attacks {
		t.Run("test_host_workspace_operations_do_not_follow_a_swapped_ancestor/"+a.name, func(t *testing.T) {
			w, outside := newSwap(t)
			for range rounds {
				_, b, err := w.post(t.Context(), a.tool, "", []byte(a.body))
				must(t, err)
				if strings.Contains(string(b), secret) || strings.Contains(string(b), "tenant-b-only") {
					t.Fatalf("it was read: %s", b)
				}
				if got := touched(t, outside); got != "" {
					t.Fatal(got)
				}
			}
		})
	}
}

// TestSwappedAncestorByText is the control: where the path is checked as text
// and then opened by it, as anybody's first try is, the same swap leads out.
func TestSwappedAncestorByText(t *testing.T) {
	w, _ := newSwap(t)
	for range 1000 * rounds {
		real, err := filepath.EvalSymlinks(w.path("shared"))
		if err != nil || !strings.HasPrefix(real, w.root+"/") {
			continue // the check
		}
		if b, err := os.ReadFile(w.path("shared/f")); err == nil && string(b) == secret {
			return
		}
	}
	t.Error("no attack came through: the test sees nothing")
}

// TestRights shows that what is below the root is read with the user's rights:
// root's own file only where root is named.
func TestRights(t *testing.T) {
	w := newWorld(t, tool.Options{})
	must(t, os.WriteFile(w.path("private"), []byte("x"), 0o600))
	for _, tt := range []struct {
		query, want string
		status      int
	}{
		{"", `"code":"denied"`, 200},
		{"&user=root", `"content":"x"`, 200},
		{"&user=eve", "no such user", 401},
		{"&user=denied", "no root here", 403},
		{"&user=user&user=root", "2 times", 400},
		{"&uid=0", "not known", 400},
		{"&root=", "2 times", 400},
	} {
		status, b, err := w.post(t.Context(), tools.ToolRead, tt.query, []byte(`{"path":"private"}`))
		must(t, err)
		if status != tt.status || !strings.Contains(string(b), tt.want) {
			t.Errorf("%q: status %d: %s", tt.query, status, b)
		}
	}
}

// A root that leads through a link is none.
func TestRootThroughALink(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("f", "x")
	link := filepath.Join(filepath.Dir(w.root), "link")
	must(t, os.Symlink(w.root, link))
	wantOK(t, w.read(tools.ReadRequest{Path: "f"}).Failure) // the control
	w.root = link
	wantFailure(t, w.read(tools.ReadRequest{Path: "f"}).Failure, tools.ToolEscapes, "link")
}
