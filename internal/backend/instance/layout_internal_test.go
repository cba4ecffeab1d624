package instance

import (
	"slices"
	"testing"
)

// TestLocked: where locks hold for others, too, is told from what can only be read, what is the
// instance's own, and views.
func TestLocked(t *testing.T) {
	for _, tt := range []struct {
		workspace string
		want      []string
	}{
		{modeRW, []string{"/workspace", "/mnt/rw"}},
		{modeRO, []string{"/mnt/rw"}},
		{modeCOW, []string{"/mnt/rw"}},
		{modePrivate, []string{"/mnt/rw"}},
	} {
		lay := &Layout{
			Workspace: Dir{Target: "/workspace", Mode: tt.workspace},
			Mounts:    []Dir{{Target: "/mnt/rw", Mode: modeRW}, {Target: "/mnt/ro", Mode: modeRO}, {Target: "/mnt/own", Mode: modeOwn}},
		}
		if got := lay.Locked(); !slices.Equal(got, tt.want) {
			t.Errorf("with a workspace that is %s: %q, want %q", tt.workspace, got, tt.want)
		}
	}
}
