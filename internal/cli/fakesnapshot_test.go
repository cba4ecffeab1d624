package cli_test

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// snapshotRoutes are the fake's own snapshots. Of a sandbox named view there
// can be none.
func (d *fakeDaemon) snapshotRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/sandboxes/{id}/snapshots": d.postSnapshot,
		"GET /v1/snapshots":                 d.listSnapshots,
		"DELETE /v1/snapshots/{id}":         d.removeSnapshot,
	}
}

func (d *fakeDaemon) postSnapshot(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := api.Snapshot{
		ID: "sn_" + strings.Repeat("a", 19) + string(rune('a'+len(d.snapshots))), Owner: b.Owner, Image: b.Image,
		Source: b.ID, Size: 3 << 20, Notes: []string{"device files were left out: 1"}, CreatedAt: created,
	}
	if n := len(d.snapshots); n > 0 {
		s.Parent, s.Notes = d.snapshots[n-1].ID, nil
	}
	if b.Name == "view" {
		s.Notes = []string{"/workspace was left out"}
	}
	d.snapshots = append(d.snapshots, s)
	return answer(w, s)
}

func (d *fakeDaemon) listSnapshots(w http.ResponseWriter, _ *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer(w, append([]api.Snapshot{}, d.snapshots...))
}

func (d *fakeDaemon) removeSnapshot(_ http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := r.PathValue("id")
	i := slices.IndexFunc(d.snapshots, func(s api.Snapshot) bool { return s.ID == id })
	if i < 0 {
		return sandbox.Errorf(sandbox.NotFound, "snapshot %s: not found", id).WithHint("carboy snapshot ls")
	}
	d.snapshots = slices.Delete(d.snapshots, i, i+1)
	return nil
}
