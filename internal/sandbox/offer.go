package sandbox

import (
	"context"
	"net"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// OfferService offers a service to a running sandbox whose policy has it, by its gate.
// Whoever has the connection serves the sandbox on it, by package offer; it
// breaks when the gate ends, and is to be made again then.
func (m *Manager) OfferService(ctx context.Context, c Caller, ref, service string) (net.Conn, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	name := sb.Spec.Name
	if m.gates.gate == nil {
		return nil, NoService(name, service, "")
	}
	if slices.Contains(sb.Spec.Own().Services(), service) {
		return nil, Errorf(Conflict, "sandbox %s: carboy itself serves it %s", name, service).WithHint("offer yours under another name")
	}
	if err := sb.callsNow(service); err != nil {
		return nil, err
	}
	conn, err := m.gates.gate.OfferService(ctx, sb.ID, service)
	if err != nil {
		return nil, failure(err, name, "offer it a service")
	}
	return conn, nil
}

// callsNow fails where sb can't call a service now, and says how it comes to.
func (sb *Sandbox) callsNow(service string) *Error {
	name, has := sb.Spec.Name, func(p *policy.Policy) bool { return p != nil && slices.Contains(p.Services, service) }
	again := "carboy start " + name
	if sb.State != StateStopped {
		again = "carboy stop " + name + " && " + again
	}
	switch {
	case has(sb.Spec.Policy) && sb.State == StateRunning:
		return nil
	case has(sb.Spec.Policy):
		return Errorf(Conflict, "sandbox %s: it does not run, and calls no service", name).WithHint("carboy start %s", name)
	case sb.Next != nil && has(sb.Next.Policy):
		return Errorf(Conflict, "sandbox %s: it may call %s from its next start on, and has no way to its gate before", name, service).WithHint("%s", again)
	case sb.State == StateRunning && sb.Spec.Networked():
		again = ""
	}
	return NoService(name, service, again)
}

// NoService is the error that a sandbox may not call a service of that name; again is what
// to type, after it is set, for that to hold: "" is nothing.
func NoService(sandbox, service, again string) *Error {
	e := Errorf(NotFound, "sandbox %s: its policy has no service %.80q", sandbox, service)
	if !policy.ValidService(service) {
		return e
	}
	if again != "" {
		again = " && " + again
	}
	return e.WithHint("carboy set %s --allow service:%s%s", sandbox, service, again)
}
