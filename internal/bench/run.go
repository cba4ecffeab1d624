package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Units of metrics. Of both, less is better.
const (
	millis = "ms"
	mebi   = "MiB"
)

// metric is one of the things that a case measures.
type metric struct {
	name string
	unit string
}

// values are what one run of a case measured, by the metrics' names.
type values map[string]float64

// measure runs a case once.
type measure func(ctx context.Context) (values, error)

// testCase is one thing to measure. Cases of a group have the same metrics.
type testCase struct {
	name    string
	against []string // cases of the group that it is compared with, where they were measured
	// prepare makes what every run needs, and is not measured. What it
	// makes it leaves to the cleanups of the group.
	prepare func(ctx context.Context) (measure, error)
}

// group is a set of cases that are measured in turn.
type group struct {
	name, title string
	metrics     []metric
	cases       []testCase
	named       bool // it is measured only where it is named
	rounds      int  // 0: as many as the others
}

// runner measures groups.
type runner struct {
	rounds   int
	shuffle  *rand.Rand
	progress func(format string, args ...any)
	now      func() time.Time
}

// progressEvery is how long a group may take without a word of it.
const progressEvery = 10 * time.Second

// track is a case on its way.
type track struct {
	testCase
	run      measure // nil: it could not be prepared
	samples  map[string][]float64
	failures int
	why      []string // of the failures, each text once
}

// maxReasons bounds how many different failures of a case are told.
const maxReasons = 3

// fail counts a failure, and reports whether it is one of a new kind.
func (t *track) fail(err error) bool {
	t.failures++
	text := err.Error()
	if len(t.why) == maxReasons || slices.Contains(t.why, text) {
		return false
	}
	t.why = append(t.why, text)
	return true
}

// measure prepares the cases of g and runs them in rounds. The error is ctx's
// cause; what was measured until then is in the result.
func (r *runner) measure(ctx context.Context, g group) (GroupResult, error) {
	tracks := make([]*track, len(g.cases))
	for i, c := range g.cases {
		tracks[i] = &track{testCase: c, samples: map[string][]float64{}}
	}
	rounds := cmp.Or(g.rounds, r.rounds)
	r.progress("%s: measuring, cases: %d, rounds: %d", g.name, len(tracks), rounds)
	err := r.prepare(ctx, g, tracks)
	last := r.now()
	for round := 0; round <= rounds && err == nil; round++ {
		if r.now().Sub(last) >= progressEvery {
			last = r.now()
			r.progress("%s: round %d of %d", g.name, round, rounds)
		}
		err = r.round(ctx, g, tracks, round > 0)
	}
	return result(g, tracks), err
}

func (r *runner) prepare(ctx context.Context, g group, tracks []*track) error {
	for _, t := range tracks {
		run, err := t.prepare(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			t.fail(fmt.Errorf("prepare: %w", err))
			r.progress("%s: %s: prepare: %v", g.name, t.name, err)
			continue
		}
		t.run = run
	}
	return nil
}

// round runs each case once, in an order of its own. A round that does not
// count is the warm-up: its failures are told, as they are of what is there.
func (r *runner) round(ctx context.Context, g group, tracks []*track, counts bool) error {
	for _, i := range r.shuffle.Perm(len(tracks)) {
		t := tracks[i]
		if t.run == nil {
			continue
		}
		v, err := t.run(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = complete(g, v)
		}
		if err != nil {
			if t.fail(err) {
				r.progress("%s: %s: %v", g.name, t.name, err)
			}
			continue
		}
		if counts {
			for name, x := range v {
				t.samples[name] = append(t.samples[name], x)
			}
		}
	}
	return nil
}

// complete refuses values that are not of g's metrics, and none at all. What
// a case can't measure it leaves out.
func complete(g group, v values) error {
	for name := range v {
		if !slices.ContainsFunc(g.metrics, func(m metric) bool { return m.name == name }) {
			return fmt.Errorf("it measured %q, which is not of its group", name)
		}
	}
	if len(v) == 0 {
		return errors.New("it measured nothing")
	}
	return nil
}

// result turns what was measured into numbers to read.
func result(g group, tracks []*track) GroupResult {
	res := GroupResult{Name: g.name, Title: g.title}
	sums := map[string]map[string]Summary{} // by case and metric
	for _, t := range tracks {
		sums[t.name] = map[string]Summary{}
		for _, m := range g.metrics {
			sums[t.name][m.name] = summarize(t.samples[m.name])
		}
	}
	for _, t := range tracks {
		c := CaseResult{Name: t.name, Failures: t.failures, Reasons: t.why}
		for _, m := range g.metrics {
			mr := MetricResult{Name: m.name, Unit: m.unit, Summary: sums[t.name][m.name], Samples: t.samples[m.name]}
			for _, to := range t.against {
				if x, ok := ratio(mr.Summary, sums[to][m.name]); ok {
					mr.Ratios = append(mr.Ratios, Ratio{To: to, Ratio: x})
				}
			}
			c.Metrics = append(c.Metrics, mr)
		}
		res.Cases = append(res.Cases, c)
	}
	return res
}
