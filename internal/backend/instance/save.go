package instance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Snapshots has the layers of snapshots. A Backend without one has none.
type Snapshots interface {
	// Layers returns the directories of a snapshot's layers and of those below
	// it, the lowest first.
	Layers(ctx context.Context, id string) ([]string, error)
}

// saveOrder is what the daemon hands to the process that copies an instance's layers.
type saveOrder struct {
	Dir      string `json:"dir"`
	Disk     string `json:"disk"`
	Holder   string `json:"holder"` // as Layout has it
	Rootless bool   `json:"rootless"`
	To       string `json:"to"`
	// RootOnly leaves /workspace out, which is not the instance's own.
	RootOnly bool `json:"root_only"`
}

// savedLayers is what that process answers.
type savedLayers struct {
	Size    int64 `json:"size"`
	Devices int64 `json:"devices"`
	Full    bool  `json:"full"`    // the disk was
	Changed bool  `json:"changed"` // something wrote meanwhile
}

// Save implements sandbox.Snapshotter. The layers are copied by a process with
// a mount namespace of its own, where a running instance's disk is mounted a second
// time. A guest with a kernel of its own writes back first what that holds.
func (b *Backend) Save(ctx context.Context, sb *sandbox.Sandbox, to string) (sandbox.Saved, error) {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return sandbox.Saved{}, err
	}
	if !exists(filepath.Join(dir, fileSince)) {
		return sandbox.Saved{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s: there is nothing of it yet", sb.ID)
	}
	o := saveOrder{Dir: dir, Rootless: b.Rootless(), To: to, RootOnly: sb.Spec.Workspace.Mode != sandbox.WorkspacePrivate}
	if image := filepath.Join(dir, fileDisk); exists(image) {
		o.Disk = image
		if o.Holder, err = b.opts.Disks.Holder(ctx); err != nil {
			return sandbox.Saved{}, err
		}
	}
	if bx, err := readRecord(dir); err != nil || !bx.alive() {
		return b.save(ctx, o)
	}
	return b.saveHeld(ctx, sb.ID, o)
}

// holdLimit bounds how long an agent may take to keep its commands still.
const holdLimit = time.Minute

// still has an instance's commands held still until release is called, and what they wrote written back.
func (b *Backend) still(ctx context.Context, id string) (release func(), err error) {
	g := b.agent(id)
	release, err = g.Hold(ctx, holdLimit)
	if _, refused := errors.AsType[*agent.StatusError](err); refused {
		err = sandbox.Errorf(sandbox.Unavailable, "the sandbox's commands did not come to a stop, so that no moment of its files could be kept").
			WithHint("try again, or stop the sandbox first")
	}
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("hold the commands still: %w", err)
	}
	if !b.wall.OwnCommands {
		if err := g.Sync(ctx); err != nil {
			release()
			return nil, fmt.Errorf("have the guest write back: %w", err)
		}
	}
	return release, nil
}

// wasStill fails where an instance's commands were not held since still.
func (b *Backend) wasStill(ctx context.Context, id string) error {
	if err := b.agent(id).Held(ctx); err != nil {
		e := sandbox.Errorf(sandbox.Unavailable, "the sandbox's commands did not stay still while its files were read").
			WithHint("try again, or stop the sandbox first")
		e.Err = err
		return e
	}
	return nil
}

// saveHeld saves a running instance while its agent keeps the commands still.
func (b *Backend) saveHeld(ctx context.Context, id string, o saveOrder) (sandbox.Saved, error) {
	release, err := b.still(ctx, id)
	if err != nil {
		return sandbox.Saved{}, err
	}
	defer release()
	saved, err := b.save(ctx, o)
	if err != nil {
		return sandbox.Saved{}, err
	}
	return saved, b.wasStill(ctx, id)
}

// save has the layers copied.
func (b *Backend) save(ctx context.Context, o saveOrder) (sandbox.Saved, error) {
	var answer savedLayers
	if err := b.roles.Ask(ctx, roleSave, o, &answer, nil); err != nil {
		return sandbox.Saved{}, fmt.Errorf("copy what the instance wrote: %w", err)
	}
	switch {
	case answer.Full:
		return sandbox.Saved{}, sandbox.Errorf(sandbox.Exhausted, "the disk of carboy's state is full: nothing was kept").
			WithHint("free some space there, then try again")
	case answer.Changed:
		return sandbox.Saved{}, sandbox.Errorf(sandbox.Unavailable, "something wrote to the sandbox's files while they were copied").
			WithHint("try again, or stop the sandbox first")
	}
	saved := sandbox.Saved{Size: answer.Size}
	if answer.Devices > 0 {
		saved.Notes = append(saved.Notes, fmt.Sprintf("device files were left out: %d", answer.Devices))
	}
	return saved, nil
}
