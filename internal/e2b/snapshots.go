package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/template"
)

const (
	maxForks   = 100
	forkAtOnce = 4
)

// namer gives snapshots names, by which they are templates. A TemplateService
// may be one.
type namer interface {
	// AddSnapshot gives a snapshot of c's a name, NAME or NAME:TAG.
	AddSnapshot(ctx context.Context, c sandbox.Caller, snap sandbox.Snapshot, name string) (template.Build, error)
	// SnapshotNames returns the names of c's snapshots that have any, by their
	// IDs, each as NAME:TAG.
	SnapshotNames(ctx context.Context, c sandbox.Caller) (map[string][]string, error)
}

var _ namer = (*template.Service)(nil)

// snapshot is one as clients see it. Its ID is what sandboxes are made from.
type snapshot struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

// namer returns what names snapshots, or why nothing does.
func (h *handler) namer() (namer, error) {
	n, ok := h.o.Templates.(namer)
	if !ok {
		return nil, sandbox.Errorf(sandbox.Unsupported, "name: snapshots have none on this server").WithHint("leave it out, and use the ID")
	}
	return n, nil
}

// createSnapshot keeps what a sandbox wrote, running or paused.
func (h *handler) createSnapshot(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Name string `json:"name"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	var names namer
	var err error
	if req.Name != "" {
		if names, err = h.namer(); err != nil {
			return err
		}
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	if err := wholeOnly(sb); err != nil {
		return err
	}
	snap, err := h.m.Snapshot(r.Context(), c.Caller, sb.ID)
	if err != nil {
		return err
	}
	out := snapshot{snap.ID, []string{}}
	if names != nil {
		build, err := names.AddSnapshot(r.Context(), c.Caller, snap, req.Name)
		if err != nil {
			h.dropSnapshot(r.Context(), c, snap.ID)
			return err
		}
		out.Names = append(out.Names, build.Alias)
	}
	w.Header().Set(api.HeaderNotice, strings.Join(append([]string{filesAlone}, snap.Notes...), "; "))
	wire.JSON(w, http.StatusCreated, out)
	return nil
}

// filesAlone is the notice of a snapshot and of a fork.
const filesAlone = "memory: a snapshot has files and no processes: what is made from it starts anew over them"

func (h *handler) dropSnapshot(ctx context.Context, c Caller, id string) {
	if err := h.m.RemoveSnapshot(context.WithoutCancel(ctx), c.Caller, id); err != nil {
		h.o.Log.Warn("remove a snapshot of no more use", "id", id, "error", err)
	}
}

// listSnapshots answers with the caller's, the newest first.
func (h *handler) listSnapshots(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "sandboxID", "name", "limit", "nextToken")
	if err != nil {
		return err
	}
	limit, err := q.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return err
	}
	l := listing{limit: limit}
	if s := q.get("nextToken"); s != "" {
		if l.from, err = parseCursor(s, sandbox.ValidSnapshotID); err != nil {
			return err
		}
	}
	all, err := h.m.Snapshots(r.Context(), c.Caller)
	if err != nil {
		return err
	}
	named := map[string][]string{}
	if n, err := h.namer(); err == nil {
		if named, err = n.SnapshotNames(r.Context(), c.Caller); err != nil {
			return err
		}
	}
	place := func(s sandbox.Snapshot) cursor { return cursor{s.CreatedAt.UnixNano(), s.ID} }
	slices.SortFunc(all, func(a, b sandbox.Snapshot) int { return l.compare(place(a), place(b)) })
	out := []snapshot{}
	var last cursor
	for _, s := range all {
		if id := q.get("sandboxID"); id != "" && s.Source != id || !goesBy(s.ID, named[s.ID], q.get("name")) ||
			l.from != (cursor{}) && l.compare(place(s), l.from) <= 0 {
			continue
		}
		if len(out) == l.limit {
			w.Header().Set("X-Next-Token", last.String())
			break
		}
		last = place(s)
		out = append(out, snapshot{s.ID, append([]string{}, named[s.ID]...)})
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

// goesBy reports whether a snapshot is meant by name: its ID, a NAME:TAG that
// it has, or a NAME that it has with any tag. "" means every one.
func goesBy(id string, names []string, name string) bool {
	return name == "" || name == id || slices.ContainsFunc(names, func(n string) bool {
		bare, _, _ := strings.Cut(n, ":")
		return n == name || bare == name
	})
}

// forked is what came of one fork: one of both.
type forked struct {
	Sandbox *created   `json:"sandbox,omitempty"`
	Error   *errorBody `json:"error,omitempty"`
}

// fork saves a running sandbox and makes others from that, each of which may
// fail by itself.
func (h *handler) fork(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Timeout *int32 `json:"timeout"`
		Count   *int32 `json:"count"`
	}
	if err := wire.Decode(r, &req, true); err != nil {
		return err
	}
	ttl, err := seconds("timeout", req.Timeout, defaultTimeoutV1)
	if err != nil {
		return err
	}
	count := 1
	if req.Count != nil {
		count = int(*req.Count)
	}
	if count < 1 || count > maxForks {
		return sandbox.Errorf(sandbox.Invalid, "count: from 1 to %d", maxForks)
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	if stateOf(sb) == statePaused {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is paused", sb.ID).WithHint("connect to it first: that resumes it")
	}
	if sb.Spec.Image == sandbox.DefaultImage && !c.HostImage {
		return sandbox.Errorf(sandbox.Denied, "sandbox %s: this key may not use the machine's own programs, which it is made of", sb.ID)
	}
	spec, values, err := h.m.Like(r.Context(), c.Caller, sb.ID)
	if err != nil {
		return err
	}
	if err := wholeOnly(sb); err != nil {
		return err
	}
	snap, err := h.m.Snapshot(r.Context(), c.Caller, sb.ID)
	if err != nil {
		return err
	}
	defer h.dropSnapshot(r.Context(), c, snap.ID) // the forks keep what they need of it
	spec.Snapshot, spec.TTL = snap.ID, ttl
	results := h.makeForks(r.Context(), w, c, spec, values, count)
	w.Header().Set(api.HeaderNotice, filesAlone)
	wire.JSON(w, http.StatusCreated, results)
	return nil
}

func (h *handler) makeForks(ctx context.Context, w http.ResponseWriter, c Caller, spec sandbox.Spec, values sandbox.SecretValues, count int) []forked {
	results := make([]forked, count)
	slots := make(chan struct{}, forkAtOnce)
	var wg sync.WaitGroup
	for i := range results {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			sb, err := h.m.Create(ctx, c.Caller, spec.Clone(), values)
			if err != nil {
				wire.Failed(w, err)
				body := describe(err)
				results[i].Error = &body
				return
			}
			one := h.created(sb, c)
			results[i].Sandbox = &one
		})
	}
	wg.Wait()
	return results
}

// wholeOnly refuses a sandbox of which a snapshot would leave the workspace out:
// clients of this dialect are told of nothing that is missing.
func wholeOnly(sb *sandbox.Sandbox) error {
	if mode := sb.Spec.Workspace.Mode; mode != "" && mode != sandbox.WorkspacePrivate {
		return sandbox.Errorf(sandbox.Unsupported, "sandbox %s: its /workspace is %s, which is not the sandbox's to keep", sb.ID, mode).
			WithHint("carboy snapshot create keeps all but that")
	}
	return nil
}
