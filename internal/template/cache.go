package template

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// cached returns what a step led to, if its snapshot is there still.
func (s *Service) cached(ctx context.Context, key string, caller sandbox.Caller) (Cached, bool) {
	s.mu.Lock()
	c, ok := s.cache[key]
	s.mu.Unlock()
	if !ok {
		return Cached{}, false
	}
	if c.Snapshot != "" {
		if _, err := s.m.GetSnapshot(ctx, caller, c.Snapshot); err != nil {
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

// Open reads the records, writes down that builds of an earlier daemon were
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
	err := s.leadCutLocked(ctx)
	s.mu.Unlock()
	err = errors.Join(err, s.removeSandboxes(ctx), s.archives.removeParts())
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	s.working.Go(s.keepSwept)
	return errors.Join(err, s.sweep(ctx, everyone))
}

// leadCutLocked has tags lead to builds that an earlier daemon wrote down as
// ready, and no more.
func (s *Service) leadCutLocked(ctx context.Context) error {
	var cut []*Record
	for _, r := range s.builds {
		if t := s.templates[r.Template]; t != nil && r.Status == Ready && t.UpdatedAt.Before(r.FinishedAt) {
			cut = append(cut, r)
		}
	}
	slices.SortFunc(cut, func(a, b *Record) int { return a.FinishedAt.Compare(b.FinishedAt) })
	for _, r := range cut {
		if err := s.leadLocked(ctx, r); err != nil {
			return err
		}
	}
	return nil
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

// removeSandboxes removes the sandboxes of builds that are no more.
func (s *Service) removeSandboxes(ctx context.Context) error {
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
