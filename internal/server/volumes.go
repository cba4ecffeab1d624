package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// Volumes keeps volumes for their owners, and answers the content API itself,
// which asks for a volume's token and for no key. *volume.Service is one, and
// documents each method.
type Volumes interface {
	http.Handler
	Create(ctx context.Context, c sandbox.Caller, n volume.New) (volume.Volume, error)
	List(ctx context.Context, c sandbox.Caller) []volume.Volume
	Get(ctx context.Context, c sandbox.Caller, ref string) (volume.Volume, error)
	Remove(ctx context.Context, c sandbox.Caller, ref string) error
	Used(v volume.Volume) (bytes int64, sandboxes []string)
}

var _ Volumes = (*volume.Service)(nil)

// volumeAPI is what /v1/ has about volumes.
type volumeAPI struct{ all Volumes } // nil: there are none

func (a volumeAPI) kept() (Volumes, error) {
	if a.all == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "volumes: this daemon keeps none")
	}
	return a.all, nil
}

func (a volumeAPI) list(w http.ResponseWriter, r *http.Request) {
	all, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := []api.Volume{}
	for _, v := range all.List(r.Context(), auth.Of(r).Caller) {
		out = append(out, viewVolume(all, v))
	}
	wire.JSON(w, http.StatusOK, out)
}

func (a volumeAPI) create(w http.ResponseWriter, r *http.Request) {
	var req api.VolumeRequest
	all, err := a.kept()
	if err == nil {
		err = wire.Decode(r, &req, false)
	}
	if err == nil && (req.Size < 0 || req.Inodes < 0) {
		err = sandbox.Errorf(sandbox.Invalid, "size, inodes: less than nothing")
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	v, err := all.Create(r.Context(), auth.Of(r).Caller, volume.New{Name: req.Name, Size: req.Size, Inodes: req.Inodes})
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusCreated, viewVolume(all, v))
}

func (a volumeAPI) get(w http.ResponseWriter, r *http.Request) {
	all, err := a.kept()
	var v volume.Volume
	if err == nil {
		v, err = all.Get(r.Context(), auth.Of(r).Caller, r.PathValue("ref"))
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusOK, viewVolume(all, v))
}

func (a volumeAPI) remove(w http.ResponseWriter, r *http.Request) {
	all, err := a.kept()
	if err == nil {
		err = all.Remove(r.Context(), auth.Of(r).Caller, r.PathValue("ref"))
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func viewVolume(all Volumes, v volume.Volume) api.Volume {
	out := api.Volume{
		ID: v.ID, Name: v.Name, Owner: v.Owner, Size: v.Size, Inodes: v.Inodes,
		Enforced: v.Unenforced == "", Reason: v.Unenforced, Sandboxes: []string{}, CreatedAt: v.CreatedAt,
	}
	used, users := all.Used(v)
	out.Used, out.Sandboxes = used, append(out.Sandboxes, users...)
	return out
}

// mount resolves a mount that names a volume, by its name or its ID.
func (a volumeAPI) mount(ctx context.Context, p *auth.Principal, m api.Mount) (sandbox.Mount, error) {
	if m.Source != "" {
		return sandbox.Mount{}, sandbox.Errorf(sandbox.Invalid, "mount %.80q: it is both a directory of the host and a volume", m.Target).
			WithHint("name one of them")
	}
	id, name, err := a.named(ctx, p, m.Volume)
	return sandbox.Mount{Volume: id, VolumeName: name, Target: m.Target, ReadOnly: m.ReadOnly}, err
}

// named finds a volume of the caller's by its name or its ID.
func (a volumeAPI) named(ctx context.Context, p *auth.Principal, ref string) (id, name string, err error) {
	all, err := a.kept()
	if err != nil {
		return "", "", err
	}
	v, err := all.Get(ctx, p.Caller, ref)
	return v.ID, v.Name, err
}
