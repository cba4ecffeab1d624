package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// Volumes keeps volumes for their owners, and answers the content API itself,
// which asks for a volume's token and for no key. *volume.Service is one, and
// documents each method.
type Volumes interface {
	e2b.Volumes
	http.Handler
	Used(v volume.Volume) (bytes int64, sandboxes []string)
}

var _ Volumes = (*volume.Service)(nil)

// e2bVolumes is what the dialect is given: nil where there are none.
func (s *Server) e2bVolumes() e2b.Volumes {
	if s.o.Volumes == nil {
		return nil
	}
	return s.o.Volumes
}

// isContent reports whether a request is for the content of a volume.
func (s *Server) isContent(r *http.Request) bool {
	return s.o.Volumes != nil && volume.IsContent(r)
}

func (s *Server) volumes() (Volumes, error) {
	if s.o.Volumes == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "volumes: this daemon keeps none")
	}
	return s.o.Volumes, nil
}

func (s *Server) listVolumes(w http.ResponseWriter, r *http.Request) {
	all, err := s.volumes()
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := []api.Volume{}
	for _, v := range all.List(r.Context(), principalOf(r).caller) {
		out = append(out, viewVolume(all, v))
	}
	wire.JSON(w, http.StatusOK, out)
}

func (s *Server) postVolume(w http.ResponseWriter, r *http.Request) {
	var req api.VolumeRequest
	all, err := s.volumes()
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
	v, err := all.Create(r.Context(), principalOf(r).caller, volume.New{Name: req.Name, Size: req.Size, Inodes: req.Inodes})
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusCreated, viewVolume(all, v))
}

func (s *Server) getVolume(w http.ResponseWriter, r *http.Request) {
	all, err := s.volumes()
	var v volume.Volume
	if err == nil {
		v, err = all.Get(r.Context(), principalOf(r).caller, r.PathValue("ref"))
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusOK, viewVolume(all, v))
}

func (s *Server) deleteVolume(w http.ResponseWriter, r *http.Request) {
	all, err := s.volumes()
	if err == nil {
		err = all.Remove(r.Context(), principalOf(r).caller, r.PathValue("ref"))
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

// volumeMount resolves a mount that names a volume, by its name or its ID.
func (s *Server) volumeMount(ctx context.Context, p *principal, m api.Mount) (sandbox.Mount, error) {
	if m.Source != "" {
		return sandbox.Mount{}, sandbox.Errorf(sandbox.Invalid, "mount %.80q: it is both a directory of the host and a volume", m.Target).
			WithHint("name one of them")
	}
	id, name, err := s.volumeNamed(ctx, p, m.Volume)
	return sandbox.Mount{Volume: id, VolumeName: name, Target: m.Target, ReadOnly: m.ReadOnly}, err
}

// volumeNamed finds a volume of the caller's by its name or its ID.
func (s *Server) volumeNamed(ctx context.Context, p *principal, ref string) (id, name string, err error) {
	all, err := s.volumes()
	if err != nil {
		return "", "", err
	}
	v, err := all.Get(ctx, p.caller, ref)
	return v.ID, v.Name, err
}
