package server

import (
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// lock makes directories of a workspace read-only for what runs inside.
func (a *sandboxAPI) lock(w http.ResponseWriter, r *http.Request) {
	var req api.LockRequest
	if err := wire.Decode(r, &req, true); err != nil {
		wire.Error(w, err)
		return
	}
	a.changeLock(w, r, sandbox.LockChange{ReadOnly: true, Paths: req.Paths, EndWriters: req.EndWriters})
}

func (a *sandboxAPI) unlock(w http.ResponseWriter, r *http.Request) {
	var req api.UnlockRequest
	if err := wire.Decode(r, &req, true); err != nil {
		wire.Error(w, err)
		return
	}
	a.changeLock(w, r, sandbox.LockChange{Paths: req.Paths})
}

func (a *sandboxAPI) changeLock(w http.ResponseWriter, r *http.Request, l sandbox.LockChange) {
	sb, ended, err := a.m.LockWorkspace(r.Context(), auth.Of(r).Caller, r.PathValue("id"), l)
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := api.LockResult{Sandbox: a.view(r, sb, &imageConfigs{images: a.images})}
	for _, one := range ended {
		out.Ended = append(out.Ended, api.Writer{PID: one.PID, Program: one.Program, Path: one.Path, How: string(one.How)})
	}
	wire.JSON(w, http.StatusOK, out)
}
