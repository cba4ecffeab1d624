package e2b

import (
	"net/http"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// killsAtOnce bounds how many sandboxes of a team are removed side by side.
const killsAtOnce = 10

// everybody sees every owner's sandboxes.
var everybody = sandbox.Caller{Admin: true}

// adminRoutes are for administrators. To anybody else they answer 401, as E2B
// does: it asks for another header there.
func (h *handler) adminRoutes() []route {
	routes := []route{
		{"GET /nodes?", nil, h.listNodes},
		{"GET /nodes/{id}?", nil, h.getNode},
		{"POST /nodes/{id}", nil, h.changeNode},
		{"GET /admin/sandboxes/running-counts", nil, h.runningCounts},
		{"POST /admin/teams/{id}/sandboxes/kill", nil, h.ofTeam(h.killTeam)},
		{"POST /admin/teams/{id}/builds/cancel", nil, h.ofTeam(h.cancelBuilds)},
		{"POST /admin/teams/{id}/api-keys", nil, h.ofTeam(func(w http.ResponseWriter, r *http.Request, c Caller, owner string) error {
			return h.makeKeyOf(w, r, c, owner, "")
		})},
		{"DELETE /admin/teams/{id}/api-keys/{key}", nil, h.ofTeam(func(w http.ResponseWriter, r *http.Request, _ Caller, owner string) error {
			return h.deleteKeyOf(w, r, owner, "key")
		})},
	}
	for i := range routes {
		do := routes[i].do
		routes[i].may = func(Caller) bool { return true }
		routes[i].do = func(w http.ResponseWriter, r *http.Request, c Caller) error {
			if !c.Admin {
				writeErrorAs(w, http.StatusUnauthorized, sandbox.Errorf(sandbox.Denied, "only administrators may").
					WithHint("send a key that has the scope admin, as X-Admin-Token"))
				return nil
			}
			return do(w, r, c)
		}
	}
	return routes
}

// ofTeam hands on whose team the path names.
func (h *handler) ofTeam(
	do func(http.ResponseWriter, *http.Request, Caller, string) error,
) func(http.ResponseWriter, *http.Request, Caller) error {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		id, err := uuidOf(r, "id")
		if err != nil {
			return err
		}
		owner, err := h.o.Teams.Owner(r.Context(), id, h.m)
		if err != nil {
			return err
		}
		return do(w, r, c, owner)
	}
}

// killTeam removes the sandboxes of a team that run, and leaves those that are
// paused.
func (h *handler) killTeam(w http.ResponseWriter, r *http.Request, _ Caller, owner string) error {
	all, err := h.m.List(r.Context(), everybody, sandbox.Filter{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var res struct {
		Killed int `json:"killedCount"`
		Failed int `json:"failedCount"`
	}
	slots := make(chan struct{}, killsAtOnce)
	for _, sb := range all {
		if sb.Owner != owner || stateOf(sb) != stateRunning {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := h.m.Remove(r.Context(), everybody, sb.ID, true)
			mu.Lock()
			defer mu.Unlock()
			if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
				res.Killed++
				return
			}
			h.o.Log.Warn("kill a team's sandbox", "id", sb.ID, "error", err)
			res.Failed++
		})
	}
	wg.Wait()
	wire.JSON(w, http.StatusOK, res)
	return nil
}

func (h *handler) runningCounts(w http.ResponseWriter, r *http.Request, _ Caller) error {
	all, err := h.m.List(r.Context(), everybody, sandbox.Filter{})
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, sb := range all {
		if stateOf(sb) == stateRunning {
			counts[team.ID(sb.Owner)]++
		}
	}
	wire.JSON(w, http.StatusOK, counts)
	return nil
}

func (h *handler) cancelBuilds(w http.ResponseWriter, r *http.Request, _ Caller, owner string) error {
	var res struct {
		Cancelled int `json:"cancelledCount"`
		Failed    int `json:"failedCount"`
	}
	if t, ok := h.o.Templates.(TemplateService); ok {
		res.Cancelled = t.CancelAll(r.Context(), owner)
	}
	wire.JSON(w, http.StatusOK, res)
	return nil
}
