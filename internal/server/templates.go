package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
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

func (s *Server) getTemplateCache(w http.ResponseWriter, r *http.Request) {
	s.templateCache(w, r, TemplateCache.Usage)
}

func (s *Server) postTemplateGC(w http.ResponseWriter, r *http.Request) {
	s.templateCache(w, r, TemplateCache.Collect)
}

func (s *Server) templateCache(
	w http.ResponseWriter, r *http.Request, f func(TemplateCache, context.Context, sandbox.Caller) (template.Usage, error),
) {
	if s.o.TemplateCache == nil {
		wire.Error(w, sandbox.Errorf(sandbox.Unsupported, "templates: this daemon builds none"))
		return
	}
	u, err := f(s.o.TemplateCache, r.Context(), principalOf(r).caller)
	answer(w, http.StatusOK, api.TemplateCache{
		Steps: u.Steps, Snapshots: u.Snapshots, Size: u.Size, Files: u.Files, FileSize: u.FileSize,
	}, err)
}
