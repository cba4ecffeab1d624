package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// newPlanted makes a box that may write to the directory ws, and beside that
// outside, a directory of the host's with one file, key.
func newPlanted(t *testing.T, wall string) (h *home, box string) {
	t.Helper()
	h = newHome(t)
	for _, dir := range []string{"ws/out", "outside"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(h.dir+"/outside/key", []byte("the host's key"), 0o644); err != nil {
		t.Fatal(err)
	}
	box = h.create("--isolation", wall, "--workspace", "ws:rw")
	h.ok("exec", box, "--", "sh", "-c", "mkdir -p /tmp/tree/out; echo owned | tee /tmp/p /tmp/tree/out/planted >/tmp/tree/out/key")
	return h, box
}

// unharmed reports whether the host's directory is as it was.
func (h *home) unharmed() bool {
	h.t.Helper()
	names, err := os.ReadDir(h.dir + "/outside")
	text, rerr := os.ReadFile(h.dir + "/outside/key")
	return err == nil && rerr == nil && len(names) == 1 && string(text) == "the host's key"
}

// TestCopyThroughPlantedLink copies to and from paths that lead through a link
// which the box made in its workspace: each is refused, and the link named.
func TestCopyThroughPlantedLink(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h, box := newPlanted(t, wall)
		h.ok("exec", box, "--", "sh", "-c", "rmdir out && ln -s "+h.dir+"/outside out && ln -s "+h.dir+"/outside/key file")
		tests := []struct{ from, to, link string }{
			{box + ":/tmp/p", "ws/out/planted", "ws/out"},
			{box + ":/tmp/p", "ws/out", "ws/out"},
			{box + ":/tmp/p", "ws/file", "ws/file"},
			{box + ":/tmp/p", h.dir + "/ws/out/planted", h.dir + "/ws/out"},
			{box + ":/tmp/tree", "ws/out", "ws/out"},
			{box + ":/tmp/tree/.", "ws/out/.", "ws/out"},
			{"ws/out/key", box + ":/tmp/x", "ws/out"},
			{"ws/out/", box + ":/tmp/x", "ws/out"},
			{"ws/out/.", box + ":/tmp/x", "ws/out"},
			{h.dir + "/ws/out/key", box + ":/tmp/x", h.dir + "/ws/out"},
		}
		for _, tt := range tests {
			r := h.run(nil, "cp", tt.from, tt.to)
			if want := "carboy: cp: " + tt.link + " is a link, which is not followed"; r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("cp %s %s: exit code %d, %q, want %q", tt.from, tt.to, r.code, r.stderr, want)
			}
		}
		if r := h.run(nil, "cp", box+":/tmp/tree/.", "ws"); r.code == 0 {
			t.Error("a tree was copied over a link")
		}
		if r := h.run(nil, "exec", box, "--", "ls", "/tmp/x"); r.code == 0 {
			t.Error("something was read")
		}
		if !h.unharmed() {
			t.Error("something was written outside")
		}
		h.ok("cp", box+":/tmp/p", "ws/taken") // the control: without a link
		h.ok("cp", "outside/key", box+":/tmp/x")
	})
}

// exchange has a directory of the workspace and a link that the box made change
// places until stop, and returns their count. It does so on the host, as a box's
// renames do in the end: behind gVisor what a box sees of names that others
// change meanwhile may be stale, and its renames fail.
func (h *home) exchange(t *testing.T, box string) (rounds *atomic.Int64, stop func()) {
	t.Helper()
	h.ok("exec", box, "--", "ln", "-s", h.dir+"/outside", "way")
	rounds = new(atomic.Int64)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, h.dir+"/ws/way", unix.AT_FDCWD, h.dir+"/ws/out", unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchange: %v", err)
				return
			}
			rounds.Add(1)
			runtime.Gosched()
		}
	}()
	return rounds, func() { close(over); <-ended }
}

// TestCopyWhileLinksArePlanted copies both ways while the box has a directory
// and a link change places, a thousand times and more.
func TestCopyWhileLinksArePlanted(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h, box := newPlanted(t, wall)
		if err := os.WriteFile(h.dir+"/ws/out/key", []byte("of the workspace"), 0o666); err != nil {
			t.Fatal(err)
		}
		rounds, stop := h.exchange(t, box)
		copied := 0
		for n := 0; n < 25 || rounds.Load() < 1000; n++ {
			for _, args := range [][2]string{
				{box + ":/tmp/p", "ws/out/planted"},
				{box + ":/tmp/p", "ws/out"},
				{box + ":/tmp/tree/.", "ws"},
				{"ws/out/key", box + ":/tmp/x/"},
				{"ws/out/.", box + ":/tmp/x"},
				{"ws", box + ":/tmp/y"},
			} {
				if h.run(nil, "cp", args[0], args[1]).code == 0 {
					copied++
				}
			}
			if !h.unharmed() {
				t.Fatal("something was written outside")
			}
		}
		if copied == 0 {
			t.Error("nothing could be copied")
		}
		stop()
		if r := h.run(nil, "exec", box, "--", "grep", "-rl", "the host's key", "/tmp"); r.code == 0 {
			t.Errorf("the host's file was read: %s", r.stdout)
		}
		t.Logf("%d copies, %d exchanges", copied, rounds.Load())
	})
}
