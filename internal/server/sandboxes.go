package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// sandboxAPI is what /v1/ has about sandboxes and their snapshots.
type sandboxAPI struct {
	m      sandboxes
	specs  *specs
	images *imageAPI
}

func (a *sandboxAPI) create(w http.ResponseWriter, r *http.Request) {
	req, err := decodeCreate(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	p := auth.Of(r)
	spec, err := a.specs.read(r.Context(), p, req)
	if err != nil {
		wire.Error(w, err)
		return
	}
	caller := p.Caller
	if req.Template != "" {
		caller = template.Build{Snapshot: spec.Snapshot}.Caller(caller)
	}
	sb, err := a.m.Create(r.Context(), caller, spec, secretValues(&req))
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := view(r.Context(), sb, &imageConfigs{images: a.images})
	out.Warnings = warnings(&spec, knownHomes())
	wire.JSON(w, http.StatusCreated, out)
}

func (a *sandboxAPI) list(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	list, err := a.m.List(r.Context(), auth.Of(r).Caller, f)
	out := make([]api.Sandbox, 0, len(list))
	configs := &imageConfigs{images: a.images}
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

func (a *sandboxAPI) get(w http.ResponseWriter, r *http.Request) {
	sb, err := a.m.Get(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	a.answer(w, r, sb, err)
}

func (a *sandboxAPI) answer(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, err error) {
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusOK, view(r.Context(), sb, &imageConfigs{images: a.images}))
}

func (a *sandboxAPI) remove(w http.ResponseWriter, r *http.Request) {
	force, err := flag(r, "force")
	if err == nil {
		err = a.m.Remove(r.Context(), auth.Of(r).Caller, r.PathValue("id"), force)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *sandboxAPI) start(w http.ResponseWriter, r *http.Request) {
	sb, err := a.m.Start(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	a.answer(w, r, sb, err)
}

func (a *sandboxAPI) stop(w http.ResponseWriter, r *http.Request) {
	sb, err := a.m.Stop(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	a.answer(w, r, sb, err)
}

func (a *sandboxAPI) pause(w http.ResponseWriter, r *http.Request) {
	var req api.PauseRequest
	if err := wire.Decode(r, &req, true); err != nil {
		wire.Error(w, err)
		return
	}
	sb, _, err := a.m.Pause(r.Context(), auth.Of(r).Caller, r.PathValue("id"), !req.FilesOnly)
	a.answer(w, r, sb, err)
}

func (a *sandboxAPI) setTTL(w http.ResponseWriter, r *http.Request) {
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
	sb, err := a.m.SetTTL(r.Context(), auth.Of(r).Caller, r.PathValue("id"), ttl)
	a.answer(w, r, sb, err)
}

func (a *sandboxAPI) finish(w http.ResponseWriter, r *http.Request) {
	res, err := a.m.Finish(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	answer(w, http.StatusOK, api.FinishResult{Kept: res.Kept}, err)
}

func (a *sandboxAPI) addEvent(w http.ResponseWriter, r *http.Request) {
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
		err = a.m.Record(r.Context(), auth.Of(r).Caller, r.PathValue("id"), sandbox.Event{Type: ev.Type, Message: ev.Message})
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

func snapshotView(s sandbox.Snapshot) api.Snapshot {
	image, digest := splitImage(s.Image)
	return api.Snapshot{
		ID: s.ID, Owner: s.Owner, Image: image, ImageDigest: digest, Parent: s.Parent, Source: s.Source,
		Size: s.Size, Shared: s.Shared, Notes: s.Notes, CreatedAt: s.CreatedAt,
	}
}

func (a *sandboxAPI) snapshot(w http.ResponseWriter, r *http.Request) {
	snap, err := a.m.Snapshot(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	answer(w, http.StatusCreated, snapshotView(snap), err)
}

func (a *sandboxAPI) listSnapshots(w http.ResponseWriter, r *http.Request) {
	list, err := a.m.Snapshots(r.Context(), auth.Of(r).Caller)
	out := make([]api.Snapshot, 0, len(list))
	for _, snap := range list {
		out = append(out, snapshotView(snap))
	}
	answer(w, http.StatusOK, out, err)
}

func (a *sandboxAPI) getSnapshot(w http.ResponseWriter, r *http.Request) {
	snap, err := a.m.GetSnapshot(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	answer(w, http.StatusOK, snapshotView(snap), err)
}

func (a *sandboxAPI) removeSnapshot(w http.ResponseWriter, r *http.Request) {
	if err := a.m.RemoveSnapshot(r.Context(), auth.Of(r).Caller, r.PathValue("id")); err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
