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
	Collect(ctx context.Context, c sandbox.Caller) (template.Usage, error)
}

var _ TemplateCache = (*template.Service)(nil)

// templateAPI is what /v1/ has about what is kept for builds.
type templateAPI struct{ cache TemplateCache } // nil: nothing is

func (a templateAPI) answer(f func(TemplateCache, context.Context, sandbox.Caller) (template.Usage, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.cache == nil {
			wire.Error(w, sandbox.Errorf(sandbox.Unsupported, "templates: this daemon builds none"))
			return
		}
		u, err := f(a.cache, r.Context(), auth.Of(r).Caller)
		answer(w, http.StatusOK, api.TemplateCache{
			Steps: u.Steps, Snapshots: u.Snapshots, Size: u.Size, Files: u.Files, FileSize: u.FileSize,
		}, err)
	}
}
