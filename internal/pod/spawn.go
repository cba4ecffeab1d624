package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// DefaultInstruction is which instruction a child has where its spawner says none.
const DefaultInstruction = "$insomnia/default"

// Step is a step of a spawn or of an end, named by what was just done.
type Step string

// The steps of a spawn, in their order. What fails up to StepListening is undone.
const (
	StepReserved   Step = "reserved"   // the record is written
	StepDemoted    Step = "demoted"    // the parent can't write any more what the child will
	StepStarted    Step = "started"    // the child was started
	StepKept       Step = "kept"       // what it was started as is written
	StepListening  Step = "listening"  // its socket accepts
	StepDelivering Step = "delivering" // which is written: from here on nothing is undone
	StepDelivered  Step = "delivered"  // the child said that it has its task, or did not
	StepRecorded   Step = "recorded"   // which is written, and shown
)

// Request is what a spawn is asked for.
type Request struct {
	Spawner     string
	Name        string
	Task        string
	Allow       []scope.Rule // targets as they are seen inside
	Bounds      scope.Bounds
	Socket      string // the spawner's, by which the child calls back
	Cwd         string
	Instruction string // default: DefaultInstruction
	Model       any    // the spawner's; by name, without secrets
	Program     record.Program
	Env         map[string]string // what it is started with; it is in no record
	Parent      Enforcing         // how its spawner's scope becomes less
}

// Spawn starts a child with a part of its spawner's scope, and gives it its task. Where it fails
// before the child's socket accepts, the child is ended, and all is as before; later the pod
// stays, and the error says so.
func (r *Registry) Spawn(ctx context.Context, q Request) (record.Pod, error) {
	unlock, err := r.names.lock(ctx, q.Name)
	if err != nil {
		return record.Pod{}, err
	}
	defer unlock()
	p, err := r.reserve(ctx, q)
	if err != nil {
		if now, ok := r.Find(q.Name); ok && p.Token != "" && now.Token == p.Token { // it was written all the same
			err = r.undo(ctx, p.Name, err)
		}
		return record.Pod{}, err
	}
	if err := r.raise(ctx, p, q); err != nil {
		return record.Pod{}, r.undo(ctx, p.Name, err)
	}
	return r.deliver(ctx, p.Name, q)
}

// reserve writes the record of a pod that is to be.
func (r *Registry) reserve(ctx context.Context, q Request) (record.Pod, error) {
	parent, ok := r.Find(q.Spawner)
	if !ok {
		return record.Pod{}, sandbox.Errorf(sandbox.NotFound, "pod `%s` is not registered", q.Spawner)
	}
	if err := record.CheckName(q.Name); err != nil {
		return record.Pod{}, sandbox.Errorf(sandbox.Invalid, "%s", err.Error())
	}
	allow, err := r.resolve(ctx, q.Spawner, parent.Workspace, q.Allow)
	if err != nil {
		return record.Pod{}, err
	}
	dir := filepath.Join(r.o.Base, q.Name)
	p := record.Pod{
		Name: q.Name, Owner: r.o.Owner, State: record.Reserved, Parent: q.Spawner, Workspace: parent.Workspace, Allow: allow, Bounds: q.Bounds,
		Dir: dir, Socket: filepath.Join(dir, "sock"), Callback: q.Socket, Token: r.o.Token(), CreatedAt: r.o.Clock.Now().UTC(), Program: q.Program,
	}
	return p, r.admit(ctx, q.Name, func(t *tree.Tree) (tree.Change, error) { return t.Delegate(p) })
}

// raise brings a pod that is reserved to where its socket accepts, and that is written.
func (r *Registry) raise(ctx context.Context, p record.Pod, q Request) error {
	if err := r.o.Step(StepReserved); err != nil {
		return err
	}
	p, _ = r.Find(p.Name) // with the bounds that it has under its parent's
	if err := r.demote(ctx, p, q.Parent); err != nil {
		return err
	}
	if err := r.o.Step(StepDemoted); err != nil {
		return err
	}
	started, err := r.o.Backend.Start(ctx, p, launch(p, q))
	if err != nil {
		return err
	}
	if err := r.o.Step(StepStarted); err != nil {
		return err
	}
	err = r.update(ctx, p.Name, func(p *record.Pod) {
		p.Ref = started.Ref
		if p.Process.IsZero() { // or it was adopted meanwhile
			p.Process = started.Process
		}
	})
	if err != nil {
		return err
	}
	if err := r.o.Step(StepKept); err != nil {
		return err
	}
	if err := r.awaitSocket(ctx, p); err != nil {
		return err
	}
	if err := r.o.Step(StepListening); err != nil {
		return err
	}
	return r.update(ctx, p.Name, func(p *record.Pod) { p.State = record.Delivering })
}

// demote takes from the pod above what the child will write.
func (r *Registry) demote(ctx context.Context, p record.Pod, how Enforcing) error {
	if p.Parent == "" {
		return sandbox.Errorf(sandbox.Conflict, "the pod that spawned `%s` has ended meanwhile", p.Name)
	}
	if err := r.enforce(ctx, p.Parent, how); err != nil {
		return fmt.Errorf("take from pod `%s` what `%s` is to write: %w", p.Parent, p.Name, err)
	}
	return nil
}

