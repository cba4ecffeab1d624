package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// endpoint is one path and method of the daemon's own API, and the scope that a
// key needs for it. A pattern with a "?" at its end has parameters, which its
// handler reads; to any other they are errors.
type endpoint struct {
	pattern string
	scope   key.Scope
	h       http.HandlerFunc
}

// routes are the daemon's own API.
func (s *Server) routes(mux *http.ServeMux) {
	for _, r := range append(s.sessionRoutes(), []endpoint{
		{"GET /v1/version", key.Read, s.getVersion},
		{"GET /v1/status", key.Read, s.getStatus},
		{"POST /v1/shutdown", key.Manage, s.postShutdown},
		{"POST /v1/sandboxes", key.Manage, s.postSandbox},
		{"GET /v1/sandboxes?", key.Read, s.listSandboxes},
		{"GET /v1/sandboxes/{id}", key.Read, s.getSandbox},
		{"DELETE /v1/sandboxes/{id}?", key.Manage, s.deleteSandbox},
		{"POST /v1/sandboxes/{id}/start", key.Manage, s.postStart},
		{"POST /v1/sandboxes/{id}/stop", key.Manage, s.postStop},
		{"POST /v1/sandboxes/{id}/pause", key.Manage, s.postPause},
		{"POST /v1/sandboxes/{id}/timeout", key.Manage, s.postTimeout},
		{"POST /v1/sandboxes/{id}/finish", key.Manage, s.postFinish},
		{"GET /v1/sandboxes/{id}/hold", key.Manage, s.getHold},
		{"GET /v1/sandboxes/{id}/events?", key.Read, s.getEvents},
		{"POST /v1/sandboxes/{id}/events", key.Exec, s.postEvent},
		{"GET /v1/sandboxes/{id}/changes?", key.Read, s.getChanges},
		{"GET /v1/sandboxes/{id}/policy", key.Read, s.getPolicy},
		{"PUT /v1/sandboxes/{id}/policy", key.Manage, s.putPolicy},
		{"POST /v1/sandboxes/{id}/policy/test", key.Read, s.postPolicyTest},
		{"GET /v1/sandboxes/{id}/netlog?", key.Read, s.getNetLog},
		{"POST /v1/sandboxes/{id}/snapshots", key.Manage, s.postSnapshot},
		{"GET /v1/snapshots", key.Read, s.listSnapshots},
		{"GET /v1/snapshots/{id}", key.Read, s.getSnapshot},
		{"DELETE /v1/snapshots/{id}", key.Manage, s.deleteSnapshot},
		{"GET /v1/templates/cache", key.Read, s.getTemplateCache},
		{"POST /v1/templates/gc", key.Manage, s.postTemplateGC},
		{"GET /v1/policy/presets", key.Read, s.getPresets},
		{"GET /v1/metrics", key.Read, s.metrics},
		{"GET /v1/keys", key.Keys, s.listKeys},
		{"POST /v1/keys", key.Keys, s.postKey},
		{"DELETE /v1/keys/{id}", key.Keys, s.deleteKey},
		{"GET /v1/secrets", key.Read, s.listSecrets},
		{"POST /v1/secrets", key.Manage, s.postSecret},
		{"DELETE /v1/secrets/{name}?", key.Manage, s.deleteSecret},
		{"POST /v1/secrets/{name}/rotate", key.Manage, s.postRotate},
		{"GET /v1/volumes", key.Read, s.listVolumes},
		{"POST /v1/volumes", key.Manage, s.postVolume},
		{"GET /v1/volumes/{ref}", key.Read, s.getVolume},
		{"DELETE /v1/volumes/{ref}", key.Manage, s.deleteVolume},
		{"/v1/sandboxes/{id}/guest/{path...}?", key.Exec, s.serveOwner},
		{"GET /v1/images?", key.Read, s.listImages},
		{"DELETE /v1/images?", key.Manage, s.deleteImage},
		{"POST /v1/images/pull", key.Manage, s.postImagePull},
		{"POST /v1/images/import?", key.Manage, s.postImageImport},
		{"POST /v1/images/gc", key.Manage, s.postImageGC},
	}...) {
		pattern, has := strings.CutSuffix(r.pattern, "?")
		h := r.h
		if !has {
			h = bare(h)
		}
		mux.HandleFunc(pattern, needs(r.scope, h))
	}
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		wire.Error(w, sandbox.Errorf(sandbox.NotFound, "%s %.200q: "+api.NoSuchPath, r.Method, r.URL.Path))
	})
}

