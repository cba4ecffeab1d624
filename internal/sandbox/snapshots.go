package sandbox

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"
)

// MaxSnapshotChain is how many snapshots may lie over one another: one that is
// made of a sandbox which started from a snapshot lies over that.
const MaxSnapshotChain = 128

const snapshotPrefix = "sn_"

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
	// Removed: no more sandboxes start from it, and it is no one's to see. Its
	// files wait for the last sandbox and the last snapshot over it to go.
	Removed bool `json:"removed,omitempty"`
}

// Saved is what a Snapshotter wrote.
type Saved struct {
	Size  int64    // bytes on disk
	Notes []string // what was left out, in words
}

// Snapshotter is a Backend whose instances can be saved.
type Snapshotter interface {
	Backend
	// Save copies what sb's instance wrote, over its image and its snapshot, to the
	// empty directory dir, as instances that start from it will want it. It is all
	// of one moment: a running instance is held still meanwhile, and goes on after
	// that, whoever is killed. It fails with Exhausted where the disk is full;
	// after an error what is in dir is for the caller to delete.
	Save(ctx context.Context, sb *Sandbox, dir string) (Saved, error)
}

// Snapshots keeps snapshots. What a method did is durable when it returns, and
// after an error nothing of it is there.
type Snapshots interface {
	// Open returns all that are kept, and deletes what an earlier daemon left
	// half made or half deleted. It comes before all else, once.
	Open(ctx context.Context) ([]Snapshot, error)
	// Keep has fill write the files of s to an empty directory, and keeps them
	// as s, with the size and the notes that fill returned.
	Keep(ctx context.Context, s Snapshot, fill func(ctx context.Context, dir string) (Saved, error)) (Snapshot, error)
	// Put changes what is known of one that is kept: Shared and Removed.
	Put(ctx context.Context, s Snapshot) error
	// Delete deletes one. One that is gone is no error.
	Delete(ctx context.Context, id string) error
}

// NewSnapshotID returns "sn_" and 20 characters of base32 read from rand.
func NewSnapshotID(rand io.Reader) (string, error) {
	id, err := NewID(rand)
	return snapshotPrefix + strings.TrimPrefix(id, idPrefix), err
}

// ValidSnapshotID reports whether id could have come from NewSnapshotID. Such
// a string is safe as a file name.
func ValidSnapshotID(id string) bool {
	s, ok := strings.CutPrefix(id, snapshotPrefix)
	return ok && ValidID(idPrefix+s)
}

// Snapshot saves what a sandbox wrote and keeps it, as the sandbox's owner's.
// A running one is held still while its files are copied. A sandbox whose
// workspace is a directory of the host is Unsupported: that is not its own to
// keep. What is mounted from the host elsewhere is no part of a snapshot.
func (m *Manager) Snapshot(ctx context.Context, c Caller, ref string) (Snapshot, error) {
	var out Snapshot
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) (err error) {
		out, err = m.snapshot(ctx, e)
		return err
	})
	return out, err
}

func (m *Manager) snapshot(ctx context.Context, e *entry) (Snapshot, error) {
	sb := m.record(e)
	b, err := m.canSave(sb)
	if err != nil {
		return Snapshot{}, err
	}
	done, err := m.admitSnapshot(sb.Owner)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	s := Snapshot{Owner: sb.Owner, Image: sb.Spec.Image, Parent: sb.Spec.Snapshot, Source: sb.ID, CreatedAt: m.now()}
	if s.ID, err = m.random(NewSnapshotID); err != nil {
		return Snapshot{}, err
	}
	s, err = m.snapshots.Keep(ctx, s, func(ctx context.Context, dir string) (Saved, error) {
		return b.Save(ctx, sb, dir)
	})
	if err != nil {
		return Snapshot{}, failure(err, sb.Spec.Name, "save what it wrote")
	}
	m.mu.Lock()
	m.saved[s.ID] = s
	m.mu.Unlock()
	m.note(ctx, sb, EventSnapshot, "saved as %s", s.ID)
	return s, nil
}

// admitSnapshot refuses one more snapshot than an owner may have.
func (m *Manager) admitSnapshot(owner string) (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if most := m.quotas.Quota(owner).Snapshots; most > 0 {
		n := m.saving[owner]
		for _, s := range m.saved {
			if s.Owner == owner && !s.Removed {
				n++
			}
		}
		if n >= most {
			return nil, Errorf(Exhausted, "there are %d snapshots of this owner, and no more may be kept", n).
				WithHint("carboy snapshot rm ID")
		}
	}
	m.saving[owner]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.saving[owner]--; m.saving[owner] == 0 {
			delete(m.saving, owner)
		}
	}, nil
}

