package sandbox

import (
	"context"
)

// fromSnapshot gives spec the image that its snapshot lies over, if it names
// one that the caller may start from. Whether that is there still is known
// only once it is in use: see usableLocked.
func (m *Manager) fromSnapshot(c Caller, spec Spec) (Spec, error) {
	if spec.Snapshot == "" {
		return spec, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(c, spec.Snapshot); err != nil {
		return Spec{}, err
	}
	s := m.saved[spec.Snapshot]
	digest := ImageDigest(spec.Image)
	if spec.Image == "" || digest != "" && digest == ImageDigest(s.Image) { // under whatever name
		spec.Image = s.Image
	}
	if spec.Image != s.Image {
		return Spec{}, Errorf(Invalid, "snapshot %s: it lies over the image %s, not over %s", s.ID, s.Image, refText(spec.Image)).
			WithHint("leave the image out")
	}
	return spec, nil
}

// usableLocked says why c can't start a sandbox from a snapshot.
func (m *Manager) usableLocked(c Caller, id string) error {
	if id == "" {
		return nil
	}
	if m.snapshots == nil {
		return errNoSnapshots
	}
	s, ok := m.saved[id]
	if !ok || s.Removed || !c.Admin && !s.Shared && s.Owner != c.Owner {
		return unknownSnapshot(id)
	}
	return nil
}

// loadSnapshots reads what is kept, before anything else is done.
func (m *Manager) loadSnapshots(ctx context.Context) error {
	if m.snapshots == nil {
		return nil
	}
	list, err := m.snapshots.Open(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range list {
		m.saved[s.ID] = s
	}
	return nil
}

// snapshotsInUseLocked are those that a sandbox, a warm instance or another
// snapshot lies over.
func (m *Manager) snapshotsInUseLocked() map[string]bool {
	used := make(map[string]bool)
	for _, e := range m.entries {
		used[e.snapshot] = true
	}
	for _, w := range m.pool.instances {
		used[w.key.snapshot] = true
	}
	for _, s := range m.saved {
		used[s.Parent] = true
	}
	return used
}

// collect deletes the files of removed snapshots that nothing lies over any
// more. What can't be deleted is tried again when the next one goes.
func (m *Manager) collect(ctx context.Context) {
	if len(m.useless()) == 0 {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	release, err := m.holdSnapshots(ctx)
	if err != nil {
		return
	}
	defer release()
	for again := true; again; {
		again = false
		for _, id := range m.useless() {
			if err := m.snapshots.Delete(ctx, id); err != nil {
				m.log.Error("delete a removed snapshot", "id", id, "error", err)
				continue
			}
			m.mu.Lock()
			delete(m.saved, id)
			m.mu.Unlock()
			m.log.Info("snapshot deleted", "id", id)
			again = true // what was below it may be free now
		}
	}
}

// useless lists the removed snapshots that nothing lies over. Nothing will any
// more: a removed one is used for nothing new but by what lies over it.
func (m *Manager) useless() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.snapshotsInUseLocked()
	var ids []string
	for id, s := range m.saved {
		if s.Removed && !used[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
