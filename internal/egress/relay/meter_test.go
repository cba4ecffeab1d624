package relay_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

func TestAccountWithoutLimits(t *testing.T) {
	a := relay.NewMeter(nil).Rule("r", policy.Limits{RequestBytes: 1, ResponseBytes: 1})
	if got := a.Take(1 << 40); got != 1<<40 {
		t.Errorf("Take = %d", got)
	}
	if _, ok := a.Begin(); !ok {
		t.Error("Begin was refused")
	}
}

func TestAccountBytes(t *testing.T) {
	m := relay.NewMeter(nil)
	a := m.Rule("r", policy.Limits{Bytes: 100})
	for _, step := range []struct{ ask, want int64 }{{60, 60}, {60, 40}, {1, 0}, {0, 0}, {-5, 0}} {
		if got := a.Take(step.ask); got != step.want {
			t.Errorf("Take(%d) = %d, want %d", step.ask, got, step.want)
		}
	}
	if got := m.Rule("other", policy.Limits{Bytes: 100}).Take(100); got != 100 {
		t.Errorf("another rule had %d left", got)
	}
	// A change of the policy widens or takes away, and forgets nothing.
	if m.Rule("r", policy.Limits{Bytes: 130}).Take(100) != 30 {
		t.Error("after a wider limit: not what is left of it")
	}
	if m.Rule("r", policy.Limits{Bytes: 10}).Take(1) != 0 {
		t.Error("after a narrower limit: more than nothing")
	}
	if m.Rule("r", policy.Limits{}).Take(7) != 7 {
		t.Error("without a limit: refused")
	}
	if m.Rule("r", policy.Limits{Bytes: 137}).Take(1) != 0 {
		t.Error("what passed without a limit was not counted")
	}
}

func TestAccountBytesFromMany(t *testing.T) {
	a := relay.NewMeter(nil).Rule("r", policy.Limits{Bytes: 10_000})
	var (
		wg  sync.WaitGroup
		got atomic.Int64
	)
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				got.Add(a.Take(3))
			}
		})
	}
	wg.Wait()
	if got.Load() != 10_000 {
		t.Errorf("%d bytes were granted", got.Load())
	}
}

func TestAccountRate(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	m := relay.NewMeter(func() time.Time { return now })
	a := m.Rule("r", policy.Limits{RequestsPerMinute: 3})
	begin := func(want bool) time.Duration {
		t.Helper()
		wait, ok := a.Begin()
		if ok != want {
			t.Fatalf("at %s: Begin = %t, want %t", now, ok, want)
		}
		return wait
	}
	begin(true)
	now = now.Add(30 * time.Second)
	begin(true)
	begin(true)
	wait := begin(false)
	if wait < 30*time.Second || wait > 32*time.Second {
		t.Errorf("to wait %s", wait)
	}
	now = now.Add(wait)
	begin(true)
	wait = begin(false)
	now = now.Add(wait - time.Second)
	begin(false)
	now = now.Add(time.Second)
	begin(true)
	begin(true)
	now = now.Add(-time.Hour)
	begin(false)
	m.Rule("r", policy.Limits{RequestsPerMinute: 4})
	begin(true)
	begin(false)
	now = now.Add(100 * time.Hour)
	begin(true)
}

// No minute has more than the rate, wherever it begins, and who waits as long
// as it was told is let through.
func TestAccountRateHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "most")
		now := time.Unix(1_000_000, 0)
		a := relay.NewMeter(func() time.Time { return now }).Rule("r", policy.Limits{RequestsPerMinute: most})
		var begun []time.Time
		for range 200 {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "step")))
			wait, ok := a.Begin()
			if !ok {
				now = now.Add(wait)
				if _, ok = a.Begin(); !ok {
					t.Fatalf("refused after waiting for %s", wait)
				}
			}
			begun = append(begun, now)
		}
		for i := range len(begun) - most {
			if d := begun[i+most].Sub(begun[i]); d < time.Minute {
				t.Fatalf("%d within %s", most+1, d)
			}
		}
	})
}

func BenchmarkAccount(b *testing.B) {
	a := relay.NewMeter(nil).Rule("r", policy.Limits{Bytes: 1 << 60, RequestsPerMinute: 1 << 30})
	b.Run("bytes", func(b *testing.B) {
		for b.Loop() {
			a.Take(1)
		}
	})
	b.Run("requests", func(b *testing.B) {
		for b.Loop() {
			a.Begin()
		}
	})
}