// answer writes v, or err.
func answer(w http.ResponseWriter, status int, v any, err error) {
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, status, v)
}

func (s *Server) getVersion(w http.ResponseWriter, _ *http.Request) {
	wire.JSON(w, http.StatusOK, api.Version{Version: s.o.Version, API: api.Current})
}

func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) {
	if err := s.mustAdmin(r); err != nil {
		wire.Error(w, err)
		return
	}
	st, err := s.o.Status(r.Context())
	answer(w, http.StatusOK, st, err)
}

func (s *Server) postShutdown(w http.ResponseWriter, r *http.Request) {
	if err := s.mustAdmin(r); err != nil {
		wire.Error(w, err)
		return
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusAccepted)
	_ = http.NewResponseController(w).Flush()
	s.o.Shutdown()
}

// mustAdmin refuses all but the daemon's own user and root, over its socket.
func (s *Server) mustAdmin(r *http.Request) error {
	if p := principalOf(r); p.peer == nil || !p.caller.Admin {
		return sandbox.Errorf(sandbox.Denied, "only the daemon's own user and root may")
	}
	return nil
}

func (s *Server) postSandbox(w http.ResponseWriter, r *http.Request) {
	req, err := decodeCreate(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	p := principalOf(r)
	spec, err := s.spec(r.Context(), p, req)
	if err != nil {
		wire.Error(w, err)
		return
	}
	caller := p.caller
	if req.Template != "" {
		caller = template.Build{Snapshot: spec.Snapshot}.Caller(caller)
	}
	sb, err := s.m.Create(r.Context(), caller, spec, secretValues(&req))
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := view(r.Context(), sb, &imageConfigs{s: s})
	out.Warnings = warnings(&spec, knownHomes())
	wire.JSON(w, http.StatusCreated, out)
}

func (s *Server) listSandboxes(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	list, err := s.m.List(r.Context(), principalOf(r).caller, f)
	out := make([]api.Sandbox, 0, len(list))
	configs := &imageConfigs{s: s}
	for _, sb := range list {
		out = append(out, view(r.Context(), sb, configs))
	}
	answer(w, http.StatusOK, out, err)
}

var states = []sandbox.State{
	sandbox.StateCreated, sandbox.StateRunning, sandbox.StateStopping, sandbox.StateStopped, sandbox.StateRemoving,
}

// parseFilter reads ?label=K=V&state=S, each any number of times.
func parseFilter(r *http.Request) (f sandbox.Filter, err error) {
	q, err := query(r, "label", "state")
	if err != nil {
		return f, err
	}
	for _, l := range q["label"] {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return f, sandbox.Errorf(sandbox.Invalid, "label %.80q: not KEY=VALUE", l)
		}
		if old, ok := f.Labels[k]; ok && old != v {
			return f, sandbox.Errorf(sandbox.Invalid, "label %.80q: it can't have two values", k)
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[k] = v
	}
	for _, st := range q["state"] {
		if !slices.Contains(states, sandbox.State(st)) {
			return f, sandbox.Errorf(sandbox.Invalid, "state %.80q: there is no such state", st).WithHint("one of %q", states)
		}
		f.States = append(f.States, sandbox.State(st))
	}
	return f, nil
}

func (s *Server) getSandbox(w http.ResponseWriter, r *http.Request) {
	sb, err := s.m.Get(r.Context(), principalOf(r).caller, r.PathValue("id"))
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) answerSandbox(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, err error) {
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusOK, view(r.Context(), sb, &imageConfigs{s: s}))
}

