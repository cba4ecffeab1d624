package sandboxtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The operations of a Snapshotter and of Snapshots, as a Hook sees them.
const (
	Save           Op = "save"
	SnapshotOpen   Op = "snapshot-open"
	SnapshotKeep   Op = "snapshot-keep"
	SnapshotPut    Op = "snapshot-put"
	SnapshotDelete Op = "snapshot-delete"
)

// SavedSize is what a Save of a Fake says that it wrote.
const SavedSize = 4096

var _ sandbox.Snapshots = (*Snapshots)(nil)

// Save implements sandbox.Snapshotter. It writes nothing.
func (f *Fake) Save(ctx context.Context, sb *sandbox.Sandbox, dir string) (sandbox.Saved, error) {
	b, done := f.enter(Save, sb.ID, false)
	defer done()
	if b == nil || dir == "" {
		return sandbox.Saved{}, f.fault("save of %s to %q, which there is not", sb.ID, dir)
	}
	if err := f.hook(ctx, Save, sb.ID); err != nil {
		return sandbox.Saved{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.saves++
	return sandbox.Saved{Size: SavedSize}, nil
}

// Saves returns how often the instance was saved.
func (f *Fake) Saves(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		return b.saves
	}
	return 0
}

// Snapshots is a sandbox.Snapshots in memory. What it holds outlives any
// Manager. It refuses, and remembers as faults, what the contract forbids.
type Snapshots struct {
	mu     sync.Mutex
	hooked Hook
	kept   map[string]sandbox.Snapshot
	faults []string
}

// NewSnapshots returns one that holds these.
func NewSnapshots(held ...sandbox.Snapshot) *Snapshots {
	s := &Snapshots{kept: make(map[string]sandbox.Snapshot)}
	for _, x := range held {
		s.kept[x.ID] = x
	}
	return s
}

// SetHook sets what is called within the operations to come; nil is nothing.
func (s *Snapshots) SetHook(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooked = h
}

// IDs lists what is kept, removed ones whose files are in use too, in order.
func (s *Snapshots) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.kept))
}

// Faults lists the breaches of the contract so far.
func (s *Snapshots) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Open implements sandbox.Snapshots.
func (s *Snapshots) Open(ctx context.Context) ([]sandbox.Snapshot, error) {
	if err := s.hook(ctx, SnapshotOpen, ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.kept)), nil
}

// Keep implements sandbox.Snapshots.
func (s *Snapshots) Keep(
	ctx context.Context, x sandbox.Snapshot, fill func(context.Context, string) (sandbox.Saved, error),
) (sandbox.Snapshot, error) {
	saved, err := fill(ctx, "/make-believe/"+x.ID)
	if err == nil {
		err = s.hook(ctx, SnapshotKeep, x.ID)
	}
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.kept[x.ID]; ok || !sandbox.ValidSnapshotID(x.ID) || x.Removed {
		return sandbox.Snapshot{}, s.faultLocked("keeping %+v", x)
	}
	x.Size, x.Notes = saved.Size, saved.Notes
	s.kept[x.ID] = x
	return x, nil
}

// Put implements sandbox.Snapshots.
func (s *Snapshots) Put(ctx context.Context, x sandbox.Snapshot) error {
	if err := s.hook(ctx, SnapshotPut, x.ID); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.kept[x.ID]; !ok || old.Removed {
		return s.faultLocked("put of %+v, which is gone", x)
	}
	s.kept[x.ID] = x
	return nil
}

// Delete implements sandbox.Snapshots.
func (s *Snapshots) Delete(ctx context.Context, id string) error {
	if err := s.hook(ctx, SnapshotDelete, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.kept[id]; ok && !x.Removed {
		return s.faultLocked("delete of %s, which is not removed", id)
	}
	for _, x := range s.kept {
		if x.Parent == id {
			return s.faultLocked("delete of %s, which %s lies over", id, x.ID)
		}
	}
	delete(s.kept, id)
	return nil
}

func (s *Snapshots) hook(ctx context.Context, op Op, id string) error {
	s.mu.Lock()
	h := s.hooked
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	return h(ctx, op, id)
}

func (s *Snapshots) faultLocked(format string, args ...any) error {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
	return fmt.Errorf(format, args...)
}
