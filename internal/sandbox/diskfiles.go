package sandbox

import (
	"context"
	"io"
)

// DiskFiles looks at what the disks of instances hold that don't run, without starting them.
// What it writes begins only once nothing but the writer can fail, or else ends with an error.
type DiskFiles interface {
	// ListDisk writes an api.DiskListing of what was seen inside at a path.
	ListDisk(ctx context.Context, sb *Sandbox, path string, recursive bool, w io.Writer) error
	// ReadDisk writes an action.ReadFileReply of the beginning of a file, as it was seen inside.
	ReadDisk(ctx context.Context, sb *Sandbox, path string, maxBytes int64, w io.Writer) error
	// ExportDisk writes the image of the disk, as package sparse has it, without what was in
	// runtime directories. A disk that is no image is Unsupported.
	ExportDisk(ctx context.Context, sb *Sandbox, w io.Writer) error
	// ScrubDisk erases runtime directories from the disk. A disk that is no image is Unsupported.
	ScrubDisk(ctx context.Context, sb *Sandbox, progress func(DiskStep)) error
}

// DiskStep is how far a scrub is.
type DiskStep struct {
	Step        string
	Done, Total uint64 // of the step, in parts
}

// ListDisk has DiskFiles list a stopped sandbox's disk.
func (m *Manager) ListDisk(ctx context.Context, c Caller, ref, path string, recursive bool, w io.Writer) error {
	return m.onDisk(ctx, c, ref, "list its disk", func(ctx context.Context, d DiskFiles, sb *Sandbox) error {
		return d.ListDisk(ctx, sb, path, recursive, w)
	})
}

// ReadDisk has DiskFiles read a file of a stopped sandbox's disk.
func (m *Manager) ReadDisk(ctx context.Context, c Caller, ref, path string, maxBytes int64, w io.Writer) error {
	return m.onDisk(ctx, c, ref, "read its disk", func(ctx context.Context, d DiskFiles, sb *Sandbox) error {
		return d.ReadDisk(ctx, sb, path, maxBytes, w)
	})
}

// ExportDisk has DiskFiles write the image of a stopped sandbox's disk.
func (m *Manager) ExportDisk(ctx context.Context, c Caller, ref string, w io.Writer) error {
	return m.onDisk(ctx, c, ref, "export its disk", func(ctx context.Context, d DiskFiles, sb *Sandbox) error {
		if err := m.lives.room(sb.Owner, "export the disk of "+sb.Spec.Name, snapshotRoom); err != nil {
			return err
		}
		return d.ExportDisk(ctx, sb, w)
	})
}

// ScrubDisk has DiskFiles erase what was in runtime directories of a stopped sandbox.
func (m *Manager) ScrubDisk(ctx context.Context, c Caller, ref string, progress func(DiskStep)) error {
	return m.onDisk(ctx, c, ref, "scrub its disk", func(ctx context.Context, d DiskFiles, sb *Sandbox) error {
		if err := m.lives.room(sb.Owner, "scrub the disk of "+sb.Spec.Name, snapshotRoom); err != nil {
			return err
		}
		if err := d.ScrubDisk(ctx, sb, progress); err != nil {
			return err
		}
		m.lives.note(ctx, sb, "disk.scrubbed", "its disk was scrubbed")
		return nil
	})
}

// onDisk does something with the disk of a stopped sandbox, which can't be started meanwhile.
func (m *Manager) onDisk(ctx context.Context, c Caller, ref, what string, do func(context.Context, DiskFiles, *Sandbox) error) error {
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e)
		if err := mustBeStopped(sb); err != nil {
			return err
		}
		b, err := m.lives.backends.of(sb)
		if err != nil {
			return err
		}
		d := b.Capabilities().Disks
		if d == nil {
			return Errorf(Unsupported, "sandbox %s: its wall %s can't show the disk of one that is stopped", sb.Spec.Name, sb.Backend)
		}
		if err := do(ctx, d, sb); err != nil {
			return failure(err, sb.Spec.Name, what)
		}
		return nil
	})
	return err
}

// mustBeStopped says why the disk of sb can't be looked at.
func mustBeStopped(sb *Sandbox) error {
	name := sb.Spec.Name
	switch {
	case sb.State == StateStopped && sb.Suspended:
		return Errorf(Conflict, "sandbox %s: it is paused, and its processes go on from what is on its disk", name).
			WithHint("carboy start %[1]s && carboy stop %[1]s", name)
	case sb.State == StateStopped:
		return nil
	case sb.State == StateCreated:
		return Errorf(Unavailable, "sandbox %s: it is being started, and only the disk of a stopped one can be looked at", name).WithHint("carboy stop %s", name)
	}
	return Errorf(Conflict, "sandbox %s: it is %s, and only the disk of a stopped one can be looked at", name, sb.State).WithHint("carboy stop %s", name)
}
