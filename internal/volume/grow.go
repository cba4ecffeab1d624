package volume

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Grow has a volume have more bytes, and returns it. It fails with Conflict
// while a sandbox, running or not, has it, and with Unsupported where its disk
// can't grow: then it is as it was. None is ever made smaller.
func (s *Service) Grow(ctx context.Context, c sandbox.Caller, ref string, bytes int64) (Volume, error) {
	v, err := s.Get(ctx, c, ref)
	if err != nil {
		return v, err
	}
	if _, err := s.size(c, New{Size: bytes}); err != nil {
		return v, err
	}
	err = s.users.WithVolumes(ctx, func(ctx context.Context) error {
		if v, err = s.Get(ctx, c, v.ID); err != nil || v.Size >= bytes { // another may have been quicker
			return err
		}
		if users := s.users.VolumeUsers(v.ID); len(users) > 0 {
			return sandbox.Errorf(sandbox.Conflict, "volume %s: sandbox %s has it", v.Name, users[0])
		}
		defer s.content.End(v.ID)()
		grown, err := s.grow(ctx, v, bytes)
		if err != nil {
			return explain(err, v.Name, "grow")
		}
		v = grown
		return nil
	})
	return v, err
}

// grow makes the volume anew beside its directory, and exchanges the two when
// all that is in the new one is on the disk.
func (s *Service) grow(ctx context.Context, v Volume, bytes int64) (_ Volume, err error) {
	t, err := tree.Find(s.o.State, v.ID)
	if err != nil {
		return v, err
	}
	dir := filepath.Join(s.root, newPrefix+v.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return v, err
	}
	defer s.empty(dir) // the old one, or what was begun
	is, err := t.Grow(ctx, dir, disk.Size{Bytes: v.Size, Inodes: v.Inodes}, bytes)
	if err != nil {
		return v, err
	}
	v.Size, v.Inodes = is.Bytes, is.Inodes
	b, err := json.Marshal(v)
	if err == nil {
		err = writeWhole(dir, b)
	}
	if err == nil {
		err = durable.Rename(dir, filepath.Join(s.root, v.ID), unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return v, err
	}
	s.mu.Lock()
	s.volumes[v.ID] = v
	s.mu.Unlock()
	s.log.Info("volume grown", "id", v.ID, "owner", v.Owner, "name", v.Name, "size", v.Size)
	return v, nil
}
