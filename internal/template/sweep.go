package template

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// maxUnused is how long what a step led to, or an archive, is kept for the
	// next build.
	maxUnused = 30 * 24 * time.Hour
	// grace is how long a snapshot stays that nothing leads to any more: a create
	// or another owner's build may be about to start from it.
	grace = time.Hour

	everyone = "*" // no owner is called so
)

// keepSwept sweeps now and then, for a daemon that builds nothing for months.
func (s *Service) keepSwept() {
	tick := time.NewTicker(grace)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if err := s.sweep(s.ctx, ""); err != nil {
				s.log.Warn("sweep what builds left", "error", err)
			}
		}
	}
}

// sweep removes what no tag and no later step needs: steps that were cached for
// too long, or are too many or too large, old builds, archives that no build
// used for as long, and snapshots. What is at's, or everyone's, goes without grace.
func (s *Service) sweep(ctx context.Context, at string) error {
	admin := sandbox.Caller{Owner: ownerPrefix, Admin: true}
	// What is listed was made before the look at who builds: whoever made it is
	// still building, or has written down what it is for.
	all, err := s.m.Snapshots(ctx, admin)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return nil
	}
	if err != nil {
		return err
	}
	gone, err := s.unneeded(ctx, all, at)
	errs := []error{err}
	for _, id := range gone {
		if err := s.m.RemoveSnapshot(ctx, admin, id); sandbox.KindOf(err) != sandbox.NotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, s.archives.removeOld())...)
}

// unneeded forgets steps and builds, and returns those of all snapshots that
// nothing needs.
func (s *Service) unneeded(ctx context.Context, all []sandbox.Snapshot, at string) (gone []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pruneLocked(ctx, "", maxBuilds); err != nil {
		return nil, err
	}
	size := map[string]int64{}
	for _, snap := range all {
		size[snap.ID] = snap.Size
	}
	for _, key := range s.staleLocked(size) {
		if err := s.o.Store.DeleteCached(ctx, key); err != nil {
			return nil, err
		}
		delete(s.cache, key)
	}
	used, busy := s.usedLocked(""), s.busyLocked()
	unused := map[string]time.Time{}
	for _, snap := range all {
		owner, ours := strings.CutPrefix(snap.Owner, ownerPrefix)
		if !ours || used[snap.ID] {
			continue
		}
		since, seen := s.unused[snap.ID]
		if !seen {
			since = s.now()
		}
		if !busy[owner] && (at == everyone || at == owner || s.now().Sub(since) >= grace) {
			gone = append(gone, snap.ID)
			continue
		}
		unused[snap.ID] = since
	}
	s.unused = unused
	return gone, nil
}

// busyLocked are the owners that have builds at work, of whom it is not known
// what those will need.
func (s *Service) busyLocked() map[string]bool {
	busy := map[string]bool{}
	for id := range s.running {
		busy[s.builds[id].Owner] = true
	}
	s.slots.addBusy(busy)
	return busy
}

// usedLocked are the snapshots that a tag or a cached step leads to. A build
// that lost its tags to a later one is a record and no more. The steps of the owner
// without do not count.
func (s *Service) usedLocked(without string) map[string]bool {
	used := map[string]bool{}
	for _, c := range s.cache {
		if without == "" || c.Owner != without {
			used[c.Snapshot] = true
		}
	}
	for _, tag := range s.tags {
		if r := s.builds[tag.Build]; r != nil {
			used[r.Snapshot] = true
		}
	}
	return used
}

// pruneLocked forgets the oldest of a template's builds, or of each template's,
// that no tag leads to and that nobody runs: most are left.
func (s *Service) pruneLocked(ctx context.Context, template string, most int) error {
	tagged := map[string]bool{}
	for _, tag := range s.tags {
		tagged[tag.Build] = true
	}
	idle := map[string][]*Record{}
	for id, r := range s.builds {
		if (template == "" || r.Template == template) && !tagged[id] && s.running[id] == nil && (r.done() || !r.Started) {
			idle[r.Template] = append(idle[r.Template], r)
		}
	}
	for _, list := range idle {
		slices.SortFunc(list, func(a, b *Record) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
		})
		for _, r := range list[min(most, len(list)):] {
			if err := s.o.Store.DeleteBuild(ctx, r.ID); err != nil {
				return err
			}
			delete(s.builds, r.ID)
			s.logs.remove(r.ID)
		}
	}
	return nil
}

// staleLocked returns the keys of steps that were not used for too long, or
// that are too many or too large, by the sizes of their snapshots.
func (s *Service) staleLocked(size map[string]int64) (keys []string) {
	perOwner := map[string][]Cached{}
	for _, c := range s.cache {
		perOwner[c.Owner] = append(perOwner[c.Owner], c)
	}
	now := s.now()
	for _, list := range perOwner {
		slices.SortFunc(list, func(a, b Cached) int { return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.Key, b.Key)) })
		counted, total := map[string]bool{}, int64(0)
		for i, c := range list {
			if !counted[c.Snapshot] {
				counted[c.Snapshot] = true
				total += size[c.Snapshot]
			}
			if i >= maxCached || now.Sub(c.UsedAt) > maxUnused || total > s.o.CacheSize {
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}