func (s *Server) deleteSandbox(w http.ResponseWriter, r *http.Request) {
	force, err := flag(r, "force")
	if err == nil {
		err = s.m.Remove(r.Context(), principalOf(r).caller, r.PathValue("id"), force)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) postStart(w http.ResponseWriter, r *http.Request) {
	sb, err := s.m.Start(r.Context(), principalOf(r).caller, r.PathValue("id"))
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) postStop(w http.ResponseWriter, r *http.Request) {
	sb, err := s.m.Stop(r.Context(), principalOf(r).caller, r.PathValue("id"))
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request) {
	var req api.PauseRequest
	if err := wire.Decode(r, &req, true); err != nil {
		wire.Error(w, err)
		return
	}
	sb, _, err := s.m.Pause(r.Context(), principalOf(r).caller, r.PathValue("id"), !req.FilesOnly)
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) postTimeout(w http.ResponseWriter, r *http.Request) {
	var req api.TimeoutRequest
	if err := wire.Decode(r, &req, false); err != nil {
		wire.Error(w, err)
		return
	}
	ttl, err := millis("ttl_ms", req.TTLMillis)
	if err != nil {
		wire.Error(w, err)
		return
	}
	sb, err := s.m.SetTTL(r.Context(), principalOf(r).caller, r.PathValue("id"), ttl)
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) postFinish(w http.ResponseWriter, r *http.Request) {
	res, err := s.m.Finish(r.Context(), principalOf(r).caller, r.PathValue("id"))
	answer(w, http.StatusOK, api.FinishResult{Kept: res.Kept}, err)
}

func (s *Server) postEvent(w http.ResponseWriter, r *http.Request) {
	var ev api.Event
	err := wire.Decode(r, &ev, false)
	if err == nil && !ev.Time.IsZero() {
		err = sandbox.Errorf(sandbox.Invalid, "event: the time is the daemon's")
	}
	if err == nil && !callersEvent(ev.Type) && !weak.On(weak.ServerEventsForged) {
		err = sandbox.Errorf(sandbox.Invalid, "event: type %.80q is not one that callers may write: the others are the daemon's", ev.Type).
			WithHint("user., then letters, digits, \".\", \"_\" and \"-\"")
	}
	if err == nil {
		err = s.m.Record(r.Context(), principalOf(r).caller, r.PathValue("id"), sandbox.Event{Type: ev.Type, Message: ev.Message})
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// callersEvent reports whether callers may write events of a type: no line of
// theirs is to be taken for what happened to the sandbox.
func callersEvent(kind string) bool {
	name, ok := strings.CutPrefix(kind, "user.")
	return ok && key.ValidID(name)
}

// bare refuses all parameters.
func bare(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := query(r); err != nil {
			wire.Error(w, err)
			return
		}
		h(w, r)
	}
}

// query parses the parameters of r and refuses those that are not known.
func query(r *http.Request, known ...string) (map[string][]string, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "parameters: not well formed")
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, sandbox.Errorf(sandbox.Invalid, "parameter %.80q: there is no such parameter", name)
		}
	}
	return q, nil
}

// flag reads the only parameter of r, which is absent, 0 or 1.
func flag(r *http.Request, name string) (bool, error) {
	q, err := query(r, name)
	if err != nil {
		return false, err
	}
	return truth(name, q[name])
}

func truth(name string, values []string) (bool, error) {
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) == 1 && (values[0] == "0" || values[0] == "1"):
		return values[0] == "1", nil
	}
	return false, sandbox.Errorf(sandbox.Invalid, "parameter %s: 0 or 1", name)
}

// millis reads a duration of the wire.
func millis(name string, ms int64) (time.Duration, error) {
	if ms < 0 || ms > sandbox.MaxTTL.Milliseconds() {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: from 0 to %d milliseconds", name, sandbox.MaxTTL.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}
