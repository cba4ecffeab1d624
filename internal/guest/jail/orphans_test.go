package jail_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// With a pid namespace orphans are init's, and leave no zombies.
func TestOrphansOfInit(t *testing.T) {
	j := start(t, jail.Config{})
	for range 20 {
		sh(t, j, nobody, "(sh -c 'exit 5' & sh -c 'kill -9 $$' &) ; exit 7")
	}
	left := ""
	gone := patience.Until(10*time.Second, func() bool {
		left = sh(t, j, nobody, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '").out
		return strings.TrimSpace(left) == "0"
	})
	if !gone {
		t.Fatalf("zombies: %s", left)
	}
}
