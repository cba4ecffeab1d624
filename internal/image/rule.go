package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// rule is how the layers of an image were unpacked.
type rule int

const (
	ruleAlone rule = iota // each by itself, as the first versions did
	ruleStale             // by itself, and that shows
	ruleOver              // each over those below it, or as if
)

const staleNote = "an earlier version unpacked it, by whose rule directories have the wrong owner or mode, or hide a link: pull it or import it again"

// stale reports whether an image shows that an earlier rule unpacked it. That is looked into once:
// few layers imply directories, and to fetch all images anew would be for nothing.
func (s *Store) stale(ctx context.Context, r *imageRecord) (bool, error) {
	if r.Rule != ruleAlone {
		return r.Rule == ruleStale, nil
	}
	found := ruleOver
	if len(r.Layers) > 1 {
		trees := make([]string, 0, len(r.Layers))
		for _, id := range r.Layers {
			trees = append(trees, s.layerTree(id))
		}
		ok, err := s.opts.Stands(ctx, trees)
		if err != nil {
			return false, fmt.Errorf("image %s: %w", r.Digest, err)
		}
		if !ok {
			found = ruleStale
		}
	}
	return found == ruleStale, s.judge(r.Digest, found)
}

// judge notes what was found of an image, unless it was unpacked anew meanwhile.
func (s *Store) judge(digest string, found rule) error {
	s.records.Lock()
	defer s.records.Unlock()
	r, err := s.record(digest)
	if err != nil || r.Rule != ruleAlone {
		return err
	}
	r.Rule = found
	err = s.writeRecord("manifest", s.manifestPath(digest), r)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil // then it is looked into again
	}
	return err
}

// keepRecord writes the record of an image that was unpacked. What layers it had by an earlier rule
// is kept there: sandboxes may have them mounted.
func (s *Store) keepRecord(rec *imageRecord) error {
	s.records.Lock()
	defer s.records.Unlock()
	old, err := s.record(rec.Digest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil: // the new one takes the place of what can't be read
		s.opts.Log.Warn("the record of an image is damaged", "digest", rec.Digest, "error", err)
	default:
		for _, id := range slices.Concat(old.Layers, old.Before) {
			if !slices.Contains(rec.Layers, id) && !slices.Contains(rec.Before, id) {
				rec.Before = append(rec.Before, id)
			}
		}
	}
	return s.writeRecord("manifest", s.manifestPath(rec.Digest), rec)
}
