package e2e

import (
	"os/exec"
	"testing"
)

// TestE2BPreview has a real browser look at servers inside sandboxes, over each
// wall.
func TestE2BPreview(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make deps")
	}
	for _, wall := range e2bWalls {
		t.Run(wall, func(t *testing.T) {
			t.Parallel()
			s := newE2BServerWith(t, wall, map[string]any{"e2b_public_traffic": true})
			s.env = append(s.env, "CARBOY_CHROMIUM="+chromium)
			s.node(t, "../e2b/preview.mjs", "e2b")
		})
	}
}
