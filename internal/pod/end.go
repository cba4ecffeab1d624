package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The steps of an end, in their order.
const (
	StepClosing  Step = "closing"  // that it ends is written
	StepEnded    Step = "ended"    // nothing of it can write
	StepRemoved  Step = "removed"  // its record is gone, and its children are its parent's
	StepRestored Step = "restored" // its parent can do again what it may
)

// probes is how many sockets are tried at once.
const probes = 16

// Release ends a pod's registration, and what the backend started for it: its children are its
// parent's, and its parent has back what they don't have. A pod that is not registered is
// NotFound.
func (r *Registry) Release(ctx context.Context, name string) error {
	unlock, err := r.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return r.end(ctx, name)
}

// Reclaim is Release for a child of a pod; where it is none, or no more, nothing is to be done.
func (r *Registry) Reclaim(ctx context.Context, parent, child string) error {
	unlock, err := r.names.lock(ctx, child)
	if err != nil {
		return err
	}
	defer unlock()
	if p, ok := r.Find(child); !ok || p.Parent != parent {
		return nil
	}
	return r.end(ctx, child)
}

// end ends a pod whose lock is held. What fails is left as it is written: Settle goes on.
func (r *Registry) end(ctx context.Context, name string) error {
	p, ok := r.Find(name)
	if !ok {
		return sandbox.Errorf(sandbox.NotFound, "pod `%s` is not registered", name)
	}
	if p.State != record.Ending {
		if err := r.update(ctx, name, func(p *record.Pod) { p.State = record.Ending }); err != nil {
			return err
		}
	}
	if err := r.o.Step(StepClosing); err != nil {
		return err
	}
	if p.Token != "" { // a pod of somebody else's is ended by them
		if err := r.o.Backend.End(ctx, p); err != nil {
			return fmt.Errorf("end pod `%s`: %w", name, err)
		}
	}
	if err := r.o.Step(StepEnded); err != nil {
		return err
	}
	var above string
	err := r.change(ctx, func(t *tree.Tree) (tree.Change, error) {
		p, _ := t.Find(name)
		above = p.Parent
		return t.Remove(name)
	})
	if err != nil {
		return err
	}
	if err := r.o.Step(StepRemoved); err != nil {
		return err
	}
	if above != "" {
		if err := r.enforce(ctx, above, Enforcing{}); err != nil {
			return fmt.Errorf("give pod `%s` back what `%s` had: %w", above, name, err)
		}
	}
	return r.o.Step(StepRestored)
}

// undo takes back a spawn that failed for a cause, also where the caller has left.
func (r *Registry) undo(ctx context.Context, name string, cause error) error {
	ctx, cancel := r.within(context.WithoutCancel(ctx), r.o.Times.End, "it was tried for %v")
	defer cancel()
	if err := r.end(ctx, name); err != nil {
		r.o.Log.Error("could not undo a spawn", "pod", name, "error", err)
		return &undoneError{cause: cause, err: err}
	}
	return cause
}

// undoneError is a spawn's error where something of it is left. Its kind is the cause's.
type undoneError struct{ cause, err error }

func (e *undoneError) Error() string {
	return fmt.Sprintf("%v; and it could not be undone, which is tried again: %v", e.cause, e.err)
}

func (e *undoneError) Unwrap() []error { return []error{e.cause, e.err} }

// Settle finishes what was begun and is nobody's: spawns of which nothing was delivered are undone,
// others are over, ends are ended, and who could not be given its right, or be taken it, is. What
// fails stays for the next time, and is in the error.
func (r *Registry) Settle(ctx context.Context) error {
	var errs []error
	for _, p := range r.All() {
		if p.State == record.Live {
			continue
		}
		if unlock, ok := r.names.try(p.Name); ok {
			errs = append(errs, r.settle(ctx, p.Name))
			unlock()
		}
	}
	r.mu.Lock()
	owed := make([]string, 0, len(r.owed))
	for name := range r.owed {
		owed = append(owed, name)
	}
	r.mu.Unlock()
	for _, name := range owed {
		errs = append(errs, r.enforce(ctx, name, Enforcing{}))
	}
	r.mu.Lock()
	r.seq++ // mirrors may be another life's
	seq := r.seq
	r.mu.Unlock()
	r.show(ctx, seq)
	return errors.Join(errs...)
}

func (r *Registry) settle(ctx context.Context, name string) error {
	p, ok := r.Find(name)
	switch {
	case !ok:
		return nil
	case p.State == record.Delivering:
		_, err := r.live(ctx, name, false)
		return err
	case p.State == record.Live:
		return nil
	}
	return r.end(ctx, name)
}

// Reap ends pods that are gone: nobody listens at their sockets, and nobody holds a guard of
// them. One of which that can't be found out stays. It returns those that it has ended.
func (r *Registry) Reap(ctx context.Context) ([]record.Pod, error) { return r.reap(ctx, "") }

// reap is Reap by who holds the lock of a name.
func (r *Registry) reap(ctx context.Context, mine string) (ended []record.Pod, err error) {
	var errs []error
	for _, p := range r.gone(ctx) {
		if p.Name != mine {
			unlock, ok := r.names.try(p.Name)
			if !ok { // somebody is at it
				continue
			}
			defer unlock()
		}
		if now, ok := r.Find(p.Name); !ok || now.Token != p.Token || !r.mayBeGone(now) || r.Liveness(ctx, now) != wire.Gone {
			continue
		}
		if err := r.end(ctx, p.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		ended = append(ended, p)
	}
	return ended, errors.Join(errs...)
}

// gone are the pods at whose socket nobody was found, tried several at once.
func (r *Registry) gone(ctx context.Context) (out []record.Pod) {
	all := r.All()
	is := make([]bool, len(all))
	turn := make(chan struct{}, probes)
	var wait sync.WaitGroup
	for i, p := range all {
		if !r.mayBeGone(p) {
			continue
		}
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			is[i] = r.Liveness(ctx, p) == wire.Gone
		})
	}
	wait.Wait()
	for i, p := range all {
		if is[i] {
			out = append(out, p)
		}
	}
	return out
}

// mayBeGone reports whether a socket's silence says something of a pod: not while it is being
// started or ended, nor while somebody here holds it.
func (r *Registry) mayBeGone(p record.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.State == record.Live && r.held[p.Name] == 0
}
