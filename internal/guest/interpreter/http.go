package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

const (
	maxBody   = 16 << 20 // bytes of a request
	keepalive = 5 * time.Second
)

// statusError is an error with the status to answer it with.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func invalid(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /health":                 s.health,
		"POST /execute":               s.postExecute,
		"GET /contexts":               s.getContexts,
		"POST /contexts":              s.postContext,
		"DELETE /contexts/{id}":       s.deleteContext,
		"POST /contexts/{id}/restart": s.postRestart,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	return mux
}

// ServeHTTP answers as E2B's server does, browsers of any origin too: a caller
// that reaches the port has been let in.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" {
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		w.WriteHeader(http.StatusOK)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// writeError answers in plain text. What is missing is 404: of all statuses,
// it is that one whose text E2B's clients show.
func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var missing *missingError
	var with *statusError
	var cwd *cwdError
	switch {
	case errors.As(err, &missing):
		status = http.StatusNotFound
	case errors.As(err, &with):
		status = with.status
	case errors.As(err, &cwd):
		status = http.StatusBadRequest
	case errors.Is(err, errContexts):
		status = http.StatusTooManyRequests
	}
	http.Error(w, err.Error(), status)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(encode(v))
	return err
}

// decode reads a body, and refuses fields that are not known.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = strict.Unmarshal(b, v)
	}
	if err != nil {
		return invalid("body: %w", err)
	}
	return nil
}

// health succeeds once the first kernel runs. It holds the answer back for a
// while, so that a client that waits for it need not ask often.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.up:
		return writeJSON(w, "OK")
	case <-r.Context().Done():
	case <-time.After(keepalive):
	}
	return &statusError{http.StatusServiceUnavailable, errors.New("the first kernel is starting")}
}

// contextBody is a context as clients have it.
type contextBody struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func body(c *scope) contextBody { return contextBody{c.id, c.language, c.cwd} }

func (s *Server) getContexts(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	list := slices.Clone(s.scopes)
	s.mu.Unlock()
	out := make([]contextBody, 0, len(list))
	for _, c := range list {
		out = append(out, body(c))
	}
	return writeJSON(w, out)
}

func (s *Server) postContext(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Language *string `json:"language"`
		Cwd      *string `json:"cwd"`
	}
	if err := decode(w, r, &req); err != nil {
		return err
	}
	language, cwd := python, s.o.Cwd
	if req.Language != nil {
		language = normal(*req.Language)
	}
	if req.Cwd != nil && *req.Cwd != "" {
		cwd = *req.Cwd
	}
	c, err := s.newScope(language, cwd)
	if err != nil {
		return err
	}
	if err := s.add(c, false); err != nil {
		return err
	}
	if err := c.restart(r.Context()); err != nil {
		c.remove()
		s.drop(c)
		return err
	}
	return writeJSON(w, body(c))
}

func (s *Server) named(r *http.Request) (*scope, error) {
	id := r.PathValue("id")
	if c := s.find(id); c != nil {
		return c, nil
	}
	return nil, &statusError{http.StatusNotFound, fmt.Errorf("context %.80s not found", id)}
}

func (s *Server) deleteContext(w http.ResponseWriter, r *http.Request) error {
	c, err := s.named(r)
	if err != nil {
		return err
	}
	s.drop(c)
	c.remove()
	return writeJSON(w, nil)
}

func (s *Server) postRestart(w http.ResponseWriter, r *http.Request) error {
	c, err := s.named(r)
	if err != nil {
		return err
	}
	if err := c.restart(r.Context()); err != nil {
		return err
	}
	return writeJSON(w, nil)
}

type executeBody struct {
	Code     *string           `json:"code"`
	Context  *string           `json:"context_id"`
	Language *string           `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

// scopeOf finds the context that a cell is for.
func (s *Server) scopeOf(req executeBody) (*scope, error) {
	id, language := "", ""
	if req.Context != nil {
		id = *req.Context
	}
	if req.Language != nil {
		language = *req.Language
	}
	switch {
	case req.Code == nil:
		return nil, invalid("code: it is missing")
	case id != "" && language != "":
		return nil, invalid("only one of context_id or language can be provided")
	case id != "" && id != "default":
		if c := s.find(id); c != nil {
			return c, nil
		}
		return nil, &statusError{http.StatusNotFound, fmt.Errorf("context %.80s not found", id)}
	}
	return s.defaultScope(normal(language))
}

// postExecute runs a cell and streams what comes of it. The answer begins at
// once: a cell may have to wait for others. When the client goes away the cell
// is interrupted.
func (s *Server) postExecute(w http.ResponseWriter, r *http.Request) error {
	var req executeBody
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := checkEnv(req.Env); err != nil {
		return invalid("%w", err)
	}
	c, err := s.scopeOf(req)
	if err != nil {
		return err
	}
	if _, ok := setting(c.language, nil, nil); !ok && len(req.Env) > 0 {
		return invalid("env_vars: they can't be set for one cell of %s", c.language)
	}
	out := newOutbox()
	// The cell outlives the request by as long as it takes to interrupt it.
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(errors.New("the client has gone"))
	s.work.Go(func() { c.execute(ctx, *req.Code, req.Env, out) })
	stream(w, r, out)
	return nil
}

// stream writes a cell's events until its end, or until the client is gone.
func stream(w http.ResponseWriter, r *http.Request, out *outbox) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	tick := time.NewTicker(keepalive)
	defer tick.Stop()
	for {
		lines, end := out.take()
		for _, l := range lines {
			if _, err := w.Write(l); err != nil {
				return
			}
		}
		if end {
			_, _ = w.Write(encode(bare{"end_of_execution"}))
			return
		}
		if rc.Flush() != nil {
			return
		}
		select {
		case <-out.ready:
		case <-r.Context().Done():
			return
		case <-tick.C:
			if _, err := w.Write(encode(bare{"keepalive"})); err != nil {
				return
			}
		}
	}
}
