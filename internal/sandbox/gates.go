package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
)

// gates leads the gates of this Manager's sandboxes, and holds nothing of its own:
// Gate has what must survive, and what a gate could not be told yet is the
// entry's debt. Its methods want the turn of the sandbox that they are given.
// After a crash Adopt rejoins the gates of what runs and sweeps the others.
type gates struct {
	*common
	gate    Gate       // nil: no sandbox has a network
	records NetRecords // nil: nothing is known of what has no gate
}

// check fails where the network of spec can't be had by that caller.
func (g *gates) check(ctx context.Context, c Caller, spec Spec, values SecretValues) error {
	if !spec.Networked() {
		return nil
	}
	if _, err := g.gate.Check(ctx, spec); err != nil {
		return failure(err, spec.Name, "check its network")
	}
	return g.entitled(ctx, c, spec.Name, spec.Secrets, values)
}

// entitled fails where the caller has no secret of one of those names, and
// brings no value for it either.
func (g *gates) entitled(ctx context.Context, c Caller, sandbox string, names []string, values SecretValues) error {
	own := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, brought := values[name]
		return brought
	})
	if err := g.gate.Entitled(ctx, c.Owner, own); err != nil {
		return failure(err, sandbox, "look up its secrets")
	}
	return nil
}

// canLink fails where instances of b can't have the network of spec.
func (g *gates) canLink(b Backend, spec Spec) error {
	if !spec.Networked() {
		return nil
	}
	if g.gate == nil || b.Capabilities().Link == "" {
		return Errorf(Unsupported, "network %s: %s can't have one on this machine", spec.Network, b.Name()).
			WithHint("leave it off; carboy doctor says what is missing")
	}
	return nil
}

// start starts the instance of sb, its gate beside it, and sees that both are
// what was promised. After an error the caller ends both.
func (g *gates) start(ctx context.Context, b Backend, sb *Sandbox, values SecretValues) ([]Enforcement, error) {
	if !sb.Spec.Networked() {
		return b.Start(ctx, sb)
	}
	if err := g.canLink(b, sb.Spec); err != nil {
		return nil, err
	}
	link, err := g.gate.Open(ctx, sb, b.Capabilities().Link, values)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	sb.Link = link
	enforced, err := b.Start(ctx, sb)
	if err != nil {
		return nil, err
	}
	how, err := g.gate.Verify(ctx, sb, func(ctx context.Context) (net.Conn, error) {
		return b.Dial(ctx, sb.ID, GuestPort)
	})
	if err != nil {
		return nil, err
	}
	return append(enforced, how...), nil
}

// adopt rejoins the gate of an instance that went on.
func (g *gates) adopt(ctx context.Context, b Backend, sb *Sandbox) error {
	if err := g.canLink(b, sb.Spec); err != nil || !sb.Spec.Networked() {
		return err
	}
	end, err := b.Capabilities().LinkEnd(sb.ID)
	if err != nil {
		return err
	}
	return g.gate.Adopt(ctx, sb, end)
}

// close ends the gate of sb, if it has one.
func (g *gates) close(ctx context.Context, sb *Sandbox) error {
	if g.gate == nil || !sb.Spec.Networked() {
		return nil
	}
	return g.gate.Close(ctx, sb.ID)
}

// end ends an instance and its gate: the gate first, for as long as it is watched
// over it would be started again. A gate that can't be ended does not keep the
// instance running.
func (g *gates) end(ctx context.Context, b Backend, sb *Sandbox) (lost []string, err error) {
	err = g.close(ctx, sb)
	lost, stopErr := b.Stop(ctx, sb.ID)
	return lost, errors.Join(stopErr, err)
}

// remove deletes what is left of the gate of sb, which is closed.
func (g *gates) remove(ctx context.Context, sb *Sandbox) error {
	if g.gate == nil || !sb.Spec.Networked() {
		return nil
	}
	return g.gate.Remove(ctx, sb.ID)
}

// sweep removes the gates that are no sandbox's.
func (g *gates) sweep(ctx context.Context, owned func(id string) bool) error {
	if g.gate == nil {
		return nil
	}
	ids, err := g.gate.Gates(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if owned(id) {
			continue
		}
		g.log.Warn("removing a gate without a sandbox", "id", id)
		if err := errors.Join(g.gate.Close(ctx, id), g.gate.Remove(ctx, id)); err != nil {
			g.log.Error("remove a gate without a sandbox", "id", id, "error", err)
		}
	}
	return nil
}

// gateDebt is what the gate of a running instance is still to be told.
type gateDebt int

const (
	gateKnows   gateDebt = iota // nothing
	gateAdopted                 // that this daemon has it now
	gateSet                     // its policy
)

// setDebt notes what e's gate could not be told, for Run to try again.
func (r *registry) setDebt(e *entry, d gateDebt) {
	r.mu.Lock()
	e.debt = d
	r.mu.Unlock()
	if d != gateKnows {
		r.retryLater(e)
	}
}

// owed is what e's gate could not be told, and whether it can be now.
func (r *registry) owed(e *entry) (d gateDebt, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.debt, e.runs()
}

// tellGate tells the gate of a running instance its record. What fails is for
// Run to try again. The turn must be held.
func (l *lives) tellGate(ctx context.Context, e *entry, d gateDebt) error {
	sb := l.registry.record(e).Clone()
	if owed, _ := l.registry.owed(e); owed == gateAdopted { // adopting it tells it the policy too
		d = gateAdopted
	}
	b, err := l.backends.of(sb)
	switch {
	case err != nil:
	case d == gateAdopted:
		err = l.gates.adopt(ctx, b, sb)
	case d == gateSet:
		err = l.gates.gate.Set(ctx, sb)
	}
	if err == nil || KindOf(err) == Unsupported { // which time does not mend
		d = gateKnows
	}
	l.registry.setDebt(e, d)
	return err
}

// payGate tells the gate of e's instance what it could not be told before.
func (l *lives) payGate(ctx context.Context, e *entry) error {
	d, runs := l.registry.owed(e)
	if d == gateKnows || !runs {
		return nil
	}
	if err := l.tellGate(ctx, e, d); err != nil {
		return fmt.Errorf("tell its gate: %w", err)
	}
	l.log.Info("the gate of a sandbox goes by its record again", "id", e.id)
	return nil
}
