package storetest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	podrecord "github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// Memory is a store for tests, which lasts as long as the process. The zero value
// is empty and ready for use. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	records map[string]*sandbox.Sandbox
	events  map[string][]sandbox.Event

	sessions map[string]record.Session
	pods     map[string]map[string]podrecord.Pod // by owner and name
}

var (
	_ sandbox.Store    = (*Memory)(nil)
	_ sandbox.EventLog = (*Memory)(nil)
)

// Put implements sandbox.Store.
func (m *Memory) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, other := range m.records {
		if id != sb.ID && other.Owner == sb.Owner && other.Spec.Name == sb.Spec.Name {
			return sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", sb.Spec.Name)
		}
	}
	if m.records == nil {
		m.records = make(map[string]*sandbox.Sandbox)
	}
	m.records[sb.ID] = sb.Clone()
	return nil
}

// Get implements sandbox.Store.
func (m *Memory) Get(_ context.Context, id string) (*sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sb, ok := m.records[id]
	if !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", id)
	}
	return sb.Clone(), nil
}

// List implements sandbox.Store. The order is that of the IDs.
func (m *Memory) List(context.Context) ([]*sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*sandbox.Sandbox, 0, len(m.records))
	for _, sb := range m.records {
		out = append(out, sb.Clone())
	}
	slices.SortFunc(out, byID)
	return out, nil
}

// Delete implements sandbox.Store. The sandbox's events go too.
func (m *Memory) Delete(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	delete(m.events, id)
	return nil
}

// Append implements sandbox.EventLog.
func (m *Memory) Append(ctx context.Context, id string, ev sandbox.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.events = make(map[string][]sandbox.Event)
	}
	evs := append(m.events[id], ev)
	if n := len(evs) - sandbox.MaxEvents; n > 0 {
		evs = slices.Delete(evs, 0, n)
	}
	m.events[id] = evs
	return nil
}

// Events implements sandbox.EventLog.
func (m *Memory) Events(_ context.Context, id string) ([]sandbox.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events[id]), nil
}

// Forget implements sandbox.EventLog.
func (m *Memory) Forget(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.events, id)
	return nil
}

// SaveSession implements session.Store.
func (m *Memory) SaveSession(ctx context.Context, r record.Session) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, other := range m.sessions {
		if id != r.ID && other.Owner == r.Owner && other.Key == r.Key {
			return sandbox.Errorf(sandbox.Conflict, "session %s: the key is taken", r.Key)
		}
	}
	if m.sessions == nil {
		m.sessions = make(map[string]record.Session)
	}
	m.sessions[r.ID] = r.Clone()
	return nil
}

// DeleteSession implements session.Store.
func (m *Memory) DeleteSession(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, id)
	return nil
}

// Sessions implements session.Store.
func (m *Memory) Sessions(context.Context) ([]record.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]record.Session, 0, len(m.sessions))
	for _, r := range m.sessions {
		out = append(out, r.Clone())
	}
	slices.SortFunc(out, func(a, b record.Session) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func byID(a, b *sandbox.Sandbox) int { return cmp.Compare(a.ID, b.ID) }
