package jail_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// With a pid namespace orphans are init's, and leave no zombies.
func TestOrphansOfInit(t *testing.T) {
	j := start(t, jail.Config{})
	for range 20 {
		sh(t, j, nobody, "(sh -c 'exit 5' & sh -c 'kill -9 $$' &) ; exit 7")
	}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		left := sh(t, j, nobody, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '").out
		if strings.TrimSpace(left) == "0" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("zombies: %s", left)
		}
	}
}
