package sandbox_test

import (
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

// rules are Quotas of one kind for every owner but "free".
type rules struct {
	mu      sync.Mutex
	quota   sandbox.Quota
	creates int // that are left; negative: any number
	seen    []int
	starts  int
}

func (r *rules) Quota(owner string) sandbox.Quota {
	if owner == "key:free" {
		return sandbox.Quota{}
	}
	return r.quota
}

func (r *rules) Admit(owner string, _ time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if owner == "key:free" || r.creates < 0 {
		return nil
	}
	if r.creates == 0 {
		return sandbox.Errorf(sandbox.Exhausted, "too many creates")
	}
	r.creates--
	return nil
}

func (r *rules) Changed(_ string, running int, started bool, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, running)
	if started {
		r.starts++
	}
}

func quotaManager(t *testing.T, r *rules) *sandbox.Manager {
	t.Helper()
	wall := sandboxtest.New("gvisor")
	m, err := sandbox.NewManager(sandbox.Options{Store: &storetest.Memory{}, Backends: []sandbox.Backend{wall}, CPUs: 4, Quotas: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		wall.Close()
	})
	return m
}

var (
	bound = sandbox.Caller{Owner: "key:bound"}
	free  = sandbox.Caller{Owner: "key:free"}
)

// However many ask at once, no more than the quota has get one, and as many
// do; an owner without a quota gets them all.
func TestQuotaOfSandboxesHoldsUnderRaces(t *testing.T) {
	r := &rules{quota: sandbox.Quota{Sandboxes: 3}, creates: -1}
	m := quotaManager(t, r)
	for _, tt := range []struct {
		caller sandbox.Caller
		want   int
	}{{bound, 3}, {free, 12}} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for range 12 {
			wg.Go(func() {
				_, err := m.Create(t.Context(), tt.caller, sandbox.Spec{}, nil)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got++
				} else if sandbox.KindOf(err) != sandbox.Exhausted {
					t.Errorf("Create = %v, want exhausted", err)
				}
			})
		}
		wg.Wait()
		if got != tt.want {
			t.Errorf("%s got %d sandboxes, want %d", tt.caller.Owner, got, tt.want)
		}
	}
	if c := m.Counts(); c.Creates != 15 || c.Failures != 0 || c.Starting != 0 {
		t.Errorf("counts = %+v", c)
	}
}

// A stopped sandbox takes no place, and starting several at once takes no
// more places than there are.
func TestQuotaOfStarts(t *testing.T) {
	r := &rules{creates: -1}
	m := quotaManager(t, r)
	var ids []string
	for range 4 {
		sb, err := m.Create(t.Context(), bound, sandbox.Spec{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stop(t.Context(), bound, sb.ID); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.ID)
	}
	r.quota.Sandboxes = 2
	var wg sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		wg.Go(func() { _, errs[i] = m.Start(t.Context(), bound, id) })
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if sandbox.KindOf(err) == sandbox.Exhausted {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 2 {
		t.Errorf("%d starts were refused, want 2", refused)
	}
	if _, err := m.Create(t.Context(), bound, sandbox.Spec{}, nil); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("Create beside two that run = %v, want exhausted", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts != 6 || r.seen[len(r.seen)-1] != 2 {
		t.Errorf("seen %v with %d starts, want 6 starts and 2 that run at last", r.seen, r.starts)
	}
}

func TestQuotaOfSizes(t *testing.T) {
	m := quotaManager(t, &rules{creates: -1, quota: sandbox.Quota{CPUs: 2, Memory: 1 << 30, Disk: 1 << 30, TTL: time.Hour}})
	small := sandbox.Spec{Limits: sandbox.Limits{CPUs: 1, Memory: 512 << 20, Disk: 512 << 20}, TTL: time.Minute}
	for name, change := range map[string]func(*sandbox.Spec){
		"cpus":        func(s *sandbox.Spec) { s.Limits.CPUs = 3 },
		"memory":      func(s *sandbox.Spec) { s.Limits.Memory = 3 << 30 },
		"disk":        func(s *sandbox.Spec) { s.Limits.Disk = 2 << 30 },
		"ttl":         func(s *sandbox.Spec) { s.TTL = 2 * time.Hour },
		"without-end": func(s *sandbox.Spec) { s.TTL = 0 },
	} {
		spec := small
		change(&spec)
		if _, err := m.Create(t.Context(), bound, spec, nil); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: Create = %v, want invalid", name, err)
		}
		if _, err := m.Create(t.Context(), free, spec, nil); err != nil {
			t.Errorf("%s: Create without a quota = %v", name, err)
		}
	}
	sb, err := m.Create(t.Context(), bound, small, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{0, 2 * time.Hour} {
		if _, err := m.SetTTL(t.Context(), bound, sb.ID, ttl); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("SetTTL(%v) = %v, want invalid", ttl, err)
		}
	}
	if _, err := m.SetTTL(t.Context(), bound, sb.ID, time.Hour); err != nil {
		t.Error(err)
	}
}

func TestQuotaOfCreates(t *testing.T) {
	m := quotaManager(t, &rules{creates: 1})
	if _, err := m.Create(t.Context(), bound, sandbox.Spec{Name: "one"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(t.Context(), bound, sandbox.Spec{}, nil); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("the second create = %v, want exhausted", err)
	}
	if _, err := m.Start(t.Context(), bound, "one"); err != nil {
		t.Errorf("a start is no create: %v", err)
	}
}

func TestDrain(t *testing.T) {
	m := quotaManager(t, &rules{creates: -1})
	sb, err := m.Create(t.Context(), free, sandbox.Spec{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Drain(true)
	if _, err := m.Create(t.Context(), free, sandbox.Spec{}, nil); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("Create while draining = %v, want unavailable", err)
	}
	if got, err := m.Get(t.Context(), free, sb.ID); err != nil || got.State != sandbox.StateRunning {
		t.Errorf("what runs does not go on: %v %v", got, err)
	}
	if _, err := m.Stop(t.Context(), free, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(t.Context(), free, sb.ID); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("Start while draining = %v, want unavailable", err)
	}
	m.Drain(false)
	if _, err := m.Start(t.Context(), free, sb.ID); err != nil {
		t.Error(err)
	}
}

// What nobody asked for is lowered to the owner's limits; what was is refused,
// though it be the default.
func TestQuotaLowersDefaults(t *testing.T) {
	quota := sandbox.Quota{CPUs: 1, Memory: 256 << 20, Disk: 512 << 20}
	m := quotaManager(t, &rules{creates: -1, quota: quota})
	sb, err := m.Create(t.Context(), bound, sandbox.Spec{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := sb.Spec.Limits; got.CPUs != quota.CPUs || got.Memory != quota.Memory || got.Disk != quota.Disk {
		t.Errorf("limits = %+v, want those of %+v", got, quota)
	}
	if sb, err = m.Create(t.Context(), free, sandbox.Spec{}, nil); err != nil || sb.Spec.Limits.CPUs != sandbox.DefaultCPUs {
		t.Errorf("without a quota: %+v, %v", sb, err)
	}
	asked := sandbox.Spec{Limits: sandbox.Limits{CPUs: sandbox.DefaultCPUs, Explicit: map[string]bool{sandbox.LimitCPUs: true}}}
	if _, err := m.Create(t.Context(), bound, asked, nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("what was asked for: %v, want invalid", err)
	}
}
