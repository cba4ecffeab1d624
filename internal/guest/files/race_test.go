package files_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
)

const rounds = 100

// swapper is a hostile process of the user's: it keeps exchanging a directory
// of its own with a link to one of root's, under the paths in use.
type swapper struct {
	g      *guest
	secret string
	dir    *os.Root // the user's directory, whatever its name is now
	stop   chan struct{}
	done   sync.WaitGroup
}

// newSwapper makes dir and link in the home: dir/f and dir/x belong to the
// user, link leads to a directory with an f and an x that only root may touch.
func newSwapper(t *testing.T, g *guest) *swapper {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret") // below 0700: not the user's way
	must(t, os.MkdirAll(filepath.Join(secret, "x"), 0o700))
	for _, name := range []string{"f", "x/y"} {
		must(t, os.WriteFile(filepath.Join(secret, name), []byte("SECRET"), 0o600))
	}
	must(t, os.Mkdir(g.path("dir"), 0o755))
	must(t, os.Chown(g.path("dir"), 1000, 1000))
	dir, err := os.OpenRoot(g.path("dir"))
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	s := &swapper{g: g, secret: secret, dir: dir, stop: make(chan struct{})}
	s.fill(t)
	must(t, os.Symlink(secret, g.path("link")))
	s.done.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, g.path("dir"), unix.AT_FDCWD, g.path("link"), unix.RENAME_EXCHANGE)
			}
		}
	})
	t.Cleanup(s.end)
	return s
}

// fill makes the user's directory what it was.
func (s *swapper) fill(t *testing.T) {
	t.Helper()
	must(t, s.dir.MkdirAll("x", 0o755))
	for _, name := range []string{"x", "f", "x/y"} {
		if name != "x" {
			must(t, s.dir.WriteFile(name, []byte("mine"), 0o644))
		}
		must(t, s.dir.Lchown(name, 1000, 1000))
	}
}

func (s *swapper) end() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.done.Wait()
}

// touched says what became of root's files, "" if nothing.
func (s *swapper) touched() string {
	var names []string
	for _, name := range []string{"f", "x/y"} {
		b, err := os.ReadFile(filepath.Join(s.secret, name))
		if err != nil || string(b) != "SECRET" {
			return name + " was changed"
		}
	}
	for _, d := range []string{s.secret, filepath.Join(s.secret, "x")} {
		entries, err := os.ReadDir(d)
		if err != nil {
			return err.Error()
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	if got := strings.Join(names, " "); got != "f x y" {
		return "there are " + got
	}
	return ""
}

// attacks are the operations of the service through the swapped path. Each
// reports what it read, to look for the secret in it.
var attacks = []struct {
	name string
	run  func(t *testing.T, g *guest) string
}{
	{"upload", func(t *testing.T, g *guest) string {
		_, body := g.do("POST", "/files", at("dir/f"), octets, strings.NewReader("attack"))
		return body
	}},
	{"upload-new", func(t *testing.T, g *guest) string {
		_, body := g.do("POST", "/files", at("dir/new/deep"), octets, strings.NewReader("attack"))
		return body
	}},
	{"download", func(t *testing.T, g *guest) string {
		_, body := g.do("GET", "/files", at("dir/f"), nil, nil)
		return body
	}},
	{"remove", func(t *testing.T, g *guest) string {
		_, _ = g.fs.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: "dir/x"}))
		return ""
	}},
	{"move-in", func(t *testing.T, g *guest) string {
		g.put("bait", "attack")
		_, _ = g.fs.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: "bait", Destination: "dir/f"}))
		return ""
	}},
	{"move-out", func(t *testing.T, g *guest) string {
		_, _ = g.fs.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: "dir/f", Destination: "loot"}))
		b, _ := os.ReadFile(g.path("loot"))
		return string(b)
	}},
	{"make-directory", func(t *testing.T, g *guest) string {
		_, _ = g.fs.MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: "dir/made/deep"}))
		return ""
	}},
	{"list", func(t *testing.T, g *guest) string {
		_, _ = g.fs.ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: "dir", Depth: 3}))
		return ""
	}},
	{"compose", func(t *testing.T, g *guest) string {
		_, body := g.do("POST", "/files/compose", nil, nil, strings.NewReader(`{"source_paths":["dir/f"],"destination":"loot","Destination":"other"}`))
		b, _ := os.ReadFile(g.path("loot"))
		return body + string(b)
	}},
	{"archive-out", func(t *testing.T, g *guest) string {
		_, body := g.do("GET", "/carboy/archive", at("dir/f"), nil, nil)
		return body
	}},
	{"archive-in", func(t *testing.T, g *guest) string {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 6, Mode: 0o600})
		_, _ = io.WriteString(w, "attack")
		_ = w.Close()
		_, body := g.do("POST", "/carboy/archive", at("dir"), nil, &buf)
		return body
	}},
}

func TestSwappedLinks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			g := newGuest(t)
			s := newSwapper(t, g)
			for range rounds {
				if got := a.run(t, g); strings.Contains(got, "SECRET") {
					t.Fatal("the secret was read")
				}
				if got := s.touched(); got != "" {
					t.Fatal("root's files: " + got)
				}
				s.fill(t)
			}
		})
	}
}

// TestSwappedLinksAgentRights is the control: with the agent's own rights,
// the same attacks reach root's files.
func TestSwappedLinksAgentRights(t *testing.T) {
	for _, a := range attacks {
		if a.name == "list" {
			continue // names alone are not looked for
		}
		t.Run(a.name, func(t *testing.T) {
			g := newGuest(t, (*files.Service).UseAgentRights)
			s := newSwapper(t, g)
			for range 100 * rounds {
				if strings.Contains(a.run(t, g), "SECRET") || s.touched() != "" {
					return
				}
				s.fill(t)
			}
			t.Error("no attack came through: the test sees nothing")
		})
	}
}

// TestWriteLosesSetID shows that a write is the user's: it takes the set-id
// bit off a file, which one by root would leave.
func TestWriteLosesSetID(t *testing.T) {
	g := newGuest(t)
	g.put("tool", "old")
	must(t, os.Chmod(g.path("tool"), 0o777|os.ModeSetuid))
	resp, body := g.do("POST", "/files", at("tool"), octets, strings.NewReader("new"))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	st, err := os.Stat(g.path("tool"))
	must(t, err)
	if st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("mode is %v", st.Mode())
	}
}
