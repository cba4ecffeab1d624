package long_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

func TestRun(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name, set string
		on        bool
		rounds    int
		moments   []time.Duration
	}{
		{"short", "", false, 2, []time.Duration{0, 30 * ms}},
		{"long", "1", true, 20, []time.Duration{0, 10 * ms, 20 * ms, 30 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CARBOY_LONG", tt.set)
			if long.On() != tt.on || long.Rounds(2, 20) != tt.rounds {
				t.Errorf("on %v, %d rounds", long.On(), long.Rounds(2, 20))
			}
			if got := long.Moments(2, 4, 10*ms); !slices.Equal(got, tt.moments) {
				t.Errorf("got %v, want %v", got, tt.moments)
			}
			seen := map[string]bool{}
			if first, again, other := long.Fresh(seen, "a", "b"), long.Fresh(seen, "b"), long.Fresh(seen, "b", "c"); !first || again != tt.on || !other {
				t.Errorf("fresh: %v, again %v, with another %v", first, again, other)
			}
			left := t.Run("only", func(t *testing.T) { long.Only(t, "it takes a day") })
			if !left {
				t.Error("it failed instead of being left out")
			}
		})
	}
}
