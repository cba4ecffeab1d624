package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// volumeRoutes are the fake's volumes. "held" can't be removed.
func (d *fakeDaemon) volumeRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/volumes": func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(d.volumes)
		},
		"POST /v1/volumes":         d.addVolume,
		"DELETE /v1/volumes/{ref}": d.removeVolume,
		"GET /v1/volumes/{ref}": func(w http.ResponseWriter, r *http.Request) error {
			i := slices.IndexFunc(d.volumes, func(v api.Volume) bool { return v.Name == r.PathValue("ref") })
			if i < 0 {
				return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", r.PathValue("ref")).WithHint("carboy volume ls")
			}
			return answer(w, d.volumes[i])
		},
	}
}

func (d *fakeDaemon) addVolume(w http.ResponseWriter, r *http.Request) error {
	var req api.VolumeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	v := api.Volume{
		ID: "vol_aaaaaaaaaaaaaaaaaaa" + string(rune('a'+len(d.volumes))), Name: req.Name, Size: req.Size, Inodes: req.Inodes, Used: 1 << 19,
		Enforced: req.Name != "loose", Sandboxes: []string{}, CreatedAt: created,
	}
	v.Owner = fmt.Sprintf("uid:%d", os.Geteuid())
	if strings.HasPrefix(v.Name, "home-claude-") {
		v.HomeOf, v.CacheOf = "claude", "/"
	}
	if strings.HasSuffix(v.Name, "-lost") {
		v.CacheOf = "/nothing/there"
	}
	if !v.Enforced {
		v.Reason = "there are no loop devices"
	}
	if v.Size == 0 {
		v.Size = 8 << 30
	}
	if v.Name == "held" {
		v.Sandboxes = []string{"web"}
	}
	d.volumes = append(d.volumes, v)
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(v)
}

func (d *fakeDaemon) removeVolume(w http.ResponseWriter, r *http.Request) error {
	i := slices.IndexFunc(d.volumes, func(v api.Volume) bool { return v.Name == r.PathValue("ref") || v.ID == r.PathValue("ref") })
	switch {
	case i < 0:
		return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", r.PathValue("ref")).WithHint("carboy volume ls")
	case d.volumes[i].Name == "held":
		return sandbox.Errorf(sandbox.Conflict, "volume held: sandbox web has it").WithHint("carboy rm web")
	}
	d.volumes = slices.Delete(d.volumes, i, i+1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkLocked says of a create that it would fail, by its volumes.
func (d *fakeDaemon) checkLocked(w http.ResponseWriter, req *api.CreateRequest) error {
	for _, m := range req.Mounts {
		if m.Volume != "" && !slices.ContainsFunc(d.volumes, func(v api.Volume) bool { return v.Name == m.Volume }) {
			return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", m.Volume).WithHint("carboy volume ls")
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
