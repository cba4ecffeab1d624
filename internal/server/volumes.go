package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cache"
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
	Cache(ctx context.Context, c sandbox.Caller, dir sandbox.HostDir) (volume.Volume, error)
	Home(ctx context.Context, c sandbox.Caller, dir sandbox.HostDir, program string) (volume.Volume, error)
	List(ctx context.Context, c sandbox.Caller) []volume.Volume
	Get(ctx context.Context, c sandbox.Caller, ref string) (volume.Volume, error)
	Changes(ctx context.Context, c sandbox.Caller, ref string, o sandbox.ChangesOptions, w io.Writer) error
	Export(ctx context.Context, c sandbox.Caller, ref string, w io.Writer) error
	Remove(ctx context.Context, c sandbox.Caller, ref string) error
	Discard(ctx context.Context, c sandbox.Caller, ref string) error
	Used(v volume.Volume) (bytes int64, sandboxes []string)
}

var _ Volumes = (*volume.Service)(nil)

// volumeAPI is what /v1/ has about volumes.
type volumeAPI struct {
	all Volumes // nil: there are none
	// source finds a directory of the host that a caller may read.
	source func(p *auth.Principal, path string) (sandbox.HostDir, error)
}

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
	n := volume.New{Name: req.Name, Size: req.Size, Inodes: req.Inodes}
	if req.From != "" {
		if n.From, err = a.source(auth.Of(r), req.From); err != nil {
			wire.Error(w, err)
			return
		}
	}
	watched(w, r, http.StatusCreated, volumeNews, func(ctx context.Context, _ func(createNews)) (*api.Volume, error) {
		var skipped []string
		n.Skipped = func(what string) { skipped = append(skipped, what) }
		v, err := all.Create(ctx, auth.Of(r).Caller, n)
		if err != nil {
			return nil, err
		}
		view := viewVolume(all, v)
		view.Skipped = skipped
		return &view, nil
	})
}

// volumeNews are the lines that tell of a volume that is made.
func volumeNews(n createNews, v *api.Volume, err *api.Error) any {
	return api.VolumeEvent{Copied: n.copies(), Volume: v, Error: err}
}

