package server

import (
	"context"
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

	templates templateAPI
	sockets   func(id string) string // nil: there are none
	skill     SkillFunc              // nil: there are none
	hasSkill  func(ctx context.Context, owner, name string) error
	reading   func(http.ResponseWriter, *http.Request) (leave func(), err error)
}

func (a *sandboxAPI) create(w http.ResponseWriter, r *http.Request) {
	check, err := flag(r, "check")
	var req api.CreateRequest
	if err == nil {
		req, err = a.decodeCreate(w, r)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	p := auth.Of(r)
	if check {
		a.check(w, r, p, req)
		return
	}
	spec, err := a.specs.read(r.Context(), p, req)
	if err != nil {
		wire.Error(w, err)
		return
	}
	caller := p.Caller
	if req.Template != "" {
		caller = template.Build{Snapshot: spec.Snapshot}.Caller(caller)
	}
	watchCreate(w, r, http.StatusCreated, func(ctx context.Context, told func(api.SetUpStep)) (*api.Sandbox, error) {
		ctx, err := a.withSetUp(ctx, p, req.SetUp, &spec, told)
		var sb *sandbox.Sandbox
		if err == nil {
			sb, err = a.m.Create(ctx, caller, spec, secretValues(&req))
		}
		if err != nil {
			a.specs.volumes.discard(ctx, p, &spec)
			return nil, a.ofHome(ctx, p, req.SetUp, &spec, err)
		}
		out := a.view(r, sb, &imageConfigs{images: a.images})
		out.Warnings = warnings(&spec, knownHomes())
		return &out, nil
	})
}

// check says why a sandbox could not be created, as far as that is known without making
// anything, nor the caches and homes that it would have.
func (a *sandboxAPI) check(w http.ResponseWriter, r *http.Request, p *auth.Principal, req api.CreateRequest) {
	req.Caches, req.Homes = nil, nil
	spec, err := a.specs.read(r.Context(), p, req)
	if err == nil {
		err = a.m.Check(r.Context(), spec)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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
		out = append(out, a.view(r, sb, configs))
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
	wire.JSON(w, http.StatusOK, a.view(r, sb, &imageConfigs{images: a.images}))
}

// view is a sandbox as who sent r is shown it: its socket is for users of this machine.
func (a *sandboxAPI) view(r *http.Request, sb *sandbox.Sandbox, configs *imageConfigs) api.Sandbox {
	out := view(r.Context(), sb, a.m.Published(sb.ID), configs)
	if a.sockets != nil && auth.Of(r).Peer != nil {
		out.Socket = a.sockets(sb.ID)
	}
	return out
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
	c := auth.Of(r).Caller
	snap, err := a.m.GetSnapshot(r.Context(), c, r.PathValue("id"))
	if err == nil {
		err = a.templates.ofBuild(snap)
	}
	if err == nil {
		err = a.m.RemoveSnapshot(r.Context(), c, snap.ID)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
