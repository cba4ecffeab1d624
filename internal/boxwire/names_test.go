package boxwire_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/boxwire"
)

// Hosts make these names by themselves: they can't change.
func TestNames(t *testing.T) {
	of := box.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 7}
	if got, want := boxwire.KeyPrefix(of), "ws-b956c8cef7c66e28585d87a3-g7-"; got != want {
		t.Errorf("KeyPrefix = %s, want %s", got, want)
	}
	for id, want := range map[string]string{" group/room 1 ": "group-room-1", "a_b.c-d": "a_b.c-d", "-/é/-": "", "": ""} {
		if got := boxwire.CleanID(id); got != want {
			t.Errorf("CleanID(%q) = %q, want %q", id, got, want)
		}
	}
	for name, want := range map[string]bool{"i": true, "a.b_c:d-e": true, "": false, ".a": false, "a b": false, "é": false} {
		if got := boxwire.ValidInstance(name); got != want {
			t.Errorf("ValidInstance(%q) = %v, want %v", name, got, want)
		}
	}
}
