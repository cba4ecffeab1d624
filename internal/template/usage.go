package template

import (
	"context"
	"errors"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// ImagesInUse returns the digests of the images that builds and kept steps are
// made of.
func (s *Service) ImagesInUse() (digests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(image string) {
		if d := sandbox.ImageDigest(image); d != "" {
			digests = append(digests, d)
		}
	}
	for _, r := range s.builds {
		add(r.Image)
	}
	for _, c := range s.cache {
		add(c.Image)
	}
	return digests
}

// Usage is what the cache of one owner's builds takes.
type Usage struct {
	Steps     int   `json:"steps"`     // that a build need not run again
	Snapshots int   `json:"snapshots"` // of steps and of builds
	Size      int64 `json:"size"`      // bytes of those
	Files     int   `json:"files"`     // archives that were sent
	FileSize  int64 `json:"file_size"` // bytes of those
}

// Usage returns what is kept for c's builds.
func (s *Service) Usage(ctx context.Context, c sandbox.Caller) (u Usage, err error) {
	s.mu.Lock()
	err = s.readyLocked(c)
	for _, one := range s.cache {
		if one.Owner == c.Owner {
			u.Steps++
		}
	}
	s.mu.Unlock()
	if err != nil {
		return Usage{}, err
	}
	all, err := s.m.Snapshots(ctx, sandbox.Caller{Owner: ownerPrefix, Admin: true})
	if err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
		return Usage{}, err
	}
	for _, snap := range all {
		if snap.Owner == sandboxOwner(c.Owner) {
			u.Snapshots++
			u.Size += snap.Size
		}
	}
	u.Files, u.FileSize, err = s.archives.count(c.Owner)
	return u, err
}

// Droppable is what Collect would drop now.
func (s *Service) Droppable(ctx context.Context, c sandbox.Caller) (Usage, error) {
	u, err := s.Usage(ctx, c)
	if err != nil || u.Snapshots == 0 {
		return u, err
	}
	all, err := s.m.Snapshots(ctx, sandbox.Caller{Owner: ownerPrefix, Admin: true})
	if err != nil {
		return Usage{}, err
	}
	s.mu.Lock()
	kept := s.usedLocked(c.Owner)
	s.mu.Unlock()
	for _, snap := range all {
		if snap.Owner == sandboxOwner(c.Owner) && kept[snap.ID] {
			u.Snapshots--
			u.Size -= snap.Size
		}
	}
	return u, nil
}

// NamesOf returns what a snapshot is for: the templates whose tags lead to it, sorted.
// There are none for one that only the next build needs.
func (s *Service) NamesOf(snapshot string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range s.tags {
		t, r := s.templates[tag.Template], s.builds[tag.Build]
		if t != nil && r != nil && r.Snapshot == snapshot && !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Collect drops the cache of c's builds: steps that were kept, archives that
// were sent, and the snapshots that only those need. It returns what it dropped.
// While c has builds it is a Conflict.
func (s *Service) Collect(ctx context.Context, c sandbox.Caller) (Usage, error) {
	before, err := s.Usage(ctx, c)
	if err != nil {
		return Usage{}, err
	}
	if err := s.dropCache(ctx, c.Owner); err != nil {
		return Usage{}, err
	}
	if err := errors.Join(s.archives.remove(c.Owner), s.sweep(ctx, c.Owner)); err != nil {
		return Usage{}, err
	}
	after, err := s.Usage(ctx, c)
	return Usage{
		Steps: before.Steps - after.Steps, Snapshots: before.Snapshots - after.Snapshots, Size: before.Size - after.Size,
		Files: before.Files - after.Files, FileSize: before.FileSize - after.FileSize,
	}, err
}

func (s *Service) dropCache(ctx context.Context, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busyLocked()[owner] {
		return sandbox.Errorf(sandbox.Conflict, "templates: a build is under way, which needs what was kept").WithHint("wait for its end")
	}
	for key, c := range s.cache {
		if c.Owner != owner {
			continue
		}
		if err := s.o.Store.DeleteCached(ctx, key); err != nil {
			return err
		}
		delete(s.cache, key)
	}
	return nil
}
