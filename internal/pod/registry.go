package pod

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/mirror"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/target"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Top is a pod to which nobody delegates: a user's own.
type Top struct {
	Name      string
	Process   procid.ID
	Socket    string
	Dir       string // its runtime directory, where its children are shown; "": none
	Workspace string
	Allow     []scope.Rule
	Deny      []scope.Rule
	Bounds    scope.Bounds
	Segment   string
	Ref       string // what the backend calls it
}

// Guard holds a pod's registration: as long as it is open nobody takes the pod for gone.
type Guard struct {
	r    *Registry
	name string
	once sync.Once
	err  error
}

// Close releases the registration, unless another guard of the same pod is open: see Release.
// A second time does nothing.
func (g *Guard) Close() error {
	g.once.Do(func() {
		if !g.r.letGo(g.name) {
			return
		}
		g.err = g.r.Release(context.WithoutCancel(g.r.ctx), g.name)
		if sandbox.KindOf(g.err) == sandbox.NotFound { // it was stopped meanwhile
			g.err = nil
		}
	})
	return g.err
}

// Leave gives up the guard, and releases nothing: from then on the pod's socket says whether it is there. Close does nothing
// any more.
func (g *Guard) Leave() { g.once.Do(func() { g.r.letGo(g.name) }) }

func (r *Registry) guard(name string) *Guard {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[name]++
	return &Guard{r: r, name: name}
}

// letGo counts a guard less, and reports whether it was the last one.
func (r *Registry) letGo(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[name]--; r.held[name] > 0 {
		return false
	}
	delete(r.held, name)
	return true
}

// Install registers a pod that nobody delegated to, until the guard is closed. It can't write
// where another one can: see tree.Tree.Install.
func (r *Registry) Install(ctx context.Context, t Top) (*Guard, error) {
	unlock, err := r.names.lock(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	p := record.Pod{
		Name: t.Name, Owner: r.o.Owner, State: record.Live, Confirmed: true, Workspace: t.Workspace, Process: t.Process, Socket: t.Socket,
		Dir: t.Dir, Bounds: t.Bounds, Segment: t.Segment, Ref: t.Ref, CreatedAt: r.o.Clock.Now().UTC(),
	}
	if p.Allow, err = r.resolve(ctx, "", t.Workspace, t.Allow); err != nil {
		return nil, err
	}
	if p.Deny, err = r.resolve(ctx, "", t.Workspace, t.Deny); err != nil {
		return nil, err
	}
	if err := r.admit(ctx, t.Name, func(tr *tree.Tree) (tree.Change, error) { return tr.Install(p) }); err != nil {
		return nil, err
	}
	g := r.guard(t.Name)
	if err := r.enforce(ctx, t.Name, Enforcing{}); err != nil {
		r.letGo(t.Name)
		return nil, r.undo(ctx, t.Name, err)
	}
	return g, nil
}

// Adopt notes that a process has taken over a registered pod, and a guard of it. A second
// time is as the first.
func (r *Registry) Adopt(ctx context.Context, name string, process procid.ID, segment string) (*Guard, error) {
	g := r.guard(name) // first: a pod that is held is not taken for gone
	if err := r.change(ctx, func(t *tree.Tree) (tree.Change, error) { return t.Adopt(name, process, segment) }); err != nil {
		r.letGo(name)
		return nil, err
	}
	return g, nil
}

// SetSegment notes which segment of a conversation a pod holds now.
func (r *Registry) SetSegment(ctx context.Context, name, segment string) error {
	return r.change(ctx, func(t *tree.Tree) (tree.Change, error) { return t.SetSegment(name, segment) })
}

// SetBounds changes what a pod to which nobody delegated may do besides files: for those that it spawns from now on.
func (r *Registry) SetBounds(ctx context.Context, name string, b scope.Bounds) error {
	return r.change(ctx, func(t *tree.Tree) (tree.Change, error) {
		return t.Update(name, func(p *record.Pod) { p.Bounds = b })
	})
}

// Share has the scope that a pod's tools ask follow what its children have of it. Whatever
// else somebody changes in it stays.
func (r *Registry) Share(ctx context.Context, name string, s *scope.Shared) error {
	r.mu.Lock()
	if c := r.cells[name]; c == nil || c.shared != s {
		r.cells[name] = &cell{shared: s}
	}
	r.mu.Unlock()
	return r.enforce(ctx, name, Enforcing{})
}

// resolve returns rules with their targets as they are. spawner is for the text.
func (r *Registry) resolve(ctx context.Context, spawner, workspace string, rules []scope.Rule) ([]scope.Rule, error) {
	out := make([]scope.Rule, 0, len(rules))
	for _, rule := range rules {
		if r.o.Resolver != nil {
			resolved, err := r.o.Resolver.Resolve(ctx, workspace, rule.Target)
			if errors.Is(err, target.ErrOutside) && spawner != "" {
				return nil, sandbox.Errorf(sandbox.Invalid, "requested scope `%s` is not within spawner `%s`'s effective scope: %w", scope.Shown(rule.Target), spawner, err)
			}
			if errors.Is(err, target.ErrOutside) {
				return nil, sandbox.Errorf(sandbox.Invalid, "the scope `%s` can't be given: %w", scope.Shown(rule.Target), err)
			}
			if err != nil {
				return nil, err
			}
			rule.Target = resolved
		}
		if err := rule.Check(); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s", err.Error())
		}
		out = append(out, rule)
	}
	return out, nil
}

