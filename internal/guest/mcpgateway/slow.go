package mcpgateway

import (
	"errors"
	"net/http"
	"time"
)

// A client that takes nothing for so long is cut off: what a server tells is told to one client
// after the other, and one that does not read would keep it from all others.
const (
	toldWithin     = time.Second      // of what it is told unasked, which is little
	answeredWithin = 30 * time.Second // of each piece of an answer, which may be long

	piece = 64 << 10
)

// withPatience bounds how long a client may take to read.
func withPatience(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within := answeredWithin
		if r.Method == http.MethodGet {
			within = toldWithin
		}
		next.ServeHTTP(&patient{w: w, c: http.NewResponseController(w), within: within}, r)
	})
}

// patient is an answer each piece of which its client takes within a time.
type patient struct {
	w      http.ResponseWriter
	c      *http.ResponseController
	within time.Duration
}

// Header implements http.ResponseWriter.
func (p *patient) Header() http.Header { return p.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (p *patient) WriteHeader(code int) { p.w.WriteHeader(code) }

// Write implements io.Writer.
func (p *patient) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		wrote := 0
		err = p.bounded(func() (err error) {
			wrote, err = p.w.Write(b[:min(len(b), piece)])
			return err
		})
		n += wrote
		b = b[wrote:]
	}
	return n, err
}

// Unwrap is for what http.ResponseController looks for besides.
func (p *patient) Unwrap() http.ResponseWriter { return p.w }

// FlushError implements what http.ResponseController looks for.
func (p *patient) FlushError() error { return p.bounded(p.c.Flush) }

// Flush implements http.Flusher.
func (p *patient) Flush() { _ = p.FlushError() }

// bounded gives one write its time. A connection without deadlines has all the time.
func (p *patient) bounded(write func() error) error {
	err := p.c.SetWriteDeadline(time.Now().Add(p.within))
	if errors.Is(err, http.ErrNotSupported) {
		return write()
	}
	if err != nil {
		return err
	}
	if err := write(); err != nil {
		return err // the deadline stays: nothing more is written
	}
	return p.c.SetWriteDeadline(time.Time{})
}
