package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// TemplateCache is what is kept for later builds. *template.Service is one, and
// documents each method.
type TemplateCache interface {
	Usage(ctx context.Context, c sandbox.Caller) (template.Usage, error)
	Droppable(ctx context.Context, c sandbox.Caller) (template.Usage, error)
	NamesOf(snapshot string) []string
	Collect(ctx context.Context, c sandbox.Caller) (template.Usage, error)
}

var _ TemplateCache = (*template.Service)(nil)

// templateAPI is what /v1/ has about what is kept for builds.
type templateAPI struct{ cache TemplateCache } // nil: nothing is

var errNoBuilds = sandbox.Errorf(sandbox.Unsupported, "templates: this daemon builds none")

func (a templateAPI) usage(w http.ResponseWriter, r *http.Request) {
	if a.cache == nil {
		wire.Error(w, errNoBuilds)
		return
	}
	c := auth.Of(r).Caller
	u, err := a.cache.Usage(r.Context(), c)
	out := cacheView(u)
	if err == nil {
		var drop template.Usage
		drop, err = a.cache.Droppable(r.Context(), c)
		view := cacheView(drop)
		out.Droppable = &view
	}
	answer(w, http.StatusOK, out, err)
}

func (a templateAPI) collect(w http.ResponseWriter, r *http.Request) {
	if a.cache == nil {
		wire.Error(w, errNoBuilds)
		return
	}
	u, err := a.cache.Collect(r.Context(), auth.Of(r).Caller)
	answer(w, http.StatusOK, cacheView(u), err)
}

func cacheView(u template.Usage) api.TemplateCache {
	return api.TemplateCache{Steps: u.Steps, Snapshots: u.Snapshots, Size: u.Size, Files: u.Files, FileSize: u.FileSize}
}

// ofBuild refuses to remove a snapshot that a build made: templates and later builds
// start from it.
func (a templateAPI) ofBuild(s sandbox.Snapshot) error {
	if _, ok := template.BuiltBy(s.Owner); !ok || a.cache == nil {
		return nil
	}
	if names := a.cache.NamesOf(s.ID); len(names) > 0 {
		return sandbox.Errorf(sandbox.Conflict, "snapshot %s: it belongs to the template %s", s.ID, names[0]).
			WithHint("carboy template rm %s", names[0])
	}
	return sandbox.Errorf(sandbox.Conflict, "snapshot %s: it is a step that is kept for template builds", s.ID).
		WithHint("carboy template gc")
}
