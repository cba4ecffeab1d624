package server

import (
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// lock makes a workspace read-only for what runs inside.
func (a *sandboxAPI) lock(w http.ResponseWriter, r *http.Request) {
	var req api.LockRequest
	if err := wire.Decode(r, &req, true); err != nil {
		wire.Error(w, err)
		return
	}
	a.changeLock(w, r, sandbox.Lock{ReadOnly: true, EndWriters: req.EndWriters})
}

func (a *sandboxAPI) unlock(w http.ResponseWriter, r *http.Request) {
	if err := wire.Decode(r, &struct{}{}, true); err != nil {
		wire.Error(w, err)
		return
	}
	a.changeLock(w, r, sandbox.Lock{})
}

func (a *sandboxAPI) changeLock(w http.ResponseWriter, r *http.Request, l sandbox.Lock) {
	sb, ended, err := a.m.LockWorkspace(r.Context(), auth.Of(r).Caller, r.PathValue("id"), l)
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := api.LockResult{Sandbox: a.view(r, sb, &imageConfigs{images: a.images})}
	for _, one := range ended {
		out.Ended = append(out.Ended, api.Writer{PID: one.PID, Program: one.Program, Path: one.Path, Mapped: one.Mapped})
	}
	wire.JSON(w, http.StatusOK, out)
}
