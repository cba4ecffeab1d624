package sandbox

import (
	"context"
	"time"
)

// MaxSnapshotChain is how many snapshots may lie over one another: one that is
// made of a sandbox which started from a snapshot lies over that.
const MaxSnapshotChain = 128

// Snapshot is what a sandbox wrote, kept for others to start from.
type Snapshot struct {
	ID     string `json:"id"`               // "sn_…"
	Owner  string `json:"owner"`            // whose sandboxes alone may start from it, unless it is Shared
	Image  string `json:"image"`            // what it lies over, as a Spec has it
	Parent string `json:"parent,omitempty"` // the snapshot below, between it and the image; "": none
	Source string `json:"source"`           // the ID of the sandbox that it was made of
	Size   int64  `json:"size"`             // bytes on disk, those below not counted
	// Shared: everyone's sandboxes may start from it. It remains its owner's to
	// see and to remove.
	Shared    bool      `json:"shared,omitempty"`
	Notes     []string  `json:"notes,omitempty"` // what was left out
	CreatedAt time.Time `json:"created_at"`
	// Removed: no more sandboxes start from it, and nobody sees it. Its files
	// wait for the last sandbox and the last snapshot over it to go.
	Removed bool `json:"removed,omitempty"`
}

// Saved is what a Snapshotter wrote.
type Saved struct {
	Size  int64    // bytes on disk
	Notes []string // what was left out, in words
}

// Snapshotter saves instances of a backend.
type Snapshotter interface {
	// Save copies what sb's instance wrote, over its image and its snapshot, to the
	// empty directory dir, as instances that start from it will want it. It is all
	// of one moment: a running instance is held still meanwhile, and goes on after
	// that, though the daemon is killed. It fails with Exhausted where the disk is full;
	// after an error what is in dir is for the caller to delete.
	Save(ctx context.Context, sb *Sandbox, dir string) (Saved, error)
}

// Snapshots keeps snapshots. What a method did is durable when it returns, and
// after an error nothing of it is there.
type Snapshots interface {
	// Open returns all that are kept, and deletes what an earlier daemon left
	// half made or half deleted. It comes before all else, once.
	Open(ctx context.Context) ([]Snapshot, error)
	// Keep makes an empty directory, into which fill writes the files of s, and keeps
	// them as s, with the size and the notes that fill returned.
	Keep(ctx context.Context, s Snapshot, fill func(ctx context.Context, dir string) (Saved, error)) (Snapshot, error)
	// Put changes what is known of one that is kept: Shared and Removed.
	Put(ctx context.Context, s Snapshot) error
	// Delete deletes one. One that is gone is no error.
	Delete(ctx context.Context, id string) error
}

// Snapshot saves what a sandbox wrote and keeps it, as the sandbox's owner's.
// A running one is held still while its files are copied. A workspace
// that is not the sandbox's own is left out, with what was changed in a view of it, and
// the snapshot's notes say so. What is mounted elsewhere is no part of a snapshot.
func (m *Manager) Snapshot(ctx context.Context, c Caller, ref string) (Snapshot, error) {
	var out Snapshot
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) (err error) {
		out, err = m.snapshot(ctx, m.registry.record(e))
		return err
	})
	return out, err
}

func (m *Manager) snapshot(ctx context.Context, sb *Sandbox) (Snapshot, error) {
	if m.snapshots.store == nil {
		return Snapshot{}, errNoSnapshots
	}
	if sb.State != StateStopped {
		if err := mustRun(sb); err != nil {
			return Snapshot{}, err
		}
	}
	b, err := m.lives.backends.of(sb)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := m.snapshots.save(ctx, b, sb)
	if err == nil {
		m.note(ctx, sb, eventSnapshot, "saved as %s", s.ID)
	}
	return s, err
}

// SnapshotDepth counts a snapshot and those below it, removed ones too. It is 0
// for "".
func (m *Manager) SnapshotDepth(id string) int { return m.snapshots.depth(id) }

// GetSnapshot returns one of the caller's snapshots.
func (m *Manager) GetSnapshot(_ context.Context, c Caller, id string) (Snapshot, error) {
	if err := m.ops.ready(c); err != nil {
		return Snapshot{}, err
	}
	return m.snapshots.get(c, id)
}

// Snapshots returns the caller's snapshots, and everyone's for an admin,
// oldest first.
func (m *Manager) Snapshots(_ context.Context, c Caller) ([]Snapshot, error) {
	if err := m.ops.ready(c); err != nil {
		return nil, err
	}
	return m.snapshots.list(c), nil
}

// ShareSnapshot lets everyone's sandboxes start from a snapshot, or no longer.
// Those that did go on.
func (m *Manager) ShareSnapshot(ctx context.Context, c Caller, id string, shared bool) (Snapshot, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	return m.snapshots.change(ctx, c, id, func(s *Snapshot) { s.Shared = shared })
}

// RemoveSnapshot removes a snapshot: no sandbox starts from it any more. Its
// files go with the last sandbox and the last snapshot that lie over it.
func (m *Manager) RemoveSnapshot(ctx context.Context, c Caller, id string) error {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	if _, err := m.snapshots.change(ctx, c, id, func(s *Snapshot) { s.Removed = true }); err != nil {
		return err
	}
	m.pool.forgetSnapshot(id)
	m.snapshots.collect(ctx, m.registry.uses)
	return nil
}
