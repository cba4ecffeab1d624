package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// approvalRoutes are the paths of what sandboxes ask: two questions wait, 7 and 8.
func (d *fakeDaemon) approvalRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	states := map[int64]string{7: "asked", 8: "asked"} // guarded by d.mu
	one := func(id int64) api.Approval {
		a := api.Approval{
			ID: id, Sandbox: "web", SandboxID: "sb_web", Owner: "uid:0", State: states[id], Kind: "request", Rule: "api",
			What: fmt.Sprintf("POST https://api.example.com/v1/items/%d\x1b[31m", id), Host: "api.example.com", Port: 443, Method: "POST",
			Asked: created, Expires: time.Now().Add(time.Minute), Waiting: 1,
		}
		if a.State != "asked" {
			a.By, a.Decided = "uid:0", created
		}
		return a
	}
	decide := func(state string) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			var dec api.ApprovalDecision
			if err := json.NewDecoder(r.Body).Decode(&dec); err != nil {
				return err
			}
			id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
			d.mu.Lock()
			defer d.mu.Unlock()
			if states[id] != "asked" {
				return sandbox.Errorf(sandbox.Conflict, "approval %d: it was denied by uid:0", id)
			}
			if states[id] = state; dec.Scope == "sandbox" {
				states[id] = "granted"
			}
			a := one(id)
			a.Scope, a.Reason = dec.Scope, dec.Reason
			wire.JSON(w, http.StatusOK, a)
			return nil
		}
	}
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/approvals": func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Query().Has("follow") && d.follows != nil {
				for i := range d.follows {
					if err := json.NewEncoder(w).Encode(d.follows[i]); err != nil {
						return err
					}
				}
				return nil
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			list := []api.Approval{}
			for id := int64(7); id <= 8; id++ {
				if states[id] == "asked" {
					list = append(list, one(id))
				}
			}
			wire.JSON(w, http.StatusOK, list)
			return nil
		},
		"GET /v1/approvals/{id}": func(w http.ResponseWriter, r *http.Request) error {
			id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
			d.mu.Lock()
			defer d.mu.Unlock()
			if states[id] == "" {
				return sandbox.Errorf(sandbox.NotFound, "approval %d: not found", id)
			}
			a := one(id)
			if id == 8 { // which no rule can be written for
				wire.JSON(w, http.StatusOK, a)
				return nil
			}
			a.Writes = &api.PolicyRule{ID: fmt.Sprintf("approved-%d", id), Hosts: []string{"api.example.com"}, Ports: []string{"443"}}
			wire.JSON(w, http.StatusOK, a)
			return nil
		},
		"POST /v1/approvals/{id}/allow": decide("allowed"),
		"POST /v1/approvals/{id}/deny":  decide("denied"),
	}
}
