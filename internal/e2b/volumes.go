package e2b

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// Volumes keeps disks that outlive sandboxes. *volume.Service is one, and
// documents each method.
type Volumes interface {
	Create(ctx context.Context, c sandbox.Caller, n volume.New) (volume.Volume, error)
	List(ctx context.Context, c sandbox.Caller) []volume.Volume
	Get(ctx context.Context, c sandbox.Caller, ref string) (volume.Volume, error)
	Remove(ctx context.Context, c sandbox.Caller, ref string) error
	Token(v volume.Volume, source string) string
}

var _ Volumes = (*volume.Service)(nil)

// volumeMount is where a volume is to be seen in a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type volumeInfo struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
}

// volumeAndToken has what lets into the volume's content. Where the key may not
// move files, the token is empty.
type volumeAndToken struct {
	volumeInfo
	Token string `json:"token"`
}

func (h *handler) volumes() (Volumes, error) {
	if h.o.Volumes == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "volumes: this daemon keeps none")
	}
	return h.o.Volumes, nil
}

func (h *handler) withToken(v volume.Volume, c Caller) volumeAndToken {
	out := volumeAndToken{volumeInfo: volumeInfo{v.ID, v.Name}}
	if c.Exec {
		out.Token = h.o.Volumes.Token(v, c.Source)
	}
	return out
}

func (h *handler) listVolumes(w http.ResponseWriter, r *http.Request, c Caller) error {
	all, err := h.volumes()
	if err != nil {
		return err
	}
	out := []volumeInfo{}
	for _, v := range all.List(r.Context(), c.Caller) {
		out = append(out, volumeInfo{v.ID, v.Name})
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

func (h *handler) createVolume(w http.ResponseWriter, r *http.Request, c Caller) error {
	all, err := h.volumes()
	if err != nil {
		return err
	}
	var req struct {
		Name string `json:"name"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	v, err := all.Create(r.Context(), c.Caller, volume.New{Name: req.Name})
	if sandbox.KindOf(err) == sandbox.Conflict {
		err = invalid(err) // as E2B has it
	}
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusCreated, h.withToken(v, c))
	return nil
}

// invalid has an error answered as a bad request.
func invalid(err error) error {
	if sandbox.KindOf(err) == sandbox.Internal {
		return err
	}
	d := wire.Describe(err)
	e := sandbox.Errorf(sandbox.Invalid, "%s", d.Message)
	if d.Hint != "" {
		e = e.WithHint("%s", d.Hint)
	}
	return e
}

func (h *handler) getVolume(w http.ResponseWriter, r *http.Request, c Caller) error {
	all, err := h.volumes()
	if err != nil {
		return err
	}
	v, err := findVolume(r, all, c)
	if err == nil {
		wire.JSON(w, http.StatusOK, h.withToken(v, c))
	}
	return err
}

func (h *handler) removeVolume(w http.ResponseWriter, r *http.Request, c Caller) error {
	all, err := h.volumes()
	if err != nil {
		return err
	}
	v, err := findVolume(r, all, c)
	if err == nil {
		err = all.Remove(r.Context(), c.Caller, v.ID)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// findVolume returns the volume that the path names, by ID alone as E2B has it.
func findVolume(r *http.Request, all Volumes, c Caller) (volume.Volume, error) {
	id := r.PathValue("id")
	if !sandbox.ValidVolumeID(id) {
		return volume.Volume{}, sandbox.Errorf(sandbox.NotFound, "volume %.80q: not found", id)
	}
	return all.Get(r.Context(), c.Caller, id)
}

// mountsOf turns what a create says of volumes into mounts. E2B names them, and
// calls one that is not there a bad request.
func (h *handler) mountsOf(ctx context.Context, c Caller, wanted []volumeMount) ([]sandbox.Mount, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	all, err := h.volumes()
	if err != nil {
		return nil, err
	}
	if len(wanted) > sandbox.MaxMounts {
		return nil, sandbox.Errorf(sandbox.Invalid, "volumeMounts: more than %d", sandbox.MaxMounts)
	}
	var mounts []sandbox.Mount
	for _, m := range wanted {
		v, err := all.Get(ctx, c.Caller, m.Name)
		if err != nil {
			return nil, invalid(err)
		}
		mounts = append(mounts, sandbox.Mount{Volume: v.ID, VolumeName: v.Name, Target: m.Path})
	}
	return mounts, nil
}

// volumeMounts are those of a sandbox as E2B shows them.
func volumeMounts(sb *sandbox.Sandbox) []volumeMount {
	out := []volumeMount{}
	for _, m := range sb.Spec.Mounts {
		if m.Volume != "" {
			out = append(out, volumeMount{m.VolumeName, m.Target})
		}
	}
	return out
}
