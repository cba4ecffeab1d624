package sandbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Disk is the host's disk that instances and volumes lie on. What they write is held
// while it has no room: it waits, and nothing of it fails.
type Disk interface {
	// Held says what of an instance's or a volume's is held, by its ID.
	Held(id string) (Held, bool)
	// Broken says why the disk of an instance, or a volume, can't be used before it is
	// mounted anew; "": it can.
	Broken(id string) string
	// Watch calls changed, one call at a time, whenever Held or Broken may answer otherwise, until
	// ctx ends.
	Watch(ctx context.Context, changed func())
	// Drain lets an instance that is being ended use some of what is kept free.
	Drain(ctx context.Context, id string) error
	// Drop has what an instance wrote given up rather than held, for it is to be removed.
	Drop(ctx context.Context, id string) error
	// Room returns how many bytes can be written before something is held, and a directory
	// of the disk.
	Room() (spare int64, at string)
}

// Held says that a sandbox's writes wait for room on the host's disk.
type Held struct {
	Since time.Time
	Need  int64  // bytes that must be freed for it to go on
	Path  string // a directory of the disk, for a caller on this machine
}

// What the beginning of something needs at least, in bytes.
const (
	createRoom   = 8 << 20
	startRoom    = 1 << 20
	snapshotRoom = 8 << 20
)

// unlimited is the Disk of a Manager that was given none: it holds nothing.
type unlimited struct{}

func (unlimited) Held(string) (Held, bool)            { return Held{}, false }
func (unlimited) Broken(string) string                { return "" }
func (unlimited) Watch(ctx context.Context, _ func()) { <-ctx.Done() }
func (unlimited) Drain(context.Context, string) error { return nil }
func (unlimited) Drop(context.Context, string) error  { return nil }
func (unlimited) Room() (int64, string)               { return 1 << 62, "" }

// local reports whether a caller is a user of this machine, who may be told of its
// directories.
func (c Caller) local() bool { return strings.HasPrefix(c.Owner, "uid:") }

// diskAt names the disk for an owner: a tenant is not told of the host's directories.
func diskAt(owner, at string) string {
	if at == "" || !(Caller{Owner: owner}).local() {
		return "the machine's disk"
	}
	return "the disk of " + at
}

// room refuses to begin something that needs so many bytes where the disk has not as many
// to spare.
func (c *common) room(owner, what string, need int64) error {
	return RoomFor(c.disk, owner, what, need)
}

// BeginRoom is what those have to ask RoomFor for, in bytes, who begin something and don't know
// what it takes.
const BeginRoom = createRoom

// RoomFor refuses, with Exhausted, to begin something that needs so many bytes where a disk has
// not as many to spare. what says it in the words of a person.
func RoomFor(d Disk, owner, what string, need int64) error {
	if d == nil {
		return nil
	}
	spare, at := d.Room()
	if spare >= need {
		return nil
	}
	return Errorf(Exhausted, "%s: %s is full: %s are needed, and %s can be used", what, diskAt(owner, at), term.FormatSize(need), term.FormatSize(spare)).
		WithHint("free some space there, or carboy rm what is not needed, then try again")
}

// shown is a copy of sb for a caller, with what it is held by.
func (c *common) shown(by Caller, sb *Sandbox) *Sandbox {
	out := sb.Clone()
	if h, ok := c.heldBy(sb); ok {
		if !by.local() {
			h.Path = ""
		}
		out.Held = &h
	}
	out.DiskBroken = c.brokenBy(sb)
	return out
}

// heldBy says whether a sandbox's writes wait: those to its own disk, or to a volume.
func (c *common) heldBy(sb *Sandbox) (Held, bool) {
	for _, id := range sb.disks() {
		if h, ok := c.disk.Held(id); ok {
			return h, true
		}
	}
	return Held{}, false
}

// brokenBy says why a sandbox's disk, or that of a volume of it, is broken.
func (c *common) brokenBy(sb *Sandbox) string {
	for _, id := range sb.disks() {
		if why := c.disk.Broken(id); why != "" {
			return why
		}
	}
	return ""
}

// disks are the IDs of what a sandbox that is not stopped has mounted.
func (sb *Sandbox) disks() []string {
	if sb.State == StateStopped {
		return nil
	}
	ids := []string{sb.ID, sb.Spec.Workspace.Volume}
	for _, m := range sb.Spec.Mounts {
		ids = append(ids, m.Volume)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// watchDisk notes when sandboxes are held and go on, and when their disks break, until
// ctx ends.
func (m *Manager) watchDisk(ctx context.Context) {
	held, broken := make(map[string]bool), make(map[string]bool)
	m.disk.Watch(ctx, func() {
		now, ended := make(map[string]bool), make(map[string]bool)
		for _, sb := range m.registry.records() {
			if why := m.brokenBy(sb); why != "" {
				if ended[sb.ID] = true; !broken[sb.ID] {
					m.note(ctx, sb, EventError, "its disk is broken: %s; what was synced is there after carboy stop %s && carboy start %s", why, sb.Spec.Name, sb.Spec.Name)
				}
			}
			h, ok := m.heldBy(sb)
			if ok {
				now[sb.ID] = true
			}
			switch {
			case ok && !held[sb.ID]:
				m.note(ctx, sb, eventHeld, "held: %s is full, and what it writes waits until %s are free there", diskAt(sb.Owner, h.Path), term.FormatSize(h.Need))
			case !ok && held[sb.ID]:
				m.note(ctx, sb, eventReleased, "goes on: there is room on the disk again")
			}
		}
		held, broken = now, ended
	})
}

// dropHeld has what a sandbox wrote given up where it is held: an operation that waits for
// it would have its turn for long. One that the caller may not name is left alone.
func (m *Manager) dropHeld(ctx context.Context, c Caller, ref string) {
	if m.ops.ready(c) != nil {
		return
	}
	_, sb, err := m.registry.find(c, ref)
	if err != nil {
		return
	}
	if _, held := m.disk.Held(sb.ID); !held {
		return
	}
	if err := m.disk.Drop(ctx, sb.ID); err != nil {
		m.log.Warn("give up a disk that is to be removed", "id", sb.ID, "error", err)
	}
}
