package e2e

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// held are the flags of a sandbox that has all that is laid over and mounted
// in a workspace, over trees that newHeld makes.
var held = []string{"--read-only", "--workspace", "ws:ro", "--mount", "shown:/workspace/.mcp/deep/x:ro", "--volume", "vol:/workspace/vol"}

// newHeld makes a home with the trees and the volume of held.
func newHeld(t *testing.T) *home {
	t.Helper()
	h := newHome(t)
	for _, dir := range []string{"ws", "shown"} {
		if err := os.Mkdir(filepath.Join(h.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.dir, dir, "f"), []byte(dir+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.ok("volume", "create", "vol", "--size", "16m")
	return h
}

// A daemon that is killed while it makes such a sandbox, or starts it, leaves
// it whole or nothing of it, and nothing in the trees.
func TestDaemonKilledLayingMounts(t *testing.T) {
	moments := long.Moments(2, 6, 25*time.Millisecond)
	behindEach(t, func(t *testing.T, wall string) {
		h := newHeld(t)
		whole := func(name string) {
			t.Helper()
			got := h.ok("exec", name, "--", "sh", "-c", "cat f .mcp/deep/x/f; touch vol/f && echo volume; touch f /opt/f 2>/dev/null || echo held")
			if got != "ws\nshown\nvolume\nheld\n" {
				t.Errorf("the sandbox has %q", got)
			}
		}
		create := append([]string{"create", "--name", "victim", "--isolation", wall}, held...)
		h.ok(create...) // what the first one makes is kept for all
		whole("victim")
		h.ok("rm", "-f", "victim")
		before := h.counts()
		for _, at := range moments {
			h.cutShort(at, create...)
			for _, sb := range h.list() {
				if sb.State == "stopped" {
					h.ok("start", sb.Name)
				}
				whole(sb.Name)
				h.ok("stop", sb.Name)
				h.cutShort(at*3/5, "start", sb.Name)
				h.run(nil, "start", sb.Name)
				whole(sb.Name)
			}
			h.run(nil, "rm", "-f", "victim")
		}
		after := h.settled(before)
		for _, what := range slices.Sorted(maps.Keys(before)) {
			if after[what] > before[what] {
				t.Errorf("%s: %d before, %d after %d kills", what, before[what], after[what], len(moments))
			}
		}
		for _, dir := range []string{"ws", "shown"} {
			if left, err := os.ReadDir(filepath.Join(h.dir, dir)); len(left) != 1 {
				t.Errorf("%s has %v, %v", dir, left, err)
			}
		}
	})
}

// What the pool keeps warm for a read-only root has one, and is nobody else's.
func TestWarmReadOnlyRoot(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		config := filepath.Join(h.dir, "config/carboy")
		if err := errors.Join(os.MkdirAll(config, 0o700), os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"pool": 1}`), 0o600)); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for _, readOnly := range []bool{true, false} {
				args, want := []string{"--isolation", wall, "--user", "user"}, "rw\n"
				if readOnly {
					args, want = append(args, "--read-only"), "ro\n"
				}
				name := h.create(args...)
				got := h.ok("exec", name, "--", "awk", `$5 == "/" {print substr($6, 1, 2)}`, "/proc/self/mountinfo")
				if got != want {
					t.Errorf("sandbox %d, read-only %t: its root is %q", i, readOnly, got)
				}
				h.ok("rm", "-f", name)
			}
		}
	})
}
