package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// cycles is how often a sandbox is made and removed: CARBOY_CYCLES, which make test-long
// sets, or few.
func cycles(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CARBOY_CYCLES")
	if text == "" {
		return 8
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("CARBOY_CYCLES is %q: want a number of cycles", text)
	}
	return n
}

// Sandboxes that come, work and go leave nothing of any kind.
func TestCreateAndDestroy(t *testing.T) {
	n := cycles(t)
	kinds := [][]string{
		nil,
		{"--workspace", "ws"},
		{"--memory", "256m", "--pids", "50", "--disk", "64m"},
		{"--read-only", "--workspace", "ws:rw", "--mount", "shown:/workspace/a/b:ro"},
	}
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		if err := errors.Join(os.Mkdir(h.dir+"/ws", 0o755), os.Mkdir(h.dir+"/shown", 0o755)); err != nil {
			t.Fatal(err)
		}
		kept := h.create("--isolation", wall)
		cycle := func(n int) (took []time.Duration) {
			for i := range n {
				start := time.Now()
				args := append([]string{"--isolation", wall, "--name", fmt.Sprintf("cycle-%d", i)}, kinds[i%len(kinds)]...)
				name := h.create(args...)
				h.ok("exec", name, "--", "sh", "-c", "echo x > /workspace/f; (sleep 1000 &)")
				if i%2 == 0 {
					h.ok("stop", name)
				}
				h.ok("rm", "-f", name)
				took = append(took, time.Since(start))
			}
			return took
		}
		cycle(2 * len(kinds)) // what the first ones make is kept for all
		before := h.counts()
		took := cycle(n)
		after := h.settled(before)
		slices.Sort(took)
		t.Logf("%d cycles behind %s: median %v, from %v to %v", n, wall, took[n/2], took[0], took[n-1])
		for _, what := range slices.Sorted(maps.Keys(before)) {
			t.Logf("%-20s %5d before %5d after", what, before[what], after[what])
			if after[what] > before[what] {
				t.Errorf("%s: %d before, %d after %d cycles", what, before[what], after[what], n)
			}
		}
		// A thread that stays where a sandbox was made keeps its disk.
		until(t, func() bool { return len(h.daemonMountNamespaces()) == 1 })
		h.ok("exec", kept, "--", "true")
	})
}

// settled is what is left once nothing is on its way out any more.
func (h *home) settled(before map[string]int) map[string]int {
	h.t.Helper()
	var now map[string]int
	patience.Until(15*time.Second, func() bool {
		now = h.counts()
		for what, n := range now {
			if n > before[what] {
				return false
			}
		}
		return true
	})
	return now
}
