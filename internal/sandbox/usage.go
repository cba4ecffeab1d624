package sandbox

import (
	"context"
	"time"
)

// Usage is what a running instance uses.
type Usage struct {
	// CPU is the processor time of all its processes since it was started;
	// negative where it is not counted. Load tells then what share of the instance's
	// processors was busy of late, from 0 to 1.
	CPU  time.Duration
	Load float64
	// Memory is in bytes, those of Cache apart: the file cache, which the kernel
	// takes back when it needs to.
	Memory, Cache int64
	// Disk is what is filled of DiskTotal, in bytes.
	Disk, DiskTotal int64
}

// Measurer is a Backend that knows what a running instance uses: by the host's own
// figures where there are any.
type Measurer interface {
	Backend
	Measure(ctx context.Context, id string) (Usage, error)
}

// Metered is what there is to measure of a sandbox.
type Metered struct {
	ID      string
	Running bool
	Starts  int // how often it came to run: what is counted begins anew with each
	CPUs    float64
	Memory  int64 // bytes that it may use
}

// Metered lists everyone's sandboxes, for whoever measures them; nil before
// the records are read.
func (m *Manager) Metered() []Metered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.loaded {
		return nil
	}
	out := make([]Metered, 0, len(m.entries))
	for id, e := range m.entries {
		if e.sb != nil {
			l := e.sb.Spec.Limits
			out = append(out, Metered{id, e.sb.State == StateRunning, e.sb.Starts, l.CPUs, l.Memory})
		}
	}
	return out
}

// Measure returns what the instance of a running sandbox uses. It fails with
// Unsupported where its wall can't tell.
func (m *Manager) Measure(ctx context.Context, id string) (Usage, error) {
	m.mu.Lock()
	var sb *Sandbox
	if e := m.entries[id]; e != nil {
		sb = e.sb
	}
	m.mu.Unlock()
	if sb == nil {
		return Usage{}, unknown(id)
	}
	if err := mustRun(sb); err != nil {
		return Usage{}, err
	}
	b, ok := m.backends[sb.Backend].(Measurer)
	if !ok {
		return Usage{}, Errorf(Unsupported, "sandbox %s: its wall does not tell what it uses", sb.Spec.Name)
	}
	return b.Measure(ctx, id)
}
