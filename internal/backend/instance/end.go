package instance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// syncLimit bounds how long a stop waits for the guest to write back.
const syncLimit = 10 * time.Second

// Stop implements sandbox.Backend. A guest with a kernel of its own is asked
// to write back first; one that does not answer is ended all the same.
func (b *Backend) Stop(ctx context.Context, id string) ([]string, error) {
	dir, err := b.dir(id)
	if err != nil {
		return nil, err
	}
	if r, err := readRecord(dir); err == nil && r.alive() && !b.wall.OwnCommands {
		soon, cancel := context.WithTimeout(ctx, syncLimit)
		err := b.agent(id).Sync(soon)
		if errors.Is(err, errLegacy) {
			err = syncLegacy(soon, dir)
		}
		if err != nil {
			b.opts.Log.Warn("guest did not write back before its stop", "id", id, "err", err)
		}
		cancel()
	}
	err = b.end(ctx, id)
	if err == nil {
		if held := b.loose(ctx, id, dir); held != nil { // the next start refuses
			b.opts.Log.Error("the disk of a sandbox that was stopped is not free", "id", id, "err", held)
		}
	}
	return []string{"processes"}, errors.Join(err, forgetParts(dir))
}

// end kills all processes of an instance and forgets them. It works on an instance whose
// start was cut off at any point.
func (b *Backend) end(ctx context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	var errs []error
	if r, err := readRecord(dir); err == nil {
		for _, p := range r.Processes {
			errs = append(errs, kill(ctx, p))
		}
	}
	errs = append(errs, b.endGroup(ctx, id), b.killStrays(ctx, dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end instance: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, fileInstance)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(b.roles.Delete(ctx, filepath.Join(dir, DirState)), b.roles.Delete(ctx, filepath.Join(dir, dirLegacy)))
}

// endGroup kills whatever is left in the instance's cgroup and removes it.
func (b *Backend) endGroup(ctx context.Context, id string) error {
	g, err := b.cgroups.Open(id)
	if err != nil {
		if k := sandbox.KindOf(err); k == sandbox.NotFound || k == sandbox.Unsupported {
			return nil
		}
		return err
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}

// kill ends one process and waits for its end.
func kill(ctx context.Context, id procid.ID) error {
	if id.IsZero() {
		return nil
	}
	h, err := procid.Open(id)
	if errors.Is(err, procid.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Kill(); err != nil {
		return err
	}
	_, err = h.Wait(ctx)
	return err
}

// killStrays ends processes of the instance at dir that no record names: a daemon
// died between their start and its note of it. They are known by arguments
// that hold the instance's directory.
func (b *Backend) killStrays(ctx context.Context, dir string) error {
	if b.wall.Stray == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if !b.stray(pid, dir) {
			continue
		}
		id, err := procid.Of(pid)
		if err == nil && b.stray(pid, dir) { // again: the number may have become another's
			errs = append(errs, kill(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// stray reports whether a process is one of the instance at dir.
func (b *Backend) stray(pid int, dir string) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && b.wall.Stray(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), dir)
}

// Remove implements sandbox.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	if err := b.opts.Disks.Drop(ctx, id); err != nil {
		b.opts.Log.Warn("give up a disk that is to be removed", "id", id, "err", err)
	}
	if err := b.end(ctx, id); err != nil {
		return err
	}
	switch err := b.loose(ctx, id, dir); {
	case errors.Is(err, errUnseen):
		b.opts.Log.Error("remove a sandbox whose disk is not free", "id", id, "err", err)
	case err != nil:
		return err
	}
	return b.discard(dir)
}

// discard makes an instance's directory no instance any more, at once, and deletes it in
// the background: the host's file system takes its time over a disk's blocks.
// What a daemon does not live to delete, the next one does.
func (b *Backend) discard(dir string) error {
	at := filepath.Join(b.trash, filepath.Base(dir)+"-"+rand.Text())
	err := os.Rename(dir, at)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", filepath.Base(dir), err)
	}
	b.deletions.Go(func() { b.empty(at) })
	return nil
}

// sweep deletes what earlier daemons threw away.
func (b *Backend) sweep() error {
	entries, err := os.ReadDir(b.trash)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b.deletions.Go(func() { b.empty(filepath.Join(b.trash, e.Name())) })
	}
	return nil
}

func (b *Backend) empty(dir string) {
	if err := b.roles.Delete(context.Background(), dir); err != nil {
		b.opts.Log.Error("delete what is left of an instance", "dir", dir, "err", err)
	}
}
