package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// OOMKills returns how many of the group's processes were killed because
// memory ran out. Those of its commands' part are not among them: that counts
// by itself, see CommandsOOMKills.
func (g *Group) OOMKills() (uint64, error) {
	if t := g.treeOf("memory"); t != nil && t.version == 2 {
		// The group's own file counts for all groups inside.
		b, err := g.read(t, agentGroup+"/memory.events")
		if n, ok := parseKeyed(b, "oom_kill"); err == nil && ok {
			return n, nil
		}
	}
	return g.keyed("memory", g.host.oomFile(), "oom_kill")
}

// oomFile is where a group's kills are counted.
func (h *Host) oomFile() string {
	if h.ctls["memory"].Version == 2 {
		return "memory.events"
	}
	return "memory.oom_control"
}

// AwaitOOM blocks until one of the group's processes has been killed because
// the memory limit was reached, now or since before was the count of
// OOMKills, or until ctx ends. Under version 2 the kernel ends the whole group
// instead (Limits.OOMTogether), so there it fails with Unsupported.
func (g *Group) AwaitOOM(ctx context.Context, before uint64) error {
	t := g.treeOf("memory")
	if t == nil {
		return g.lacking("memory")
	}
	if t.version != 1 {
		return sandbox.Errorf(sandbox.Unsupported, "out of memory is not announced under cgroup version 2")
	}
	events, err := oomEvents(path.Join(t.path(g.host.ns), g.name))
	if err != nil {
		return fmt.Errorf("watch for out of memory: %w", err)
	}
	defer events.Close()
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	var count [8]byte
	for {
		killed, err := g.killedSoon(ctx, before)
		if killed || err != nil {
			return err
		}
		if _, err := events.Read(count[:]); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("watch for out of memory: %w", err)
		}
	}
}

// The kernel announces that it looks for a victim and counts it after: how
// long the count is looked at, and how often.
const (
	oomSettle = time.Second
	oomLook   = 5 * time.Millisecond
)

// killedSoon reports whether the count passes before within oomSettle.
func (g *Group) killedSoon(ctx context.Context, before uint64) (bool, error) {
	settled := time.NewTimer(oomSettle)
	defer settled.Stop()
	look := time.NewTicker(oomLook)
	defer look.Stop()
	for {
		if n, err := g.OOMKills(); err != nil || n > before {
			return n > before, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-settled.C:
			return false, nil
		case <-look.C:
		}
	}
}

// oomEvents returns an event descriptor that version 1 raises for a group's
// memory controller.
func oomEvents(dir string) (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	events := os.NewFile(uintptr(fd), "oom events")
	control, err := os.Open(path.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	defer control.Close()
	line := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(path.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return events, nil
}
