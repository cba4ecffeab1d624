package boot

import (
	"crypto/rand"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestSentryUser: nobody's, always the same, and hardly ever shared.
func TestSentryUser(t *testing.T) {
	seen := map[int]bool{}
	const n, last = 500, 1_862_000_000 // gates' first
	for range n {
		id, err := sandbox.NewID(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		uid := sentryUser(id)
		if uid < firstSentry || uid >= firstSentry+sentryCount || uid != sentryUser(id) {
			t.Fatalf("user of %s: %d", id, uid)
		}
		seen[uid] = true
	}
	if len(seen) < n-5 || firstSentry+sentryCount > last {
		t.Errorf("%d sandboxes have %d users, up to %d", n, len(seen), firstSentry+sentryCount)
	}
}

// TestAsRootMade: without root the flag stays, and no other one goes.
func TestAsRootMade(t *testing.T) {
	args := []string{gvisor.RoleSentry, "--rootless=true", "--root=/b", "boot", "x"}
	for _, tt := range []struct {
		name, ids string
		want      []string
	}{
		{"root", "     65534 1860200001          1\n", []string{gvisor.RoleSentry, "--root=/b", "boot", "x"}},
		{"rootless", "     65534          0          1\n", args},
		{"unknown", "", args},
	} {
		if got := asRootMade(args, tt.ids); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
