package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxPartialAge is how long a blob that is not whole waits for its pull to be
// tried again.
const maxPartialAge = 7 * 24 * time.Hour

// Remove takes a name away from an owner, or with digits of a digest every
// name that he has for it. Layers stay until GC. The error is NotFound where
// he has none.
func (s *Store) Remove(_ context.Context, owner, ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(owner, ref)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.NotFound {
		return e.WithHint("carboy image ls") // to pull it would not help
	}
	if err != nil {
		return err
	}
	gone := []nameRecord{n}
	if prefixRE().MatchString(ref) {
		recs, err := s.names(owner)
		if err != nil {
			return err
		}
		if hits := byPrefix(recs, ref); len(hits) > 0 {
			gone = hits
		}
	}
	dir := s.ownerDir(owner)
	for _, n := range gone {
		if err := s.opts.Step("name-remove"); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, hashOf(n.Name)+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove image name: %w", err)
		}
	}
	return durable.SyncDir(dir)
}

// GC removes the images that nobody has a name for and no digest of inUse
// names, the layers that no image is left to need, and partial downloads of a
// week ago. What a running pull or import is at work on stays. It returns the
// digests of the images that are gone, and how many bytes the layers had that
// are. Where a record can't be read it removes nothing.
func (s *Store) GC(ctx context.Context, inUse []string) (removed []string, bytes int64, err error) {
	dead, removed, bytes, err := s.bury(inUse)
	s.sweepPartial()
	for _, dir := range dead {
		if cause := context.Cause(ctx); cause != nil {
			return removed, bytes, errors.Join(err, cause) // the next Open sweeps the rest
		}
		err = errors.Join(err, s.opts.Remove(dir))
	}
	return removed, bytes, err
}

// bury takes what is dead out of its place, which is quick, and returns where
// it put the layers. While it looks no job can pin anything or end.
func (s *Store) bury(inUse []string) (dead, removed []string, bytes int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live, err := s.live(inUse)
	if err != nil {
		return nil, nil, 0, err
	}
	manifests, err := os.ReadDir(filepath.Join(s.dir, "manifests"))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("collect images: %w", err)
	}
	for _, e := range manifests {
		digest := "sha256:" + strings.TrimSuffix(e.Name(), ".json")
		if live[digest] || !digestRE().MatchString(digest) {
			continue
		}
		if err := s.opts.Step("gc-manifest"); err != nil {
			return dead, removed, bytes, err
		}
		if err := os.Remove(s.manifestPath(digest)); err != nil {
			return dead, removed, bytes, fmt.Errorf("collect images: %w", err)
		}
		removed = append(removed, digest)
	}
	// Layers may only go when the records that name them are gone for good.
	if err := durable.SyncDir(filepath.Join(s.dir, "manifests")); err != nil {
		return dead, removed, bytes, fmt.Errorf("collect images: %w", err)
	}
	layers, err := os.ReadDir(filepath.Join(s.dir, "layers"))
	if err != nil {
		return dead, removed, bytes, fmt.Errorf("collect images: %w", err)
	}
	for _, e := range layers {
		id := strings.Replace(e.Name(), "sha256-", "sha256:", 1)
		if live[id] || !digestRE().MatchString(id) {
			continue
		}
		grave, n, err := s.buryLayer(id)
		if err != nil {
			return dead, removed, bytes, err
		}
		dead, bytes = append(dead, grave), bytes+n
	}
	return dead, removed, bytes, nil
}

func (s *Store) buryLayer(id string) (grave string, bytes int64, err error) {
	var rec layerRecord
	if err := readRecord(filepath.Join(s.layerDir(id), "layer.json"), &rec); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	if err := s.opts.Step("gc-layer"); err != nil {
		return "", 0, err
	}
	grave, err = os.MkdirTemp(s.tmp, "dead-")
	if err == nil {
		err = os.Rename(s.layerDir(id), filepath.Join(grave, "layer"))
	}
	if err != nil {
		return "", 0, fmt.Errorf("collect layers: %w", err)
	}
	return grave, rec.Bytes, nil
}

// live returns the digests of all that has to stay.
func (s *Store) live(inUse []string) (map[string]bool, error) {
	live := map[string]bool{}
	names, err := s.names("")
	if err != nil {
		return nil, err
	}
	used := len(inUse)
	digests := slices.Clone(inUse)
	for d := range s.pins {
		digests = append(digests, d) // those of layers have no record
	}
	for _, n := range names {
		digests = append(digests, n.Digest)
	}
	for i, d := range digests {
		if !digestRE().MatchString(d) {
			return nil, invalid("collect images: what is in use must be digests")
		}
		live[d] = true
		r, err := s.record(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, id := range r.Layers {
			live[id] = true
		}
		if i < used { // what a sandbox has mounted goes with the sandbox
			for _, id := range r.Before {
				live[id] = true
			}
		}
	}
	return live, nil
}

func (s *Store) sweepPartial() {
	dir := filepath.Join(s.dir, "partial")
	es, err := os.ReadDir(dir)
	if err != nil {
		s.opts.Log.Warn("sweep of partial downloads", "error", err)
		return
	}
	for _, e := range es {
		fi, err := e.Info()
		if err != nil || s.opts.Now().Sub(fi.ModTime()) < maxPartialAge {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			s.opts.Log.Warn("sweep of partial downloads", "error", err)
		}
	}
}
