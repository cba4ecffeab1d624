package guest

import (
	"encoding/json"
	"net/http"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// maxLimits bounds the body of a change of limits, in bytes.
const maxLimits = 4 << 10

// limit changes what holds for all commands together, from now on.
func (a *agent) limit(w http.ResponseWriter, r *http.Request) {
	var req api.Limits
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLimits))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil || req.PIDs <= 0 {
		http.Error(w, "pids: a number above zero", http.StatusBadRequest)
		return
	}
	if a.cgroups == nil {
		http.Error(w, "this kernel has no cgroups", http.StatusConflict)
		return
	}
	if err := a.cgroups.SetPIDs(req.PIDs); err != nil {
		a.log.Warn("change limits", "err", err)
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
