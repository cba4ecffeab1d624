package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Resizable implements sandbox.Resizer.
func (b *Backend) Resizable(_ context.Context, sb *sandbox.Sandbox, to sandbox.Limits) error {
	if to.Disk > sb.Spec.Limits.Disk && b.diskErr == nil {
		if err := disk.CanGrow(); err != nil {
			return err
		}
	}
	if to.Memory >= sb.Spec.Limits.Memory {
		return nil
	}
	u, err := b.neededUsage(sb.ID, to.Memory)
	if err != nil {
		return nil // it is not limited here, or does not run
	}
	// The figure is the one that is shown as in use. The group's own limit is higher, by
	// what the wall and the gate may take: what is below that would be taken, and then
	// end what runs with the next page that it asks for.
	if u.Memory > to.Memory {
		return sandbox.Errorf(sandbox.Conflict, "memory %s: sandbox %s uses %s now",
			term.FormatSize(to.Memory), sb.Spec.Name, term.FormatSize(u.Memory)).
			WithHint("end something in it first, or stop it: carboy stop %s", sb.Spec.Name)
	}
	return nil
}

// neededUsage is what an instance uses. Where that is more than most, the kernel is asked first to take back
// what the instance can do without: version 1 of control groups does not tell that apart.
func (b *Backend) neededUsage(id string, most int64) (sandbox.Usage, error) {
	u, err := b.groupUsage(id)
	if err != nil || u.Memory <= most {
		return u, err
	}
	g, err := b.cgroups.Open(id)
	if err != nil {
		return u, err
	}
	if err := g.Reclaim(u.Memory + u.Cache - most); err != nil {
		b.opts.Log.Info("take memory back that an instance can do without", "id", id, "err", err)
	}
	return b.groupUsage(id)
}

// hostLimits are those of the control group of an instance of sb's, its gate with it.
func (b *Backend) hostLimits(sb *sandbox.Sandbox, l sandbox.Limits) cgroup.Limits {
	limits := b.wall.Limits(l)
	if sb.Spec.Networked() {
		limits.Memory += gateMemory
		limits.PIDs += gatePIDs
	}
	return limits
}

// Resize implements sandbox.Resizer. The group on the host is told first of what
// grows and last of what shrinks, so that the guest's own limit is the one that
// is met.
func (b *Backend) Resize(ctx context.Context, sb *sandbox.Sandbox, to sandbox.Limits) sandbox.Resized {
	from := sb.Spec.Limits
	out := sandbox.Resized{Later: map[string]string{}, Notes: map[string]string{}}
	if b.wall.Seen != nil {
		b.wall.Seen(from, to, &out)
	}
	for name := range out.Later {
		keep(name, &to, from)
	}
	var err error
	if to.PIDs < from.PIDs {
		err = b.limitGuest(ctx, sb.ID, to.PIDs)
	}
	if err == nil {
		err = b.resizeGroup(sb, to)
		if sandbox.KindOf(err) == sandbox.Unsupported && !b.wall.OwnCommands && to.Memory == from.Memory && to.CPUs == from.CPUs {
			err = nil // without groups on the host the guest's own is what counts processes
		}
	}
	if err == nil && to.PIDs > from.PIDs {
		err = b.limitGuest(ctx, sb.ID, to.PIDs)
	}
	if err != nil {
		b.opts.Log.Warn("change the limits of an instance", "id", sb.ID, "err", err)
		if back := b.resizeGroup(sb, from); back != nil {
			b.opts.Log.Error("give an instance the limits back that it had", "id", sb.ID, "err", back)
		}
		for _, name := range []string{sandbox.LimitCPUs, sandbox.LimitMemory, sandbox.LimitPIDs} {
			if _, ok := out.Later[name]; !ok {
				out.Later[name] = resizeReason(err)
			}
		}
		return out
	}
	b.showLimits(ctx, sb.ID, to, &out)
	return out
}

// keep leaves one limit as it is.
func keep(name string, to *sandbox.Limits, from sandbox.Limits) {
	switch name {
	case sandbox.LimitCPUs:
		to.CPUs = from.CPUs
	case sandbox.LimitMemory:
		to.Memory = from.Memory
	case sandbox.LimitPIDs:
		to.PIDs = from.PIDs
	}
}

// resizeReason is why a limit could not be changed, fit to show.
func resizeReason(err error) string {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind != sandbox.Internal {
		return e.Msg
	}
	return "its running instance could not be changed"
}

func (b *Backend) resizeGroup(sb *sandbox.Sandbox, to sandbox.Limits) error {
	g, err := b.cgroups.Open(sb.ID)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return sandbox.Errorf(sandbox.Unsupported, "its running instance is in no control group")
	}
	if err != nil {
		return err
	}
	var commands cgroup.Limits
	if b.wall.OwnCommands {
		commands = commandLimits(to)
	}
	return g.Set(b.hostLimits(sb, to), commands)
}

// limitGuest tells the agent how many processes there may be.
func (b *Backend) limitGuest(ctx context.Context, id string, pids int64) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := b.agent(id).Limit(ctx, guest.Limits{PIDs: pids}); err != nil {
		return &sandbox.Error{Kind: sandbox.Unsupported, Msg: "its agent could not be told", Err: err}
	}
	return nil
}

// grown is what is remembered of an image that was grown: it is noted before the
// image takes its place, and counts once the image there has as many blocks.
type grown struct {
	Size   disk.Size `json:"size"`
	Blocks uint64    `json:"blocks"`
}

// Grow implements sandbox.Resizer: the image is copied, the copy is grown, and
// takes its place. A kill in between leaves the one or the other, and what is
// noted says which.
func (b *Backend) Grow(ctx context.Context, id string, from, to sandbox.Limits) (sandbox.Limits, error) {
	dir, err := b.dir(id)
	if err != nil {
		return from, err
	}
	path, next := filepath.Join(dir, fileDisk), filepath.Join(dir, fileGrown)
	if b.diskErr != nil || !exists(path) {
		from.Disk, from.Inodes = to.Disk, max(from.Inodes, to.Inodes) // nothing holds it to either
		return from, nil
	}
	is := disk.Size{Bytes: from.Disk, Inodes: from.Inodes}
	if g, err := readGrown(dir); err == nil {
		if now, err := disk.Blocks(path); err == nil && now == g.Blocks {
			is = g.Size
		}
	}
	if is.Bytes >= to.Disk {
		from.Disk, from.Inodes = is.Bytes, is.Inodes
		return from, nil
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return from, fmt.Errorf("grow disk: %w", err)
	}
	if is, err = disk.Grow(ctx, path, next, is, to.Disk); err != nil {
		return from, err
	}
	if err := b.replaceDisk(dir, path, next, is); err != nil {
		_ = os.Remove(next)
		return from, fmt.Errorf("grow disk: %w", err)
	}
	from.Disk, from.Inodes = is.Bytes, is.Inodes
	return from, nil
}

func (b *Backend) replaceDisk(dir, path, next string, is disk.Size) error {
	blocks, err := disk.Blocks(next)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(grown{Size: is, Blocks: blocks})
	if err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(dir, fileGrownNote), raw, durable.Options{}); err != nil {
		return err
	}
	return durable.Rename(next, path, 0)
}

func readGrown(dir string) (g grown, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, fileGrownNote))
	if err != nil {
		return g, err
	}
	return g, json.Unmarshal(raw, &g)
}
