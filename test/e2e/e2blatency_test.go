package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestE2BLatency measures what a user of E2B's SDK waits for, over each wall,
// cold and from the warm pool. It asserts nothing, and runs where
// CARBOY_E2B_ROUNDS says how often: make bench-e2b.
func TestE2BLatency(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("CARBOY_E2B_ROUNDS"))
	if err != nil || rounds < 1 {
		t.Skip("CARBOY_E2B_ROUNDS says how often: make bench-e2b")
	}
	for _, wall := range e2bWalls {
		for _, pool := range []int{0, 2} {
			name := wall + " cold"
			if pool > 0 {
				name = wall + " from the pool"
			}
			t.Run(name, func(t *testing.T) {
				s := newE2BServerWith(t, wall, map[string]any{"pool": pool})
				cmd := exec.CommandContext(t.Context(), "node", "latency.mjs")
				cmd.Dir = filepath.Join("..", "e2b")
				cmd.Env = append(s.env, "CARBOY_ROUNDS="+strconv.Itoa(rounds), "CARBOY_PAUSE_MS=1000")
				var out, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &stderr
				if err := s.h.start(cmd); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					t.Fatalf("%v\n%s", err, stderr.Bytes())
				}
				reportLatency(t, out.Bytes())
			})
		}
	}
}

// reportLatency prints the median of each, the fastest and the slowest.
func reportLatency(t *testing.T, raw []byte) {
	t.Helper()
	var took map[string][]float64
	if err := json.Unmarshal(raw, &took); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	names := make([]string, 0, len(took))
	for name := range took {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		ms := took[name]
		slices.Sort(ms)
		t.Logf("%-26s median %7.1f ms, from %7.1f to %7.1f, n = %d", name, ms[len(ms)/2], ms[0], ms[len(ms)-1], len(ms))
	}
}
