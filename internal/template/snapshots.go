package template

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// SnapshotNames returns the names that c's snapshots have as templates, by
// their IDs, each as NAME:TAG, sorted.
func (s *Service) SnapshotNames(_ context.Context, c sandbox.Caller) (map[string][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string][]string{}
	for _, tag := range s.tags {
		t, r := s.templates[tag.Template], s.builds[tag.Build]
		if t != nil && r != nil && r.Snapshot != "" && r.Status == Ready && (c.Admin || r.Owner == c.Owner) {
			names[r.Snapshot] = append(names[r.Snapshot], t.Name+":"+tag.Name)
		}
	}
	for _, list := range names {
		slices.Sort(list)
	}
	return names, nil
}