// canSave says why what sb wrote can't be saved.
func (m *Manager) canSave(sb *Sandbox) (Snapshotter, error) {
	if m.snapshots == nil {
		return nil, errNoSnapshots
	}
	name := sb.Spec.Name
	if sb.State != StateStopped {
		if err := mustRun(sb); err != nil {
			return nil, err
		}
	}
	b, err := m.backend(sb)
	if err != nil {
		return nil, err
	}
	s, ok := b.(Snapshotter)
	if !ok {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s can't save what it wrote", name, sb.Backend)
	}
	if sb.Spec.Workspace.Mode == WorkspaceVolume {
		return nil, Errorf(Unsupported, "sandbox %s: its /workspace is a volume, which is not the sandbox's to keep", name).
			WithHint("create it without --workspace: it has one of its own then")
	}
	if sb.Spec.Workspace.Mode != WorkspacePrivate {
		return nil, Errorf(Unsupported, "sandbox %s: its /workspace is a directory of the host, which is not the sandbox's to keep", name).
			WithHint("create it without --workspace: it has one of its own then")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.chainLocked(sb.Spec.Snapshot) + 1; n > MaxSnapshotChain {
		return nil, Errorf(Exhausted, "sandbox %s: it lies over %d snapshots already, and no more can lie over one another", name, n-1).
			WithHint("start anew from an earlier snapshot, or from the image")
	}
	return s, nil
}

var errNoSnapshots = Errorf(Unsupported, "there are no snapshots here")

// SnapshotDepth counts a snapshot and those below it, removed ones too. It is 0
// for "".
func (m *Manager) SnapshotDepth(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chainLocked(id)
}

// chainLocked counts a snapshot and those below it.
func (m *Manager) chainLocked(id string) (n int) {
	for ; id != "" && n <= MaxSnapshotChain; id = m.saved[id].Parent {
		n++
	}
	return n
}

// GetSnapshot returns one of the caller's snapshots.
func (m *Manager) GetSnapshot(_ context.Context, c Caller, id string) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readyLocked(c); err != nil {
		return Snapshot{}, err
	}
	return m.snapshotLocked(c, id)
}

func (m *Manager) snapshotLocked(c Caller, id string) (Snapshot, error) {
	s, ok := m.saved[id]
	if !ok || s.Removed || !c.Admin && s.Owner != c.Owner {
		return Snapshot{}, unknownSnapshot(id)
	}
	s.Notes = slices.Clone(s.Notes)
	return s, nil
}

func unknownSnapshot(id string) error {
	if !ValidSnapshotID(id) {
		id = refText(id)
	}
	return Errorf(NotFound, "snapshot %s: not found", id).WithHint("carboy snapshot ls")
}

// Snapshots returns the caller's snapshots, and everyone's for an admin,
// oldest first.
func (m *Manager) Snapshots(_ context.Context, c Caller) ([]Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readyLocked(c); err != nil {
		return nil, err
	}
	var out []Snapshot
	for id := range m.saved {
		if s, err := m.snapshotLocked(c, id); err == nil {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// ShareSnapshot lets everyone's sandboxes start from a snapshot, or no longer.
// Those that did go on.
func (m *Manager) ShareSnapshot(ctx context.Context, c Caller, id string, shared bool) (Snapshot, error) {
	return m.changeSnapshot(ctx, c, id, func(s *Snapshot) { s.Shared = shared })
}

// RemoveSnapshot removes a snapshot: no sandbox starts from it any more. Its
// files go with the last sandbox and the last snapshot that lie over it.
func (m *Manager) RemoveSnapshot(ctx context.Context, c Caller, id string) error {
	if _, err := m.changeSnapshot(ctx, c, id, func(s *Snapshot) { s.Removed = true }); err != nil {
		return err
	}
	m.mu.Lock()
	m.pool.forgetSnapshot(id)
	m.mu.Unlock()
	m.collect(ctx)
	return nil
}

// changeSnapshot writes down a change of one snapshot, and only then heeds it.
func (m *Manager) changeSnapshot(ctx context.Context, c Caller, id string, edit func(*Snapshot)) (Snapshot, error) {
	ctx, done, err := m.begin(ctx, c)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	release, err := m.holdSnapshots(ctx)
	if err != nil {
		return Snapshot{}, failure(err, "", "wait for its snapshot")
	}
	defer release()
	m.mu.Lock()
	s, err := m.snapshotLocked(c, id)
	m.mu.Unlock()
	if err != nil {
		return Snapshot{}, err
	}
	edit(&s)
	if err := m.snapshots.Put(ctx, s); err != nil {
		return Snapshot{}, snapshotFailure(err, id, "write its record")
	}
	m.mu.Lock()
	m.saved[id] = s
	m.mu.Unlock()
	return s, nil
}

// snapshotFailure is failure for a snapshot.
func snapshotFailure(err error, id, doing string) error {
	e := Errorf(Internal, "snapshot %s: could not %s", id, doing).WithHint("the daemon's log says why")
	if KindOf(err) != Internal {
		return err
	}
	e.Err = err
	return e
}

// holdSnapshots waits until the records of snapshots are the caller's alone to
// change.
func (m *Manager) holdSnapshots(ctx context.Context) (release func(), err error) {
	select {
	case m.snapshotTurn <- struct{}{}:
		return func() { <-m.snapshotTurn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
