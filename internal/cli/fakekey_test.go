package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// keyRoutes are the paths of keys.
func (d *fakeDaemon) keyRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/keys": d.listKeys, "POST /v1/keys": d.makeKey, "DELETE /v1/keys/{id}": d.deleteKey,
	}
}

func (d *fakeDaemon) listKeys(w http.ResponseWriter, _ *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	wire.JSON(w, http.StatusOK, slices.Clone(d.keys))
	return nil
}

func (d *fakeDaemon) makeKey(w http.ResponseWriter, r *http.Request) error {
	var req api.KeyRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := api.Key{
		ID: fmt.Sprintf("id-%d", len(d.keys)+1), Name: req.Name, Team: req.Team, Mask: "e2b_00...0000", Scopes: req.Scopes,
		Paths: req.Paths, HostImage: req.HostImage, CreatedAt: time.Now(),
	}
	if len(k.Scopes) == 0 {
		k.Scopes = []string{"read", "manage", "exec"}
	}
	d.keys = append(d.keys, k)
	wire.JSON(w, http.StatusCreated, api.NewKey{Key: k, Secret: "e2b_" + strings.Repeat("0", 40)})
	return nil
}

func (d *fakeDaemon) deleteKey(w http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.keys)
	d.keys = slices.DeleteFunc(d.keys, func(k api.Key) bool { return k.ID == r.PathValue("id") })
	if len(d.keys) == n {
		return sandbox.Errorf(sandbox.NotFound, "key %s: not found", r.PathValue("id"))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
