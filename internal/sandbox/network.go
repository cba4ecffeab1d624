package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Networked reports whether an instance of s has a link.
func (s Spec) Networked() bool { return s.Network != NetworkOff && s.Network != "" }

// checkGate fails where the network of spec can't be had by that caller.
func (m *Manager) checkGate(ctx context.Context, c Caller, spec Spec) error {
	if !spec.Networked() {
		return nil
	}
	if _, err := m.gate.Check(ctx, spec); err != nil {
		return failure(err, spec.Name, "check its network")
	}
	if err := m.gate.Entitled(ctx, c.Owner, spec); err != nil {
		return failure(err, spec.Name, "look up its secrets")
	}
	return nil
}

// canLink fails where instances of b can't have the network of spec.
func (m *Manager) canLink(b Backend, spec Spec) error {
	if !spec.Networked() {
		return nil
	}
	if _, ok := b.(Linked); !ok || m.gate == nil {
		return Errorf(Unsupported, "network %s: %s can't have one on this machine", spec.Network, b.Name()).
			WithHint("leave it off; carboy doctor says what is missing")
	}
	return nil
}

// link opens sb's gate, if it is to have one.
func (m *Manager) link(ctx context.Context, b Backend, sb *Sandbox) (*Link, error) {
	if err := m.canLink(b, sb.Spec); err != nil || !sb.Spec.Networked() {
		return nil, err
	}
	return m.gate.Open(ctx, sb)
}

// startLinked starts the instance of sb, its gate beside it, and sees that both are
// what was promised. After an error the caller ends both.
func (m *Manager) startLinked(ctx context.Context, b Backend, sb *Sandbox) ([]Enforcement, error) {
	link, err := m.link(ctx, b, sb)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	sb.Link = link
	enforced, err := b.Start(ctx, sb)
	if err != nil || link == nil {
		return enforced, err
	}
	how, err := m.gate.Verify(ctx, sb, func(ctx context.Context) (net.Conn, error) {
		return b.Dial(ctx, sb.ID, GuestPort)
	})
	if err != nil {
		return nil, err
	}
	return append(enforced, how), nil
}

// gateDebt is what the gate of a running instance is still to be told.
type gateDebt int

const (
	gateKnows   gateDebt = iota // nothing
	gateAdopted                 // that this daemon has it now
	gateSet                     // its policy
)

func (m *Manager) setDebt(e *entry, d gateDebt) {
	m.mu.Lock()
	e.debt = d
	m.mu.Unlock()
	if d != gateKnows {
		m.retryLater(e)
	}
}

// tellGate has the gate of a running instance go by its record. What fails is for
// Run to try again. The turn must be held.
func (m *Manager) tellGate(ctx context.Context, e *entry, d gateDebt) error {
	sb := m.record(e).Clone()
	m.mu.Lock()
	if e.debt == gateAdopted { // whoever adopts it tells it the policy too
		d = gateAdopted
	}
	m.mu.Unlock()
	b, err := m.backend(sb)
	switch {
	case err != nil:
	case d == gateAdopted:
		err = m.adoptGate(ctx, b, sb)
	case d == gateSet:
		err = m.gate.Set(ctx, sb)
	}
	if err == nil || KindOf(err) == Unsupported { // which time does not mend
		d = gateKnows
	}
	m.setDebt(e, d)
	return err
}

// payGate tells the gate of e's instance what it could not be told before.
func (m *Manager) payGate(ctx context.Context, e *entry) error {
	m.mu.Lock()
	d := e.debt
	due := d != gateKnows && e.sb != nil && e.sb.State == StateRunning
	m.mu.Unlock()
	if !due {
		return nil
	}
	if err := m.tellGate(ctx, e, d); err != nil {
		return fmt.Errorf("tell its gate: %w", err)
	}
	m.log.Info("the gate of a sandbox goes by its record again", "id", e.id)
	return nil
}

// adoptGate rejoins the gate of an instance that went on.
func (m *Manager) adoptGate(ctx context.Context, b Backend, sb *Sandbox) error {
	if err := m.canLink(b, sb.Spec); err != nil || !sb.Spec.Networked() {
		return err
	}
	netns, err := b.(Linked).NetNS(sb.ID)
	if err != nil {
		return err
	}
	return m.gate.Adopt(ctx, sb, netns)
}

// endBox ends an instance and its gate: the gate first, for as long as it is watched
// over it would be started again. A gate that can't be ended does not keep the
// instance running.
func (m *Manager) endInstance(ctx context.Context, b Backend, sb *Sandbox) (lost []string, err error) {
	if m.gate != nil && sb.Spec.Networked() {
		err = m.gate.Close(ctx, sb.ID)
	}
	lost, stopErr := b.Stop(ctx, sb.ID)
	return lost, errors.Join(stopErr, err)
}

// removeGate deletes what there is of a sandbox's gate.
func (m *Manager) removeGate(ctx context.Context, sb *Sandbox) error {
	if m.gate == nil || !sb.Spec.Networked() {
		return nil
	}
	return m.gate.Remove(ctx, sb.ID)
}

// sweepGates removes the gates that have no record.
func (m *Manager) sweepGates(ctx context.Context) error {
	if m.gate == nil {
		return nil
	}
	ids, err := m.gate.Gates(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		m.mu.Lock()
		owned := m.entries[id] != nil
		m.mu.Unlock()
		if owned {
			continue
		}
		m.log.Warn("removing a gate without a sandbox", "id", id)
		if err := errors.Join(m.gate.Close(ctx, id), m.gate.Remove(ctx, id)); err != nil {
			m.log.Error("remove a gate without a sandbox", "id", id, "error", err)
		}
	}
	return nil
}

// Policy returns what a sandbox may reach; the zero policy where it has no
// network.
func (m *Manager) Policy(ctx context.Context, c Caller, ref string) (policy.Policy, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil || sb.Spec.Policy == nil {
		return policy.Policy{}, err
	}
	return *sb.Spec.Policy, nil
}

// NetUse returns what the gate of a running sandbox has counted; nothing for
// one without a network.
func (m *Manager) NetUse(ctx context.Context, c Caller, ref string) (NetUse, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return NetUse{}, err
	}
	if m.gate == nil || !sb.Spec.Networked() || sb.State != StateRunning {
		return NetUse{}, nil
	}
	use, err := m.gate.Use(ctx, sb.ID)
	if err != nil {
		return NetUse{}, failure(err, sb.Spec.Name, "ask its gate")
	}
	return use, nil
}

// NetLog hands the records of what a sandbox tried to reach to yield. One
// that never had a network has none.
func (m *Manager) NetLog(ctx context.Context, c Caller, ref string, o NetLogOptions, yield func(netlog.Record) error) error {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return err
	}
	if m.gate == nil || !sb.Spec.Networked() {
		return nil
	}
	return m.gate.Log(ctx, sb.ID, o, yield)
}
