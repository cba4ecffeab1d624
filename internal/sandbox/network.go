package sandbox

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Networked reports whether a box of s has a link.
func (s Spec) Networked() bool { return s.Network != NetworkOff && s.Network != "" }

// normalizeNetwork makes the network's name and the policy's default agree.
func (s *Spec) normalizeNetwork() {
	if s.Network == "" && s.Policy != nil {
		s.Network = NetworkPolicy
		if s.Policy.Default == policy.DefaultPublic {
			s.Network = NetworkOn
		}
	}
	setDefault(&s.Network, DefaultNetwork)
	if s.Network == NetworkOn {
		if s.Policy == nil {
			s.Policy = &policy.Policy{}
		}
		s.Policy.Default = policy.DefaultPublic
	}
}

// checkNetwork refuses a network that can't be promised, and a policy that
// does not say what it means.
func (s Spec) checkNetwork(o Offer) *Error {
	switch s.Network {
	case NetworkOff:
		if s.Policy != nil || len(s.Secrets) > 0 {
			return Errorf(Invalid, "network off: a policy or a secret is of no use without a network").
				WithHint("leave out --network off, or the rest")
		}
		return nil
	case NetworkOn, NetworkPolicy:
	default:
		return Errorf(Invalid, "network %s: no such choice", refText(s.Network)).WithHint("off, on, or policy with a policy")
	}
	if !o.Gate {
		return Errorf(Unsupported, "network %s: this machine can't gate one", s.Network).WithHint("leave it off; carboy doctor says what is missing")
	}
	if s.Policy == nil {
		return Errorf(Invalid, "network policy: there is no policy").WithHint("--allow HOST, or --policy FILE")
	}
	if s.Network == NetworkPolicy && s.Policy.Default == policy.DefaultPublic {
		return Errorf(Invalid, "network policy: the policy's default is public").WithHint("--network on, or default: deny")
	}
	return policyProblem(checkPolicy(*s.Policy, s.Secrets))
}

// checkPolicy compiles p, and sees to it that every secret has a use.
func checkPolicy(p policy.Policy, secrets []string) error {
	if _, err := policy.Compile(p, secrets); err != nil {
		return err
	}
	for i, name := range secrets {
		if slices.Contains(secrets[:i], name) {
			return Errorf(Invalid, "secret %s: named twice", refText(name))
		}
		if !slices.ContainsFunc(p.Rules, func(r policy.Rule) bool {
			return slices.ContainsFunc(r.Secrets, func(s policy.Secret) bool { return s.Name == name })
		}) {
			return Errorf(Invalid, "secret %s: no rule says where it goes", refText(name)).
				WithHint("a rule of the policy needs secrets: [{name: %s, header: Authorization}]", cut(name, MaxName))
		}
	}
	return nil
}

// policyProblem makes err one that a user may read.
func policyProblem(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	all := policy.Problems(err)
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Error()
	}
	return Errorf(Invalid, "policy: %s", strings.Join(texts, "; ")).WithHint("carboy policy test tries one")
}

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

// link opens sb's gate, if it is to have one.
func (m *Manager) link(ctx context.Context, sb *Sandbox) (*Link, error) {
	if !sb.Spec.Networked() {
		return nil, nil
	}
	return m.gate.Open(ctx, sb)
}

// startLinked starts the box of sb, its gate beside it, and sees that both are
// what was promised. After an error the caller ends both.
func (m *Manager) startLinked(ctx context.Context, b Backend, sb *Sandbox) ([]Enforcement, error) {
	link, err := m.link(ctx, sb)
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

// adoptGate rejoins the gate of a box that went on.
func (m *Manager) adoptGate(ctx context.Context, b Backend, sb *Sandbox) error {
	if !sb.Spec.Networked() {
		return nil
	}
	l, ok := b.(Linked)
	if m.gate == nil || !ok {
		return Errorf(Unsupported, "sandbox %s: its gate can't be rejoined here", sb.Spec.Name)
	}
	netns, err := l.NetNS(sb.ID)
	if err != nil {
		return err
	}
	return m.gate.Adopt(ctx, sb, netns)
}

// closeGate ends the gate of a box that has ended.
func (m *Manager) closeGate(ctx context.Context, sb *Sandbox) error {
	if m.gate == nil || !sb.Spec.Networked() {
		return nil
	}
	return m.gate.Close(ctx, sb.ID)
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

// SetPolicy changes what a sandbox may reach, at once and for what is open
// too. One without a network can't be given one: it has no link.
func (m *Manager) SetPolicy(ctx context.Context, c Caller, ref string, p policy.Policy) (*Sandbox, error) {
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.record(e).Clone()
		if !sb.Spec.Networked() {
			return Errorf(Conflict, "sandbox %s: it was made without a network", sb.Spec.Name).
				WithHint("make it anew, with --network policy --allow HOST")
		}
		sb.Spec.Policy = &p
		sb.Spec.Network = NetworkPolicy
		if p.Default == policy.DefaultPublic {
			sb.Spec.Network = NetworkOn
		}
		if err := sb.Spec.checkNetwork(m.offer); err != nil {
			return err
		}
		if err := m.save(ctx, e, sb); err != nil {
			return err
		}
		m.note(ctx, sb, EventPolicy, "its policy was changed: %d rules, default %s", len(p.Rules), orElse(p.Default, policy.DefaultDeny))
		if sb.State != StateRunning {
			return nil
		}
		if err := m.gate.Set(ctx, sb); err != nil {
			return failure(err, sb.Spec.Name, "tell its gate")
		}
		return nil
	})
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
