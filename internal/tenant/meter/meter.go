// Package meter measures what running sandboxes use, every few seconds, and
// remembers the last hour of each: in memory alone, so that a new daemon begins
// anew. Stopping a sandbox keeps its series, removing it ends that.
//
// Memory is bounded: at most PerSandbox points of 40 bytes for each sandbox.
// Time is too: one that can't be measured is left alone for a while, and keeps
// no other waiting for longer than its own measurement may take.
package meter

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// Interval is the time between two points of a series.
	Interval = 5 * time.Second
	// DefaultTime is an Options' Time where none is given: longer than a measurement takes
	// on a machine that is many times too busy.
	DefaultTime = 10 * time.Second
	// PerSandbox is how many points of each sandbox are kept: an hour's.
	PerSandbox = int(time.Hour / Interval)

	beat    = time.Second      // how often it is looked who is due
	backoff = 30 * time.Second // after a failure
	workers = 4
)

// Source has the sandboxes to measure. *sandbox.Manager is one, and documents
// both methods.
type Source interface {
	Metered() []sandbox.Metered
	Measure(ctx context.Context, id string) (sandbox.Usage, error)
}

var _ Source = (*sandbox.Manager)(nil)

// Sample is a point of a series. Sizes are in bytes.
type Sample struct {
	Time                time.Time // to the second
	CPUs                float64   // that it may use
	CPU                 float64   // in percent of those, since the point before
	Memory, MemoryTotal int64     // what the kernel can take back apart
	Cache               int64
	Disk, DiskTotal     int64
}

// Meter measures while Run does. New makes one.
type Meter struct {
	source Source
	time   time.Duration
	log    *slog.Logger

	mu  sync.Mutex
	all map[string]*series
}

// Options are how a Meter measures. The zero value works.
type Options struct {
	Time time.Duration // that one measurement may take; 0: DefaultTime
	Log  *slog.Logger  // default: discard
}

// New returns a Meter of what source has.
func New(source Source, o Options) *Meter {
	return &Meter{
		source: source, time: cmp.Or(o.Time, DefaultTime), log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		all: make(map[string]*series),
	}
}

// series is what is known of one sandbox.
type series struct {
	starts int // that base belongs to
	base   time.Duration
	at     time.Time // of base; zero: there is none
	due    time.Time
	busy   bool // a worker has it
	points ring
}

// Run measures until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	jobs := make(chan sandbox.Metered)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for x := range jobs {
				m.measure(ctx, x)
			}
		})
	}
	defer wg.Wait()
	defer close(jobs)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		for _, x := range m.dueNow(time.Now()) {
			select {
			case jobs <- x:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// dueNow returns whom it is time to measure, and forgets who is gone.
func (m *Meter) dueNow(now time.Time) (due []sandbox.Metered) {
	known := m.source.Metered()
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]bool, len(known))
	for _, x := range known {
		there[x.ID] = true
		s := m.all[x.ID]
		if s == nil {
			s = &series{}
			m.all[x.ID] = s
		}
		if x.Running && !s.busy && !now.Before(s.due) {
			s.busy = true
			due = append(due, x)
		}
	}
	for id, s := range m.all {
		if !there[id] && !s.busy {
			delete(m.all, id)
		}
	}
	return due
}

func (m *Meter) measure(ctx context.Context, x sandbox.Metered) {
	ctx, cancel := context.WithTimeout(ctx, m.time)
	u, err := m.source.Measure(ctx, x.ID)
	cancel()
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.all[x.ID]
	s.busy = false
	if err != nil {
		s.due = now.Add(backoff)
		m.log.Debug("measure a sandbox", "id", x.ID, "error", err)
		return
	}
	s.take(x, u, now)
}

// take adds a point. Of an instance that is new there is first the processor time to
// count from, and the point a beat later.
func (s *series) take(x sandbox.Metered, u sandbox.Usage, now time.Time) {
	used, known := u.Load, u.CPU < 0
	if !known && s.starts == x.Starts && !s.at.IsZero() && now.After(s.at) && u.CPU >= s.base {
		used, known = float64(u.CPU-s.base)/(float64(now.Sub(s.at))*max(x.CPUs, 0.01)), true
	}
	s.starts, s.base, s.at = x.Starts, u.CPU, now
	if !known {
		s.due = now.Add(beat)
		return
	}
	s.due = now.Add(Interval - beat/2) // the next beat may come a little early
	s.points.add(point{
		time: now.Unix(), cpus: float32(x.CPUs), cpu: float32(math.Round(10000*min(max(used, 0), 1)) / 100),
		memory: kib(u.Memory), total: kib(x.Memory), cache: kib(u.Cache), disk: kib(u.Disk), diskTotal: kib(u.DiskTotal),
	})
}

// Samples returns the points of a sandbox between two times, both included,
// oldest first; a zero time is no bound.
func (m *Meter) Samples(id string, from, to time.Time) (out []Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.all[id]
	if s == nil {
		return nil
	}
	for i := range s.points.n {
		p := s.points.at(i).sample()
		if (from.IsZero() || !p.Time.Before(from)) && (to.IsZero() || !p.Time.After(to)) {
			out = append(out, p)
		}
	}
	return out
}

// Last returns the newest point of a sandbox, if it has any.
func (m *Meter) Last(id string) (Sample, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.all[id]
	if s == nil || s.points.n == 0 {
		return Sample{}, false
	}
	return s.points.at(s.points.n - 1).sample(), true
}

// point is a Sample, small. Sizes are in KiB.
type point struct {
	time            int64
	cpus, cpu       float32
	memory, total   uint32
	cache           uint32
	disk, diskTotal uint32
}

// kib rounds up: what is used is not nothing.
func kib(n int64) uint32 {
	return uint32(min((max(n, 0)+1023)>>10, math.MaxUint32))
}

func (p point) sample() Sample {
	size := func(n uint32) int64 { return int64(n) << 10 }
	return Sample{
		Time: time.Unix(p.time, 0).UTC(), CPUs: float64(p.cpus), CPU: math.Round(100*float64(p.cpu)) / 100,
		Memory: size(p.memory), MemoryTotal: size(p.total), Cache: size(p.cache), Disk: size(p.disk), DiskTotal: size(p.diskTotal),
	}
}

// ring holds the newest PerSandbox points. It grows with what it has.
type ring struct {
	all   []point
	first int // of those in all
	n     int
}

func (r *ring) add(p point) {
	switch {
	case r.n < PerSandbox:
		r.all = append(r.all, p)
		r.n++
	default:
		r.all[r.first] = p
		r.first = (r.first + 1) % r.n
	}
}

// at returns the i-th oldest point.
func (r *ring) at(i int) point { return r.all[(r.first+i)%len(r.all)] }