// change makes a change, once it is written down, and shows it.
func (r *Registry) change(ctx context.Context, f func(*tree.Tree) (tree.Change, error)) error {
	seq, err := r.write(ctx, f)
	if err != nil {
		return err
	}
	r.show(ctx, seq)
	return nil
}

func (r *Registry) write(ctx context.Context, f func(*tree.Tree) (tree.Change, error)) (seq int, err error) {
	ctx = context.WithoutCancel(ctx) // cut off in between nobody would know what is written
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsure {
		if err := r.reload(ctx); err != nil {
			return 0, err
		}
	}
	c, err := f(r.tree)
	if err != nil {
		return 0, err
	}
	err = r.o.Store.ChangePods(ctx, r.o.Owner, c.Put, c.Gone)
	if err == nil {
		r.tree.Apply(c)
	} else if rerr := r.reload(ctx); rerr != nil { // a disk may fail after it has written
		r.o.Log.Warn("could not read the records of pods again", "error", rerr)
	}
	for _, name := range c.Gone {
		if _, there := r.tree.Find(name); !there {
			delete(r.cells, name)
			delete(r.owed, name)
		}
	}
	for _, name := range c.Affected {
		r.owed[name] = struct{}{}
	}
	r.seq++
	return r.seq, err
}

// reload reads what is written, after it could not be told. The lock is held.
func (r *Registry) reload(ctx context.Context) error {
	r.unsure = true
	t, err := read(ctx, r.o)
	if err != nil {
		return err
	}
	r.tree, r.unsure = t, false
	return nil
}

// read reads the records.
func read(ctx context.Context, o Options) (*tree.Tree, error) {
	records, err := o.Store.Pods(ctx, o.Owner)
	if err != nil {
		return nil, err
	}
	t, err := tree.New(records)
	if err != nil {
		e := sandbox.Errorf(sandbox.Internal, "the records of pods don't fit together: %s", err.Error())
		e.Err = err
		return nil, e
	}
	return t, nil
}

// admit is change for a pod that is to be new. Where another stands in its way that is gone,
// and nobody noticed, that one is ended first. The lock of name is held.
func (r *Registry) admit(ctx context.Context, name string, f func(*tree.Tree) (tree.Change, error)) error {
	err := r.change(ctx, f)
	if kind := sandbox.KindOf(err); kind != sandbox.Conflict && kind != sandbox.Invalid {
		return err
	}
	ended, rerr := r.reap(ctx, name)
	if rerr != nil {
		r.o.Log.Warn("could not end pods that are gone", "error", rerr)
	}
	if len(ended) == 0 {
		return err
	}
	return r.change(ctx, f)
}

// show writes the mirrors, unless a newer change was shown. That they can't be written changes
// nothing: the records count, and the next change shows all.
func (r *Registry) show(ctx context.Context, seq int) {
	if r.o.Base == "" {
		return
	}
	r.showing.Lock()
	defer r.showing.Unlock()
	if r.shown >= seq {
		return
	}
	r.mu.Lock()
	all, now := r.tree.All(), r.seq
	r.mu.Unlock()
	err := mirror.Write(ctx, r.o.Clock, filepath.Join(r.o.Base, mirror.PodsFile), mirror.TableOf(all))
	for _, p := range all {
		children := childrenOf(all, p.Name)
		if p.Dir == "" || len(children) == 0 && !mirror.Shown(p.Dir) {
			continue
		}
		err = errors.Join(err, mirror.Write(ctx, r.o.Clock, filepath.Join(p.Dir, mirror.SpawnedFile), mirror.SpawnedOf(children)))
	}
	if err != nil {
		r.o.Log.Warn("could not show pods to other tools", "error", err)
		return
	}
	r.shown = now
}

func childrenOf(all []record.Pod, name string) (out []record.Pod) {
	for _, p := range all {
		if p.Parent == name {
			out = append(out, p)
		}
	}
	return out
}

// enforce has a pod be able to do what it may, as it is now. One that is not there is no error.
func (r *Registry) enforce(ctx context.Context, name string, how Enforcing) error {
	unlock, err := r.walls.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	p, ok := r.tree.Find(name)
	demoted, s, c := r.tree.Demoted(name), r.tree.Effective(name), r.cells[name]
	r.owed[name] = struct{}{}
	if !ok {
		delete(r.owed, name)
	}
	r.mu.Unlock()
	if !ok {
		return nil
	}
	if c != nil {
		c.shared.Update(func(now scope.Scope) scope.Scope { return now.Restore(c.applied...).Difference(demoted...) })
		c.applied = demoted
	}
	if r.o.Wall != nil {
		if err := r.o.Wall.Enforce(ctx, p, s, how); err != nil {
			return err
		}
	}
	r.mu.Lock()
	delete(r.owed, name)
	r.mu.Unlock()
	return nil
}
