package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// syncLimit bounds how long a stop waits for the guest to write back.
const syncLimit = 10 * time.Second

// Stop implements sandbox.Backend. The guest is asked to write back first;
// one that does not answer is ended all the same.
func (b *Backend) Stop(ctx context.Context, id string) ([]string, error) {
	dir, err := b.dir(id)
	if err != nil {
		return nil, err
	}
	bx, err := readBox(dir)
	if err == nil && procid.Alive(bx.Sentry) {
		soon, cancel := context.WithTimeout(ctx, syncLimit)
		if err := b.ask(soon, id, http.MethodPost, "/carboy/sync"); err != nil {
			b.opts.Log.Warn("guest did not write back before its stop", "id", id, "err", err)
		}
		cancel()
	}
	return []string{"processes"}, b.end(ctx, id)
}

// end kills all processes of a box and forgets them. It works on a box whose
// start was cut off at any point.
func (b *Backend) end(ctx context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	var errs []error
	if bx, err := readBox(dir); err == nil {
		errs = append(errs, kill(ctx, bx.Sentry), kill(ctx, bx.Gofer))
	}
	errs = append(errs, b.endGroup(ctx, id), killStrays(ctx, dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end box: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, fileBox)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return b.removeAll(ctx, filepath.Join(dir, dirRunsc))
}

// endGroup kills whatever is left in the box's cgroup and removes it.
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

func (b *Backend) oomKills(id string) (uint64, error) {
	g, err := b.cgroups.Open(id)
	if err != nil {
		return 0, err
	}
	return g.OOMKills()
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

// killStrays ends wall processes of the box at dir that no record names: a
// daemon died between their start and its note of it. They are known by
// gVisor's own flag that holds the box's directory.
func killStrays(ctx context.Context, dir string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	mark := []byte("--root=" + filepath.Join(dir, dirRunsc))
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, err := procid.Of(pid)
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := bytes.Split(raw, []byte{0})
		name := string(args[0])
		if name != roleSentry && name != roleGofer {
			continue
		}
		for _, a := range args[1:] {
			if bytes.Equal(a, mark) {
				errs = append(errs, kill(ctx, id))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// Remove implements sandbox.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	if err := b.end(ctx, id); err != nil {
		return err
	}
	return b.removeAll(ctx, dir)
}

// removeAll deletes a directory of ours. Nothing is mounted below it in this
// namespace, and os.RemoveAll follows no link. Without root, what boxes made
// belongs to subordinate ids: a role that is root over them deletes it.
func (b *Backend) removeAll(ctx context.Context, dir string) error {
	if !exists(dir) {
		return nil
	}
	var err error
	if b.rootless != nil {
		err = b.role(ctx, roleRemove, []byte(dir), io.Discard)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("delete %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// removeMain deletes what is in the directory whose path it reads.
func removeMain(in io.Reader) error {
	dir, err := io.ReadAll(io.LimitReader(in, 1<<16))
	if err != nil {
		return err
	}
	if err := becomeRoot(); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(string(dir), e.Name())))
	}
	return err
}