// changes writes what was changed in a volume since it began as a copy of a directory.
func (a volumeAPI) changes(w http.ResponseWriter, r *http.Request) {
	all, err := a.kept()
	var o sandbox.ChangesOptions
	var hold bool
	if err == nil {
		o, hold, err = changesRequest(r)
	}
	if err == nil && (o.Whole || hold) {
		err = sandbox.Errorf(sandbox.Invalid, "whole, hold: a volume has neither")
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := newStream(w, "application/octet-stream")
	out.finish(all.Changes(r.Context(), auth.Of(r).Caller, r.PathValue("ref"), o, out))
}

// export writes an archive of what a volume holds.
func (a volumeAPI) export(w http.ResponseWriter, r *http.Request) {
	all, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := newStream(w, "application/x-tar")
	out.finish(all.Export(r.Context(), auth.Of(r).Caller, r.PathValue("ref"), out))
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
	var fresh bool
	if err == nil {
		fresh, err = flag(r, "fresh")
	}
	if err == nil {
		remove := all.Remove
		if fresh {
			remove = all.Discard
		}
		err = remove(r.Context(), auth.Of(r).Caller, r.PathValue("ref"))
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
		Enforced: v.Unenforced == "", Reason: v.Unenforced, CacheOf: v.Cache.Path, HomeOf: v.Home, From: v.From.Path, Sandboxes: []string{}, CreatedAt: v.CreatedAt,
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

// caches shows in spec the caches of the tools with those names, kept for the
// directory that is its workspace. A variable that is among given stays.
func (a volumeAPI) caches(ctx context.Context, p *auth.Principal, names []string, given map[string]string, spec *sandbox.Spec) error {
	if len(names) == 0 {
		return nil
	}
	if err := cache.Check(names); err != nil {
		return cacheError(err)
	}
	dir := spec.Workspace.Source
	if dir.Ino == 0 {
		return sandbox.Errorf(sandbox.Invalid, "cache: it is kept for the directory that is the workspace, and there is none").
			WithHint("--workspace DIR, or a volume of your own: --volume NAME:PATH")
	}
	all, err := a.kept()
	if err != nil {
		return err
	}
	v, err := all.Cache(ctx, p.Caller, dir)
	if err != nil {
		return err
	}
	if spec.Env = maps.Clone(spec.Env); spec.Env == nil {
		spec.Env = map[string]string{}
	}
	for _, n := range names {
		env, _ := cache.Env(n)
		for k, value := range env {
			if _, ok := given[k]; !ok {
				spec.Env[k] = value
			}
		}
	}
	spec.Caches = names
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Volume: v.ID, VolumeName: v.Name, Target: cache.Dir, Cache: true})
	return nil
}

// cacheError is an error of cache.Check as a caller reads it.
func cacheError(err error) error {
	e, ok := errors.AsType[*cache.Error](err)
	if !ok {
		return err
	}
	return sandbox.Errorf(sandbox.Invalid, "%s", e.Error()).WithHint("%s", e.Hint())
}

// Bounds of homes.
const (
	maxHomes     = 8
	maxHomePaths = 8
)

// homes shows in spec the directories of homes that are kept for the directory that
// is its workspace.
func (a volumeAPI) homes(ctx context.Context, p *auth.Principal, homes []api.Home, spec *sandbox.Spec) error {
	if len(homes) == 0 {
		return nil
	}
	if len(homes) > maxHomes {
		return sandbox.Errorf(sandbox.Invalid, "homes: %d are too many", len(homes)).WithHint("at most %d", maxHomes)
	}
	dir := spec.Workspace.Source
	if dir.Ino == 0 {
		return sandbox.Errorf(sandbox.Invalid, "home: it is kept for the directory that is the workspace, and there is none").
			WithHint("--workspace DIR, or a volume of your own: --volume NAME:PATH")
	}
	all, err := a.kept()
	if err != nil {
		return err
	}
	for i, h := range homes {
		switch {
		case len(h.Paths) == 0 || len(h.Paths) > maxHomePaths:
			return sandbox.Errorf(sandbox.Invalid, "home %.80q: it has %d directories", h.Program, len(h.Paths)).WithHint("1 to %d", maxHomePaths)
		case slices.ContainsFunc(homes[:i], func(o api.Home) bool { return o.Program == h.Program }):
			return sandbox.Errorf(sandbox.Invalid, "home %.80q: it is there twice", h.Program).WithHint("name all of its directories at once")
		}
	}
	for _, h := range homes {
		v, err := all.Home(ctx, p.Caller, dir, h.Program)
		if err != nil {
			return err
		}
		for _, at := range h.Paths {
			spec.Mounts = append(spec.Mounts, sandbox.Mount{
				Volume: v.ID, VolumeName: v.Name, Target: at, Cache: true, Home: h.Program, Sub: homeName(at),
			})
		}
	}
	return nil
}

// discard takes back the caches and homes that were made for a sandbox of which nothing
// came.
func (a volumeAPI) discard(ctx context.Context, p *auth.Principal, spec *sandbox.Spec) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardWait)
	defer cancel()
	done := map[string]bool{}
	for _, m := range spec.Mounts {
		if m.Cache && !done[m.Volume] {
			done[m.Volume] = true
			_ = a.all.Discard(ctx, p.Caller, m.Volume) // what was there before is refused, and what can't be removed is no loss
		}
	}
}

// has reports whether the caller has that volume.
func (a volumeAPI) has(ctx context.Context, p *auth.Principal, id string) bool {
	all, err := a.kept()
	if err == nil {
		_, err = all.Get(ctx, p.Caller, id)
	}
	return err == nil
}

// discardWait bounds what is done for a create that has failed.
const discardWait = 30 * time.Second

// homeName is what a directory is called in a home that is kept: where it lies in the
// home, whosever that is, so that another user of the sandbox finds it again.
func homeName(at string) string {
	at = path.Clean(at)
	for _, home := range []string{"/home/user/", "/root/"} {
		if rel, ok := strings.CutPrefix(at, home); ok {
			return url.PathEscape(rel)
		}
	}
	return url.PathEscape(at)
}
