package instance

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// machine is what the commands of an instance are shown of its limits: those that this
// machine keeps. Of a kernel of their own they are shown all, for it has no other size; nil
// is nothing.
func (b *Backend) machine(id string, l sandbox.Limits) *guest.Machine {
	if !b.wall.OwnCommands {
		return &guest.Machine{CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs}
	}
	var m guest.Machine
	for _, e := range b.cgroups.Report(b.wall.Limits(l)) {
		switch {
		case !e.Enforced:
		case e.Promise == sandbox.LimitCPUs:
			m.CPUs, m.Processors = l.CPUs, b.wall.Processors(id, l.CPUs)
		case e.Promise == sandbox.LimitMemory:
			m.Memory = l.Memory
		case e.Promise == sandbox.LimitPIDs:
			m.PIDs = l.PIDs
		}
	}
	if m.CPUs == 0 && m.Memory == 0 && m.PIDs == 0 {
		return nil
	}
	return &m
}

// showLimits has the programs of a running instance see limits that have changed.
func (b *Backend) showLimits(ctx context.Context, id string, l sandbox.Limits, out *sandbox.Resized) {
	m := b.machine(id, l)
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := b.agent(id).Machine(ctx, *m); err != nil {
		b.opts.Log.Warn("show an instance its limits", "id", id, "err", err)
		for _, name := range []string{sandbox.LimitCPUs, sandbox.LimitMemory} {
			out.Notes[name] = "its programs go on seeing what they were started with, until its next start"
		}
	}
}
