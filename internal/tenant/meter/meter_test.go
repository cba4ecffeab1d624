package meter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/meter"
)

const mib = 1 << 20

// machine has sandboxes that use half of their processors.
type machine struct {
	mu        sync.Mutex
	instances map[string]sandbox.Metered
	began     map[string]time.Time
	fails     map[string]bool
	hangs     map[string]bool
	asked     map[string]int
	load      float64 // of those whose time is not counted
	uncalc    bool
}

func newMachine(ids ...string) *machine {
	m := &machine{
		instances: map[string]sandbox.Metered{}, began: map[string]time.Time{}, fails: map[string]bool{}, hangs: map[string]bool{}, asked: map[string]int{},
	}
	for _, id := range ids {
		m.start(id)
	}
	return m
}

func (m *machine) start(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.instances[id]
	m.instances[id] = sandbox.Metered{ID: id, Running: true, Starts: x.Starts + 1, CPUs: 2, Memory: 512 * mib}
	m.began[id] = time.Now()
}

func (m *machine) stop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.instances[id]
	x.Running = false
	m.instances[id] = x
}

func (m *machine) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.instances, id)
}

func (m *machine) Metered() (out []sandbox.Metered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.instances {
		out = append(out, x)
	}
	return out
}

func (m *machine) Measure(ctx context.Context, id string) (sandbox.Usage, error) {
	m.mu.Lock()
	m.asked[id]++
	hangs, fails, began := m.hangs[id], m.fails[id], m.began[id]
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return sandbox.Usage{}, ctx.Err()
	}
	if fails {
		return sandbox.Usage{}, errors.New("it can't be measured")
	}
	u := sandbox.Usage{CPU: time.Since(began), Memory: 100*mib - 1, Cache: 5 * mib, Disk: 7 * mib, DiskTotal: 1024 * mib}
	if m.uncalc {
		u.CPU, u.Load = -1, m.load
	}
	return u, nil
}

// run runs a Meter in a bubble.
func run(t *testing.T, m *machine, f func(*meter.Meter)) {
	t.Helper()
	mt := meter.New(m, meter.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { mt.Run(ctx) })
	f(mt)
	cancel()
	wg.Wait()
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("a")
		run(t, m, func(mt *meter.Meter) {
			start := time.Now()
			pass(1500 * time.Millisecond)
			want := meter.Sample{
				Time: start.Add(time.Second).UTC(), CPUs: 2, CPU: 50, Memory: 100 * mib, MemoryTotal: 512 * mib,
				Cache: 5 * mib, Disk: 7 * mib, DiskTotal: 1024 * mib,
			}
			got, ok := mt.Last("a")
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Fatalf("Last (-want +got):\n%s", diff)
			}
			pass(20 * time.Second)
			if n := len(mt.Samples("a", time.Time{}, time.Time{})); n != 5 {
				t.Errorf("%d points after 21 s, want 5", n)
			}
			some := mt.Samples("a", start.Add(6*time.Second), start.Add(11*time.Second))
			if len(some) != 2 || some[0].Time.Sub(start) != 6*time.Second || some[1].Time.Sub(start) != 11*time.Second {
				t.Errorf("between two times: %+v", some)
			}
			if _, ok := mt.Last("b"); ok || mt.Samples("b", time.Time{}, time.Time{}) != nil {
				t.Error("one that is not there has points")
			}
		})
	})
}

func TestStopStartRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("a", "b")
		run(t, m, func(mt *meter.Meter) {
			pass(6500 * time.Millisecond)
			m.stop("a")
			m.remove("b")
			pass(time.Minute)
			if n := len(mt.Samples("a", time.Time{}, time.Time{})); n != 2 {
				t.Errorf("a stopped one has %d points, want the 2 of before", n)
			}
			if _, ok := mt.Last("b"); ok {
				t.Error("a removed one has points")
			}
			m.start("a") // what its instance has used begins anew
			pass(2500 * time.Millisecond)
			all := mt.Samples("a", time.Time{}, time.Time{})
			if len(all) != 3 || all[2].CPU != 50 {
				t.Errorf("after another start: %+v", all)
			}
		})
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("a")
		m.uncalc, m.load = true, 7 // more than all
		run(t, m, func(mt *meter.Meter) {
			pass(2 * time.Hour)
			all := mt.Samples("a", time.Time{}, time.Time{})
			if len(all) != meter.PerSandbox || all[0].CPU != 100 {
				t.Fatalf("%d points, the first %+v", len(all), all[0])
			}
			for i := 1; i < len(all); i++ {
				if d := all[i].Time.Sub(all[i-1].Time); d != meter.Interval {
					t.Fatalf("point %d is %v after the one before", i, d)
				}
			}
		})
	})
}

// Those that can't be measured, or that hang, keep nobody waiting for long and
// are not asked all the time.
func TestHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("good", "fails", "hangs")
		m.fails["fails"], m.hangs["hangs"] = true, true
		run(t, m, func(mt *meter.Meter) {
			pass(time.Minute)
			if n := len(mt.Samples("good", time.Time{}, time.Time{})); n < 11 {
				t.Errorf("%d points in a minute", n)
			}
			for _, id := range []string{"fails", "hangs"} {
				if _, ok := mt.Last(id); ok || m.asked[id] > 3 {
					t.Errorf("%s: asked %d times, with an answer: %t", id, m.asked[id], ok)
				}
			}
		})
	})
}
