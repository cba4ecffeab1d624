package server

import (
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/e2b"
)

// uploads takes archives for builds: E2B's clients send them without a key, to
// a link that they were given, which is good once and for that alone.
func (s *Server) uploads(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, inside := s.target(r) // a sandbox's own path, whatever it is called
		if !inside && s.o.Templates != nil && r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, e2b.UploadPath) {
			e2b.Upload(w, r, s.o.Templates)
			return
		}
		next.ServeHTTP(w, r)
	})
}
