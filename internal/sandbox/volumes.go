package sandbox

import (
	"context"
	"slices"
)

// Volumes are the disks that outlive sandboxes.
type Volumes interface {
	// Has returns nil where owner has the volume with that ID, and NotFound
	// where there is none, or it is another's.
	Has(ctx context.Context, owner, id string) error
}

const maxVolumeName = 128 // bytes

// volumes returns the IDs of those that s shows, each once.
func (s Spec) volumes() []string {
	var ids []string
	if s.Workspace.Volume != "" {
		ids = append(ids, s.Workspace.Volume)
	}
	for _, m := range s.Mounts {
		if m.Volume != "" {
			ids = append(ids, m.Volume)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// VolumeUsers returns the names of the sandboxes, running or not, that have
// the volume with that ID, sorted. It changes at any time: delete by it only
// within WithVolumes.
func (m *Manager) VolumeUsers(id string) []string { return m.registry.volumeUsers(id) }

// WithVolumes calls f while no volume can come into use: a create of a sandbox
// with one waits, at the point where it looks whether that is there, until f
// has returned. f may call VolumeUsers, and nothing else of the Manager.
// Before the records are read it fails with Unavailable, without f: what is in
// use is not known.
func (m *Manager) WithVolumes(ctx context.Context, f func(ctx context.Context) error) error {
	return m.alone(ctx, m.volumes.turn, "volumes", f)
}

// volumes are for volumes what images is for images.
type volumes struct {
	store Volumes
	turn  turn // taken before registry.mu
}

// pin sees that owner has all that spec mounts, and enters them as in use, by
// enter, before they can be deleted.
func (v *volumes) pin(ctx context.Context, owner string, spec Spec, enter func() error) error {
	ids := spec.volumes()
	if len(ids) == 0 {
		return enter()
	}
	if err := v.turn.take(ctx); err != nil {
		return err
	}
	defer v.turn.give()
	for _, id := range ids {
		if err := v.store.Has(ctx, owner, id); err != nil {
			return err
		}
	}
	return enter()
}
