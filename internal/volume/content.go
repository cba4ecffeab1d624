package volume

import (
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// contentRoot is where the content API begins: /volumecontent/ID/OPERATION.
const contentRoot = "/volumecontent/"

// IsContent reports whether a request is one of the content API, which asks for
// a volume's token instead of a key.
func IsContent(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, contentRoot) }

// ServeHTTP is the content API. A caller without a token of the volume learns
// nothing of it.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, operation, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, contentRoot), "/")
	operation = "/" + operation
	if !ok || !content.Known(r.Method, operation) {
		content.Fail(w, http.StatusNotFound, "no such path and method")
		return
	}
	g, ok := s.granted(bearer(r))
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		content.Fail(w, http.StatusUnauthorized, "the volume's token is needed, as Authorization: Bearer; ask for a new one with GET /volumes/ID")
		return
	}
	if g.Volume != id {
		content.Fail(w, http.StatusForbidden, "the token is another volume's")
		return
	}
	s.mu.Lock()
	v, ok := s.volumes[id]
	s.mu.Unlock()
	if !ok {
		content.Fail(w, http.StatusNotFound, "the volume has been removed")
		return
	}
	t, err := tree.Find(s.o.State, id)
	if err != nil {
		s.log.Error("find volume", "id", id, "error", err)
		content.Fail(w, http.StatusInternalServerError, "the volume's disk is gone")
		return
	}
	limit := int64(0)
	if t.Image == "" {
		limit = v.Size // what its file system would keep to
	}
	s.content.Serve(w, r, content.Target{ID: id, Owner: v.Owner, Tree: t, Limit: limit}, operation)
}

// bearer returns the token of a request. One that is there twice is none.
func bearer(r *http.Request) string {
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(all[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

var _ sandbox.Volumes = (*Service)(nil)
