// Package long tells tests how much a run has time for. make test does some of each kind;
// make test-long, which is run before a release, does all of it. It refuses nothing: what a
// test leaves out of a short run, the test chooses.
package long

import (
	"os"
	"testing"
	"time"
)

// On reports whether this run is make test-long, which sets CARBOY_LONG.
func On() bool { return os.Getenv("CARBOY_LONG") != "" }

// Only skips a test that make test has no time for. Why ends the sentence.
func Only(t testing.TB, why string) {
	t.Helper()
	if !On() {
		t.Skip("make test-long runs it: " + why)
	}
}

// Rounds returns how often to do what can be done any number of times.
func Rounds[N ~int | ~int64](few, many N) N {
	if On() {
		return many
	}
	return few
}

// Fresh reports whether one of the checks that a case makes is in none of the cases before it,
// which seen has. In make test-long every case is fresh.
func Fresh(seen map[string]bool, checks ...string) bool {
	fresh := On()
	for _, c := range checks {
		fresh = fresh || !seen[c]
		seen[c] = true
	}
	return fresh
}

// Moments returns points in time to interrupt something at: many, step apart from 0 on,
// or few that cover the same stretch. Few is two or more.
func Moments(few, many int, step time.Duration) []time.Duration {
	n := Rounds(few, many)
	last := time.Duration(many-1) * step
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = last * time.Duration(i) / time.Duration(n-1)
	}
	return at
}
