package wire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Watch writes down why requests failed where their callers are told no more
// than that: internal errors that became answers, and panics, which it answers.
type Watch struct {
	Next http.Handler
	Log  *slog.Logger
	// Path is what the log may have of a request's path; nil: all of it.
	Path func(string) string
	// Panicked answers a request whose handler panicked before it answered.
	Panicked func(http.ResponseWriter, *http.Request)
}

// ServeHTTP implements http.Handler.
func (h *Watch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if h.Path != nil {
		path = h.Path(path)
	}
	log := h.Log.With("method", r.Method, "path", path)
	seen := &watched{ResponseWriter: w, log: log}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { // a panic's value, not wrapped
			panic(p)
		}
		log.Error("a request's handler panicked", "panic", p, "stack", string(debug.Stack()))
		if seen.begun {
			panic(http.ErrAbortHandler) // half an answer is not taken for a whole one
		}
		clear(w.Header())
		seen.log = slog.New(slog.DiscardHandler) // it was said
		h.Panicked(seen, r)
	}()
	h.Next.ServeHTTP(seen, r)
}

// watched notes whether an answer began.
type watched struct {
	http.ResponseWriter
	log   *slog.Logger
	begun bool
}

func (w *watched) WriteHeader(status int) {
	w.begun = w.begun || status >= 200 || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection, and Failed this.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Failed writes down an error that w's caller is told of as an internal one,
// with its cause. It is called once, where an error becomes an answer.
func Failed(w http.ResponseWriter, err error) {
	if sandbox.KindOf(err) != sandbox.Internal {
		return
	}
	for {
		if seen, ok := w.(*watched); ok {
			seen.failed(err)
			return
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = inner.Unwrap()
	}
}

func (w *watched) failed(err error) {
	level := slog.LevelError
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // the caller has gone
	}
	args := []any{"error", err}
	for e, ok := errors.AsType[*sandbox.Error](err); ok && e.Err != nil; e, ok = errors.AsType[*sandbox.Error](e.Err) {
		args = append(args, "cause", e.Err)
	}
	w.log.Log(context.Background(), level, "a request failed", args...)
}
