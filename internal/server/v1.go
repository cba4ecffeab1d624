package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
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
	images := &imageAPI{store: s.o.Images, log: s.log}
	volumes := volumeAPI{all: s.o.Volumes, source: s.readable}
	templates := templateAPI{s.o.TemplateCache}
	sandboxes := &sandboxAPI{m: s.o.Manager, images: images, templates: templates, sockets: s.o.Sockets, skill: s.o.Skill, hasSkill: s.o.HasSkill, reading: s.reading, specs: &specs{
		m: s.o.Manager, images: images, volumes: volumes, templates: s.o.Templates,
		mountDirs: s.o.MountDirs, private: s.o.Private, uid: s.uid,
	}}
	approvals := approvalAPI{desk: s.o.Approvals, m: s.o.Manager}
	network := networkAPI{m: s.o.Manager, log: s.log, sandboxes: sandboxes}
	metrics := metricsAPI{m: s.o.Manager, sessions: s.o.SessionMetrics, log: s.log}
	keys, secrets := keyAPI{s.o.Ring}, secretAPI{s.o.Secrets}
	pods := podAPI{s.o.Pods, s.ingress.Become}
	for _, r := range append(append(s.sessionRoutes(), s.actionRoutes()...), []endpoint{
		{"GET /v1/version", key.Read, s.getVersion},
		{"GET /v1/status", key.Read, s.getStatus},
		{"POST /v1/shutdown", key.Manage, s.postShutdown},
		{"POST /v1/sandboxes?", key.Manage, sandboxes.create},
		{"GET /v1/sandboxes?", key.Read, sandboxes.list},
		{"GET /v1/sandboxes/{id}", key.Read, sandboxes.get},
		{"PATCH /v1/sandboxes/{id}", key.Manage, sandboxes.set},
		{"DELETE /v1/sandboxes/{id}?", key.Manage, sandboxes.remove},
		{"POST /v1/sandboxes/{id}/start", key.Manage, sandboxes.start},
		{"POST /v1/sandboxes/{id}/stop", key.Manage, sandboxes.stop},
		{"POST /v1/sandboxes/{id}/setup", key.Manage, sandboxes.setUp},
		{"POST /v1/sandboxes/{id}/pause", key.Manage, sandboxes.pause},
		{"POST /v1/sandboxes/{id}/timeout", key.Manage, sandboxes.setTTL},
		{"POST /v1/sandboxes/{id}/workspace/lock", key.Manage, sandboxes.lock},
		{"POST /v1/sandboxes/{id}/workspace/unlock", key.Manage, sandboxes.unlock},
		{"POST /v1/sandboxes/{id}/finish", key.Manage, sandboxes.finish},
		{"GET /v1/sandboxes/{id}/processes", key.Read, sandboxes.processes},
		{"GET /v1/sandboxes/{id}/held", key.Read, sandboxes.held},
		{"GET /v1/sandboxes/{id}/usage", key.Read, sandboxes.usage},
		{"GET /v1/sandboxes/{id}/hold", key.Manage, sandboxes.hold},
		{"GET /v1/sandboxes/{id}/events?", key.Read, sandboxes.events},
		{"POST /v1/sandboxes/{id}/events", key.Exec, sandboxes.addEvent},
		{"GET /v1/sandboxes/{id}/changes?", key.Read, sandboxes.changes},
		{"GET /v1/sandboxes/{id}/ports/{port}", key.Exec, s.ingress.ServeRaw},
		{"POST /v1/sandboxes/{id}/ports/{port}/open", key.Exec, s.ingress.ServeOpen},
		{"POST /v1/sandboxes/{id}/offers/{service}", key.Manage, s.ingress.ServeOffer},
		{"POST /v1/sandboxes/{id}/changes", key.Read, sandboxes.selectChanges},
		{"GET /v1/sandboxes/{id}/policy", key.Read, network.policy},
		{"PUT /v1/sandboxes/{id}/policy?", key.Manage, network.putPolicy},
		{"POST /v1/sandboxes/{id}/policy/test", key.Read, network.postTest},
		{"GET /v1/sandboxes/{id}/netlog?", key.Read, network.records},
		{"GET /v1/sandboxes/{id}/disk?", key.Read, sandboxes.listDisk},
		{"GET /v1/sandboxes/{id}/disk/file?", key.Exec, sandboxes.readDisk},
		{"GET /v1/sandboxes/{id}/disk/image", key.Exec, sandboxes.exportDisk},
		{"POST /v1/sandboxes/{id}/disk/scrub", key.Manage, sandboxes.scrubDisk},
		{"POST /v1/sandboxes/{id}/snapshots", key.Manage, sandboxes.snapshot},
		{"GET /v1/snapshots", key.Read, sandboxes.listSnapshots},
		{"GET /v1/snapshots/{id}", key.Read, sandboxes.getSnapshot},
		{"DELETE /v1/snapshots/{id}", key.Manage, sandboxes.removeSnapshot},
		{"GET /v1/templates/cache", key.Read, templates.usage},
		{"POST /v1/templates/gc", key.Manage, templates.collect},
		{"GET /v1/policy/presets", key.Read, network.presets},
		{"GET /v1/approvals?", key.Read, approvals.list},
		{"GET /v1/approvals/{id}", key.Read, approvals.get},
		{"POST /v1/approvals/{id}/allow", key.Approve, approvals.allow},
		{"POST /v1/approvals/{id}/deny", key.Approve, approvals.deny},
		{"GET /v1/metrics", key.Read, metrics.serve},
		{"GET /v1/keys", key.Keys, keys.list},
		{"POST /v1/keys", key.Keys, keys.make},
		{"DELETE /v1/keys/{id}", key.Keys, keys.remove},
		{"GET /v1/secrets", key.Read, secrets.list},
		{"POST /v1/secrets", key.Manage, secrets.put},
		{"DELETE /v1/secrets/{name}?", key.Manage, secrets.remove},
		{"POST /v1/secrets/{name}/rotate", key.Manage, secrets.rotate},
		{"GET /v1/volumes", key.Read, volumes.list},
		{"POST /v1/volumes", key.Manage, volumes.create},
		{"GET /v1/volumes/{ref}", key.Read, volumes.get},
		{"DELETE /v1/volumes/{ref}?", key.Manage, volumes.remove},
		{"POST /v1/volumes/{ref}/changes", key.Read, volumes.changes},
		{"GET /v1/volumes/{ref}/archive", key.Exec, volumes.export},
		{"/v1/sandboxes/{id}/guest/{path...}?", key.Exec, s.ingress.ServeOwner},
		{"GET /v1/pods", key.Read, pods.handle(pods.list)},
		{"POST /v1/pods", key.Manage, pods.handle(pods.spawn)},
		{"GET /v1/pods/{name}", key.Read, pods.handle(pods.get)},
		{"DELETE /v1/pods/{name}", key.Manage, pods.handle(pods.stop)},
		{"POST /v1/pods/{name}/messages", key.Exec, pods.handle(pods.send)},
		{"GET /v1/pods/{name}/output?", key.Exec, pods.handle(pods.output)},
		{"GET /v1/pods/{name}/attach", key.Exec, pods.handle(pods.attach)},
		{"GET /v1/images?", key.Read, images.list},
		{"DELETE /v1/images?", key.Manage, images.remove},
		{"POST /v1/images/pull", key.Manage, images.pull},
		{"POST /v1/images/import?", key.Manage, images.importTar},
		{"POST /v1/images/gc", key.Manage, images.collect},
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
	if s.o.Volumes != nil {
		mux.Handle("/volumecontent/", s.o.Volumes)
	}
	mux.Handle("/", s.dialect)
}

// needs lets h serve only callers whose key has a scope.
func needs(scope key.Scope, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !auth.Of(r).Allows(scope) {
			wire.Error(w, sandbox.Errorf(sandbox.Denied, "this key has not the scope %s", scope))
			return
		}
		h(w, r)
	}
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
	if err := mustAdmin(r); err != nil {
		wire.Error(w, err)
		return
	}
	st, err := s.o.Status(r.Context())
	answer(w, http.StatusOK, st, err)
}

func (s *Server) postShutdown(w http.ResponseWriter, r *http.Request) {
	if err := mustAdmin(r); err != nil {
		wire.Error(w, err)
		return
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusAccepted)
	_ = http.NewResponseController(w).Flush()
	s.o.Shutdown()
}

// mustAdmin refuses all but the daemon's own user and root, over its socket.
func mustAdmin(r *http.Request) error {
	if p := auth.Of(r); p.Peer == nil || !p.Caller.Admin {
		return sandbox.Errorf(sandbox.Denied, "only the daemon's own user and root may")
	}
	return nil
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
