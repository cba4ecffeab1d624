package instance

import (
	"context"
	"errors"
	"os"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Alive implements sandbox.Backend: a zombie is dead, and so is an instance whose
// guest does not answer, unless an older version started it.
func (b *Backend) Alive(ctx context.Context, id string) bool {
	dir, err := b.dir(id)
	if err != nil {
		return false
	}
	r, err := readRecord(dir)
	if err != nil || !r.alive() {
		return false
	}
	err = b.healthy(ctx, id)
	return err == nil || errors.Is(err, errLegacy)
}

// Wait implements sandbox.Backend.
func (b *Backend) Wait(ctx context.Context, id string) (sandbox.EndReason, error) {
	dir, err := b.dir(id)
	if err != nil {
		return "", err
	}
	r, err := readRecord(dir)
	if errors.Is(err, os.ErrNotExist) {
		return sandbox.EndCrashed, nil
	}
	if err != nil {
		return "", err
	}
	if err := b.waitEnd(ctx, id, r); err != nil {
		return "", err
	}
	return b.endReason(id, r), nil
}

// waitEnd blocks until the instance is of no more use: one of its processes has
// ended, or was killed for memory where the instance does not get over it. The
// latter may be one that only holds a guest process's memory, so the rest is
// ended too.
func (b *Backend) waitEnd(ctx context.Context, id string, r *record) error {
	var handles []*procid.Handle
	defer func() {
		for _, p := range handles {
			p.Close()
		}
	}()
	for _, p := range r.Processes {
		handle, err := procid.Open(p)
		if err != nil {
			return nil // one without the other serves nobody
		}
		handles = append(handles, handle)
	}
	if len(handles) == 0 {
		return nil
	}
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, len(handles)+1)
	for _, p := range handles {
		go func() {
			_, err := p.Wait(either)
			done <- err
		}()
	}
	go func() {
		if !b.wall.OOMEndsInstance || b.awaitOOM(either, id, r.OOMKills) != nil {
			<-either.Done() // not announced here: the others tell
			done <- context.Cause(either)
			return
		}
		done <- handles[0].Kill()
	}()
	first := <-done
	cancel()
	for range handles {
		<-done
	}
	return first
}

func (b *Backend) awaitOOM(ctx context.Context, id string, before uint64) error {
	g, err := b.cgroups.Open(id)
	if err != nil {
		return err
	}
	return g.AwaitOOM(ctx, before)
}

func (b *Backend) oomKills(id string) (uint64, error) {
	g, err := b.cgroups.Open(id)
	if err != nil {
		return 0, err
	}
	return g.OOMKills()
}

// endReason reads why an instance that is gone has ended.
func (b *Backend) endReason(id string, r *record) sandbox.EndReason {
	boot, err := procid.BootID()
	if err == nil && len(r.Processes) > 0 && r.Processes[0].BootID != boot {
		return sandbox.EndRebooted
	}
	if kills, err := b.oomKills(id); err == nil && kills > r.OOMKills {
		return sandbox.EndOutOfMemory
	}
	return sandbox.EndCrashed
}
