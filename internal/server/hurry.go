package server

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// hurried returns r with a body that has to come in time: a connection that
// says a byte now and then holds what answers it. What may be as large as its
// sender likes takes as long as it takes.
func (s *Server) hurried(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.ContentLength == 0 || r.URL.Path == "/v1/images/import" ||
		strings.HasPrefix(r.URL.Path, "/v1/sandboxes/") && strings.Contains(r.URL.Path, "/guest/") {
		return r
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(s.bodyTime)) != nil {
		return r // it has none
	}
	in := r.WithContext(r.Context())
	in.Body = &timedBody{r.Body, c}
	return in
}

// timedBody is a body that is read until a deadline. Once it has ended, the
// connection is only looked at for its end.
type timedBody struct {
	io.ReadCloser
	c *http.ResponseController
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.c.SetReadDeadline(time.Time{})
	}
	return n, err
}
