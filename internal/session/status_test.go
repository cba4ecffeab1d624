package session_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A wall that this machine does not have is said to be missing, and nothing
// takes its place.
func TestStatusOfAMissingWall(t *testing.T) {
	c := config()
	c.Isolation = sandbox.WallGVisor
	inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
		st, err := d.Status(t.Context(), ann)
		if err != nil || st.Backend.Name != nil || st.Backend.Available ||
			!strings.HasPrefix(st.Backend.Reason, `isolation "gvisor": this machine does not have it (available: process`) {
			t.Errorf("Status = %+v, %v", st.Backend, err)
		}
		_, err = d.Exec(t.Context(), ann, asked("k", "echo x"))
		wantClass(t, "Exec", err, langbot.ClassBackendUnavailable)
	})
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) { // the control
		if b := d.Backend(t.Context()); b.Name == nil || !b.Available || b.Reason != "" {
			t.Errorf("Backend = %+v", b)
		}
	})
}
