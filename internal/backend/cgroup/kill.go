package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxDepth bounds how deep groups inside a group are followed.
const maxDepth = 16

// PIDs returns the numbers of the processes in the group and in groups inside
// it, in order. A group that is gone has none.
func (g *Group) PIDs() ([]int, error) {
	var out []int
	for _, t := range g.host.trees {
		parent, err := g.host.existing(t)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of group %s: %w", g.name, err)
		}
		if out, err = pidsBelow(parent, g.name, 0, out); err != nil {
			return nil, fmt.Errorf("list processes of group %s: %w", g.name, err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func pidsBelow(parent *os.File, name string, depth int, out []int) ([]int, error) {
	dir, err := openDir(parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, err := readFile(dir, "cgroup.procs")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return out, nil // removed since it was opened
	}
	if err != nil {
		return nil, err
	}
	pids, err := parsePIDs(b)
	if err != nil {
		return nil, err
	}
	out = append(out, pids...)
	subs, err := subdirs(dir)
	if err != nil || len(subs) == 0 {
		return out, err
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("groups deeper than %d", maxDepth)
	}
	for _, sub := range subs {
		if out, err = pidsBelow(dir, sub, depth+1, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Kill ends every process of the group and returns once none is left, or with
// ctx's cause. It is the group's end: nothing can be started in it any more,
// which is also why a fork bomb can't outrun it. Killing an empty group, or
// one that is gone, is no error.
func (g *Group) Kill(ctx context.Context) error {
	if t := g.treeOf("pids"); t != nil {
		if err := g.write(t, "pids.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("close group %s: %w", g.name, err)
		}
	}
	pause := minPause
	for {
		if t := g.v2(); t != nil { // before Linux 5.14 there is no such file
			if err := g.write(t, "cgroup.kill", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("kill group %s: %w", g.name, err)
			}
		}
		empty, err := g.settle(ctx, pause, (*procid.Handle).Kill)
		if err != nil {
			return fmt.Errorf("kill group %s: %w", g.name, err)
		}
		if empty {
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

// How long to wait for what the kernel does not announce.
const (
	minPause = 100 * time.Microsecond
	maxPause = 50 * time.Millisecond
)

// settle does something to each process of the group and waits for its end.
// It reports whether there was none. Where one is listed but has ended, the
// kernel is still taking it apart, which nothing announces in version 1: then
// settle waits for the pause.
func (g *Group) settle(ctx context.Context, pause time.Duration, do func(*procid.Handle) error) (empty bool, err error) {
	hs, listed, err := g.members()
	if err != nil || !listed {
		return err == nil, err
	}
	defer closeAll(hs)
	for _, h := range hs {
		if err := do(h); err != nil {
			return false, err
		}
	}
	for _, h := range hs {
		if err := h.Done(ctx); err != nil {
			return false, err
		}
	}
	if len(hs) == 0 {
		err = sleep(ctx, pause)
	}
	return false, err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxHandles bounds how many processes are held open at once.
const maxHandles = 256

// members returns handles to up to maxHandles processes of the group, and
// whether any was listed at all. Each was in the group after its handle was
// opened, so that none is a stranger who got the number of a process that had
// just ended.
func (g *Group) members() (hs []*procid.Handle, listed bool, err error) {
	pids, err := g.PIDs()
	if err != nil || len(pids) == 0 {
		return nil, false, err
	}
	for _, pid := range pids[:min(len(pids), maxHandles)] {
		h, err := procid.OpenPID(pid)
		if errors.Is(err, procid.ErrGone) {
			continue
		}
		if err != nil {
			closeAll(hs)
			return nil, false, err
		}
		hs = append(hs, h)
	}
	if pids, err = g.PIDs(); err != nil {
		closeAll(hs)
		return nil, false, err
	}
	hs = slices.DeleteFunc(hs, func(h *procid.Handle) bool {
		_, in := slices.BinarySearch(pids, h.ID().PID)
		if !in {
			h.Close()
		}
		return !in
	})
	return hs, len(pids) > 0, nil
}

func closeAll(hs []*procid.Handle) {
	for _, h := range hs {
		h.Close()
	}
}

// RemoveWait is how long Remove waits for processes that are on their way out.
const RemoveWait = 2 * time.Second

var errStillBusy = errors.New("still busy")

// Remove deletes the group and the groups inside it. It kills nothing: it
// waits, at most RemoveWait, for processes that end, and then fails with
// Conflict. Removing a group that is gone is no error.
func (g *Group) Remove(ctx context.Context) error {
	wctx, cancel := context.WithTimeoutCause(ctx, g.host.removeWait, errStillBusy)
	defer cancel()
	for _, t := range g.host.trees {
		if err := g.removeIn(wctx, t); errors.Is(err, errStillBusy) {
			pids, _ := g.PIDs()
			return sandbox.Errorf(sandbox.Conflict, "cgroup %s still has %d processes", g.name, len(pids))
		} else if err != nil {
			return fmt.Errorf("remove group %s: %w", g.name, err)
		}
	}
	return nil
}

// removeIn removes the group from one tree, waiting while it is busy.
func (g *Group) removeIn(ctx context.Context, t *hierarchy) error {
	parent, err := g.host.existing(t)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pause := minPause
	for {
		err := g.host.tree.rmdir(parent, g.name)
		if errors.Is(err, unix.EBUSY) {
			if err = g.removeBelow(parent, g.name, 0); err == nil {
				err = g.host.tree.rmdir(parent, g.name)
			}
		}
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		empty, err := g.settle(ctx, pause, func(*procid.Handle) error { return nil })
		if err == nil && empty {
			err = sleep(ctx, pause)
		}
		if err != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// removeBelow removes the groups inside a group.
func (g *Group) removeBelow(parent *os.File, name string, depth int) error {
	dir, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	subs, err := subdirs(dir)
	if err != nil {
		return err
	}
	if len(subs) > 0 && depth == maxDepth {
		return fmt.Errorf("groups deeper than %d", maxDepth)
	}
	for _, sub := range subs {
		if err := g.removeBelow(dir, sub, depth+1); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := g.host.tree.rmdir(dir, sub); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
