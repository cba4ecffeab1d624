package template

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxUnused is how long what a step led to is kept for the next build.
const maxUnused = 30 * 24 * time.Hour

// cached returns what a step led to, if its snapshot is there still.
func (s *Service) cached(ctx context.Context, key string, boxes sandbox.Caller) (Cached, bool) {
	s.mu.Lock()
	c, ok := s.cache[key]
	s.mu.Unlock()
	if !ok {
		return Cached{}, false
	}
	if c.Snapshot != "" {
		if _, err := s.m.GetSnapshot(ctx, boxes, c.Snapshot); err != nil {
			return Cached{}, false
		}
	}
	c.UsedAt = s.stamp()
	if err := s.remember(ctx, c); err != nil {
		s.log.Warn("write down the use of a cached step", "error", err)
	}
	return c, true
}

func (s *Service) remember(ctx context.Context, c Cached) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.o.Store.PutCached(ctx, c); err != nil {
		return err
	}
	s.cache[c.Key] = c
	return nil
}

// Open reads what there is, writes down that builds of an earlier daemon were
// interrupted, and removes what they left.
func (s *Service) Open(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	for _, r := range s.builds {
		if r.done() || !r.Started && s.now().Sub(r.CreatedAt) < maxUnused {
			continue
		}
		if err := s.failLocked(ctx, r, &Reason{Message: "the build was interrupted: the daemon ended"}); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.mu.Unlock()
	err := errors.Join(s.removeBoxes(ctx), s.removeParts())
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	return errors.Join(err, s.sweep(ctx))
}

func (s *Service) load(ctx context.Context) error {
	templates, err := s.o.Store.Templates(ctx)
	if err != nil {
		return err
	}
	builds, err := s.o.Store.Builds(ctx)
	if err != nil {
		return err
	}
	tags, err := s.o.Store.Tags(ctx)
	if err != nil {
		return err
	}
	cache, err := s.o.Store.Cache(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range templates {
		s.templates[t.ID] = &t
	}
	for _, r := range builds {
		s.builds[r.ID] = &r
	}
	for _, t := range tags {
		s.tags[[2]string{t.Template, t.Name}] = t
	}
	for _, c := range cache {
		s.cache[c.Key] = c
	}
	return nil
}

// removeBoxes removes the sandboxes of builds that are no more.
func (s *Service) removeBoxes(ctx context.Context) error {
	admin := sandbox.Caller{Owner: ownerPrefix, Admin: true}
	all, err := s.m.List(ctx, admin, sandbox.Filter{})
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range all {
		if strings.HasPrefix(sb.Owner, ownerPrefix) {
			if err := s.m.Remove(ctx, admin, sb.ID, true); sandbox.KindOf(err) != sandbox.NotFound {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeParts removes archives that did not come whole.
func (s *Service) removeParts() error {
	parts, err := filepath.Glob(filepath.Join(s.o.Dir, filesDir, "*", partPrefix+"*"))
	for _, p := range parts {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

// sweep removes what no build and no later step needs: steps that were cached
// for too long, builds that nothing leads to, and snapshots.
func (s *Service) sweep(ctx context.Context) error {
	stale, used, busy, err := s.useless(ctx)
	if err != nil {
		return err
	}
	admin := sandbox.Caller{Owner: ownerPrefix, Admin: true}
	all, err := s.m.Snapshots(ctx, admin)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return nil
	}
	errs := []error{err}
	for _, snap := range all {
		owner, ours := strings.CutPrefix(snap.Owner, ownerPrefix)
		if ours && !used[snap.ID] && !busy[owner] {
			if err := s.m.RemoveSnapshot(ctx, admin, snap.ID); sandbox.KindOf(err) != sandbox.NotFound {
				errs = append(errs, err)
			}
		}
	}
	for _, path := range stale {
		_ = os.Remove(path) // there need be none
	}
	return errors.Join(errs...)
}

// useless forgets steps and builds, and returns the logs of those, the
// snapshots that are needed, and the owners that have builds at work, of whom
// that is not known.
func (s *Service) useless(ctx context.Context) (logs []string, used, busy map[string]bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, busy = map[string]bool{}, map[string]bool{}
	for id := range s.running {
		busy[s.builds[id].Owner] = true
	}
	for owner, slots := range s.perOwner {
		busy[owner] = busy[owner] || len(slots) > 0
	}
	for _, key := range s.staleLocked() {
		if err := s.o.Store.DeleteCached(ctx, key); err != nil {
			return nil, nil, nil, err
		}
		delete(s.cache, key)
	}
	for _, c := range s.cache {
		used[c.Snapshot] = true
	}
	for _, r := range s.builds {
		used[r.Snapshot] = true
	}
	return logs, used, busy, nil
}

// staleLocked returns the keys of steps that were not used for too long, or
// that are too many.
func (s *Service) staleLocked() (keys []string) {
	perOwner := map[string][]Cached{}
	for _, c := range s.cache {
		perOwner[c.Owner] = append(perOwner[c.Owner], c)
	}
	now := s.now()
	for _, list := range perOwner {
		slices.SortFunc(list, func(a, b Cached) int { return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.Key, b.Key)) })
		for i, c := range list {
			if i >= maxCached || now.Sub(c.UsedAt) > maxUnused {
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}
