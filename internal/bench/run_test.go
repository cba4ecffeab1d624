package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a group whose cases only note that they were run.
type fake struct {
	order []string
	said  []string
}

func (f *fake) runner(rounds int) *runner {
	return &runner{
		rounds: rounds, shuffle: rand.New(rand.NewPCG(7, 7)), now: func() time.Time { return time.Time{} },
		progress: func(format string, args ...any) { f.said = append(f.said, fmt.Sprintf(format, args...)) },
	}
}

func (f *fake) group(run func(name string, nth int) (values, error), names ...string) group {
	g := group{name: "g", metrics: []metric{{"took", millis}}}
	counts := map[string]int{}
	for _, name := range names {
		g.cases = append(g.cases, testCase{name: name, against: []string{"a"}, prepare: ready(func(context.Context) (values, error) {
			f.order = append(f.order, name)
			counts[name]++
			return run(name, counts[name])
		})})
	}
	return g
}

// TestRoundsAreInterleaved holds that each round has each case once, in
// orders that differ, and that the first round does not count.
func TestRoundsAreInterleaved(t *testing.T) {
	f := &fake{}
	const rounds = 20
	g := f.group(func(_ string, nth int) (values, error) { return values{"took": float64(nth)}, nil }, "a", "b", "c")
	res, err := f.runner(rounds).measure(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.order) != 3*(rounds+1) {
		t.Fatalf("%d runs", len(f.order))
	}
	orders := map[string]bool{}
	for i := 0; i < len(f.order); i += 3 {
		round := strings.Join(f.order[i:i+3], "")
		if !strings.Contains(round, "a") || !strings.Contains(round, "b") || !strings.Contains(round, "c") {
			t.Errorf("round %d is %s", i/3, round)
		}
		orders[round] = true
	}
	if len(orders) < 4 {
		t.Errorf("the orders are %v", orders)
	}
	for _, c := range res.Cases {
		if m := c.Metrics[0]; m.N != rounds || m.Min != 2 || m.Max != rounds+1 {
			t.Errorf("%s: %+v: the warm-up is to be left out", c.Name, m.Summary)
		}
	}
}

func TestFailuresAreCounted(t *testing.T) {
	f := &fake{}
	g := f.group(func(name string, nth int) (values, error) {
		switch {
		case name == "b" && nth%2 == 0:
			return nil, errors.New("it broke")
		case name == "c":
			return values{"else": 1}, nil
		case name == "d":
			return values{}, nil
		}
		return values{"took": 1}, nil
	}, "a", "b", "c", "d")
	g.cases = append(g.cases, testCase{name: "e", prepare: func(context.Context) (measure, error) { return nil, errors.New("not here") }})
	res, err := f.runner(4).measure(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		name        string
		n, failures int
		reason      string
		ratios      int
	}
	var got []row
	for _, c := range res.Cases {
		got = append(got, row{c.Name, c.Metrics[0].N, c.Failures, strings.Join(c.Reasons, "; "), len(c.Metrics[0].Ratios)})
	}
	want := []row{
		{"a", 4, 0, "", 1},
		{"b", 2, 2, "it broke", 1},
		{"c", 0, 5, `it measured "else", which is not of its group`, 0},
		{"d", 0, 5, "it measured nothing", 0},
		{"e", 0, 1, "prepare: not here", 0},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
	var broke int
	for _, line := range f.said {
		if line == "g: b: it broke" {
			broke++
		}
	}
	if broke != 1 {
		t.Errorf("said %q: each failure is to be told once", f.said)
	}
}

func TestReasonsAreBounded(t *testing.T) {
	var tr track
	for i := range 10 {
		tr.fail(fmt.Errorf("reason %d", i))
	}
	if tr.failures != 10 || len(tr.why) != maxReasons {
		t.Errorf("%d failures, reasons %q", tr.failures, tr.why)
	}
}

// TestCutShort holds that what was measured before an interrupt is kept.
func TestCutShort(t *testing.T) {
	f := &fake{}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	g := f.group(func(_ string, nth int) (values, error) {
		if nth == 4 {
			cancel(stop)
		}
		return values{"took": 1}, nil
	}, "a")
	res, err := f.runner(10).measure(ctx, g)
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if n := res.Cases[0].Metrics[0].N; n != 2 {
		t.Errorf("%d samples", n)
	}
}
