package team

import (
	"math"
	"time"
)

const (
	// bucket is how exactly the past is kept.
	bucket = 15 * time.Second
	// maxMarks is how much of it is kept of each owner: more than three days
	// in which something changed all the time.
	maxMarks = 20_000
	// maxPoints is how many points an answer has at most.
	maxPoints = 1000
	// maxSeries is of how many owners the past is kept.
	maxSeries = 1000
)

// Point is how much a team had at a time.
type Point struct {
	At         time.Time
	Concurrent int     // sandboxes that ran, the most of them at the same time
	StartRate  float64 // sandboxes started in a second
}

// series is the past of one owner: only those stretches in which something
// changed. In between, what was goes on.
type series struct {
	marks []mark // in the order of time
	now   int32  // sandboxes that run
}

// mark is one stretch, of the length of bucket.
type mark struct {
	n      int64 // which: Unix time in buckets
	most   int32 // sandboxes that ran at the same time
	end    int32 // that ran at its end
	starts int32
}

// Changed implements sandbox.Quotas.
func (b *Book) Changed(owner string, count int, started bool, now time.Time) {
	running := int32(min(count, math.MaxInt32))
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.series[owner]
	if s == nil {
		if len(b.series) >= maxSeries {
			b.forgetOne()
		}
		s = &series{}
		b.series[owner] = s
	}
	n := now.UnixNano() / int64(bucket)
	if last := len(s.marks) - 1; last < 0 || s.marks[last].n < n {
		s.marks = append(s.marks, mark{n: n, most: s.now})
	}
	m := &s.marks[len(s.marks)-1] // a clock that went back counts for the newest
	m.most, m.end = max(m.most, running), running
	if started {
		m.starts++
	}
	s.now = running
	if len(s.marks) > maxMarks+maxMarks/8 { // seldom, for it is a copy
		s.marks = append(s.marks[:0], s.marks[len(s.marks)-maxMarks:]...)
	}
}

// forgetOne gives up the past of the owner who did nothing for the longest.
func (b *Book) forgetOne() {
	oldest, at := "", int64(math.MaxInt64)
	for owner, s := range b.series {
		if last := s.marks[len(s.marks)-1].n; last < at {
			oldest, at = owner, last
		}
	}
	delete(b.series, oldest)
}

// Metrics returns what an owner had between two times, from its first sandbox
// on, in steps that are long enough for the answer to be short.
func (b *Book) Metrics(owner string, from, to time.Time) []Point {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.series[owner]
	if s == nil || len(s.marks) == 0 {
		return []Point{}
	}
	first := max(from.UnixNano()/int64(bucket), s.marks[0].n)
	last := to.UnixNano() / int64(bucket)
	if last < first {
		return []Point{}
	}
	step := (last-first)/maxPoints + 1
	out := make([]Point, 0, (last-first)/step+1)
	i, running := 0, int32(0)
	for ; i < len(s.marks) && s.marks[i].n < first; i++ {
		running = s.marks[i].end
	}
	for n := first; n <= last; n += step {
		p := Point{At: time.Unix(0, n*int64(bucket)).UTC(), Concurrent: int(running)}
		starts := int32(0)
		for ; i < len(s.marks) && s.marks[i].n < n+step; i++ {
			p.Concurrent = max(p.Concurrent, int(s.marks[i].most))
			starts += s.marks[i].starts
			running = s.marks[i].end
		}
		p.StartRate = float64(starts) / (time.Duration(step) * bucket).Seconds()
		out = append(out, p)
	}
	return out
}

// MostConcurrent returns the largest number of sandboxes that ran between two
// times, and when; MostStarts the highest rate of starts in any stretch.
func (b *Book) MostConcurrent(owner string, from, to time.Time) (float64, time.Time) {
	return b.most(owner, from, to, func(m mark) float64 { return float64(m.most) })
}

// MostStarts is documented with MostConcurrent.
func (b *Book) MostStarts(owner string, from, to time.Time) (float64, time.Time) {
	return b.most(owner, from, to, func(m mark) float64 { return float64(m.starts) / bucket.Seconds() })
}

func (b *Book) most(owner string, from, to time.Time, of func(mark) float64) (value float64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, value = from, math.Inf(-1)
	see := func(v float64, n int64) {
		if v > value {
			value, at = v, time.Unix(0, max(n*int64(bucket), from.UnixNano())).UTC()
		}
	}
	first, last := from.UnixNano()/int64(bucket), to.UnixNano()/int64(bucket)
	running := int32(0)
	s := b.series[owner]
	for i := 0; s != nil && i < len(s.marks) && s.marks[i].n <= last; i++ {
		if m := s.marks[i]; m.n >= first {
			if math.IsInf(value, -1) {
				see(of(mark{most: running}), first)
			}
			see(of(m), m.n)
		}
		running = s.marks[i].end
	}
	if math.IsInf(value, -1) {
		see(of(mark{most: running}), first)
	}
	return value, at.UTC()
}
