package instance

import (
	"slices"
	"testing"
)

// TestSeen: what others see is told from what is the instance's own, or a view.
func TestSeen(t *testing.T) {
	for _, tt := range []struct {
		workspace string
		want      []string
	}{
		{modeRW, []string{"/workspace", "/mnt/rw", "/mnt/ro"}},
		{modeRO, []string{"/workspace", "/mnt/rw", "/mnt/ro"}},
		{modeCOW, []string{"/mnt/rw", "/mnt/ro"}},
		{modePrivate, []string{"/mnt/rw", "/mnt/ro"}},
	} {
		lay := &Layout{
			Workspace: Dir{Target: "/workspace", Mode: tt.workspace},
			Mounts:    []Dir{{Target: "/mnt/rw", Mode: modeRW}, {Target: "/mnt/ro", Mode: modeRO}, {Target: "/mnt/own", Mode: modeOwn}},
		}
		if got := lay.Seen(); !slices.Equal(got, tt.want) {
			t.Errorf("with a workspace that is %s: %q, want %q", tt.workspace, got, tt.want)
		}
	}
}