func launch(p record.Pod, q Request) Launch {
	c := Config{
		Protocol: wire.Version, Name: p.Name, Parent: p.Parent, Callback: p.Callback, Socket: p.Socket, Scope: p.Allow,
		Instruction: q.Instruction, Model: q.Model,
	}
	if c.Instruction == "" {
		c.Instruction = DefaultInstruction
	}
	return Launch{Config: c, Cwd: q.Cwd, Env: q.Env}
}

// update writes what is new of a pod.
func (r *Registry) update(ctx context.Context, name string, change func(*record.Pod)) error {
	return r.change(ctx, func(t *tree.Tree) (tree.Change, error) { return t.Update(name, change) })
}

// awaitSocket waits until a pod's socket accepts, also where what was started for it has ended.
func (r *Registry) awaitSocket(ctx context.Context, p record.Pod) error {
	end := r.o.Clock.Now().Add(r.o.Times.Socket)
	for {
		if r.Liveness(ctx, p) == wire.Alive {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !r.o.Clock.Now().Before(end) {
			return r.neverListened(p)
		}
		select {
		case <-r.o.Clock.After(r.o.Times.Poll):
		case <-ctx.Done():
		}
	}
}

// neverListened says so, with the last that the child wrote.
func (r *Registry) neverListened(p record.Pod) error {
	text := fmt.Sprintf("spawned pod socket did not appear within %gs: %s", r.o.Times.Socket.Seconds(), p.Socket)
	if t, ok := r.o.Backend.(teller); ok {
		if name, tail := t.Stderr(p); len(tail) > 0 {
			text += fmt.Sprintf("\n--- child stderr (%s) ---\n%s", name, tail)
		}
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s", text)
}

// deliver gives a pod its task. Nothing is undone any more: not where the caller left, either.
func (r *Registry) deliver(ctx context.Context, name string, q Request) (record.Pod, error) {
	if err := r.o.Step(StepDelivering); err != nil {
		return r.unconfirmed(ctx, name, err)
	}
	p, _ := r.Find(name)
	err := r.run(ctx, p, q.Task)
	if serr := r.o.Step(StepDelivered); serr != nil {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return r.unconfirmed(ctx, name, err)
	}
	p, err = r.live(ctx, name, true)
	if err != nil {
		return p, stays(name, err)
	}
	if err := r.o.Step(StepRecorded); err != nil {
		return p, stays(name, err)
	}
	r.tellAbove(p)
	return p, nil
}

// run sends the task and waits until the pod has taken it.
func (r *Registry) run(ctx context.Context, p record.Pod, task string) error {
	ctx, cancel := r.within(ctx, r.o.Times.Deliver, "the pod said nothing of it within %v")
	defer cancel()
	c, err := r.o.Backend.Dial(ctx, p)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	return wire.Deliver(ctx, wire.NewConn(c, wire.Options{MaxLine: maxHeard}), []wire.Segment{wire.Text(task)})
}

// maxHeard is how much is kept of a line of a pod that is given its task: a snapshot is passed over.
const maxHeard = 64 << 10

// unconfirmed leaves a pod that did not say that it has its task.
func (r *Registry) unconfirmed(ctx context.Context, name string, cause error) (record.Pod, error) {
	p, err := r.live(ctx, name, false)
	return p, stays(name, errors.Join(cause, err))
}

func stays(name string, err error) error {
	kind := sandbox.Unavailable
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		kind = e.Kind
	}
	return sandbox.Errorf(kind, "spawned pod `%s` did not confirm initial task delivery: %w; the pod remains registered and can be inspected or stopped", name, err)
}

// live writes that a spawn is over.
func (r *Registry) live(ctx context.Context, name string, confirmed bool) (record.Pod, error) {
	err := r.update(ctx, name, func(p *record.Pod) { p.State, p.Confirmed = record.Live, p.Confirmed || confirmed })
	p, _ := r.Find(name)
	return p, err
}

// tellAbove tells the parent of a pod's parent that there is a pod more, and does not wait.
func (r *Registry) tellAbove(p record.Pod) {
	parent, ok := r.Find(p.Parent)
	if !ok || parent.Parent == "" {
		return
	}
	above, ok := r.Find(parent.Parent)
	if !ok {
		return
	}
	r.background.Go(func() {
		if err := r.tell(above, p); err != nil {
			r.o.Log.Info("a pod was not told of a grandchild", "pod", above.Name, "child", p.Name, "error", err)
		}
	})
}

func (r *Registry) tell(above, p record.Pod) error {
	rules, err := json.Marshal(p.Allow)
	if err != nil {
		return err
	}
	m, err := wire.NewMethod(wire.MethodPodEvent, wire.PodEvent{
		Kind: wire.PodScopeSubDelegated, ParentPod: p.Parent, SubPod: p.Name, SubSocket: p.Socket, Scope: rules,
	})
	if err != nil {
		return err
	}
	ctx, cancel := r.within(r.ctx, r.o.Times.Deliver, "the pod did not take it within %v")
	defer cancel()
	c, err := r.o.Backend.Dial(ctx, above)
	if err != nil {
		return err
	}
	return wire.Ask(ctx, wire.NewConn(c, wire.Options{MaxLine: maxHeard}), m)
}
