package sandbox

import (
	"cmp"
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Networked reports whether an instance of s has a link.
func (s Spec) Networked() bool { return s.Network != NetworkOff && s.Network != "" }

// Policy returns what a sandbox may reach, or will from its next start on; the zero
// policy where it has no network and none was set.
func (m *Manager) Policy(ctx context.Context, c Caller, ref string) (policy.Policy, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return policy.Policy{}, err
	}
	return sb.policy(), nil
}

// policy is what a sandbox may reach, now or from its next start on.
func (s *Sandbox) policy() policy.Policy {
	switch {
	case s.Spec.Policy != nil:
		return *s.Spec.Policy
	case s.Next != nil && s.Next.Policy != nil:
		return *s.Next.Policy
	}
	return policy.Policy{}
}

// wanted is what a sandbox is to reach: a network and a policy as they were asked for, resolved, or what
// there is with the rules of p.
func (s *Sandbox) wanted(network string, p *policy.Policy, add bool) (string, *policy.Policy, error) {
	if !add {
		return ResolveNetwork(network, policy.Clone(p))
	}
	all, err := policy.Add(s.policy(), *p)
	if len(policy.Problems(err)) > 0 {
		return "", nil, PolicyError("policy", err)
	}
	if err != nil {
		return "", nil, Errorf(Invalid, "policy: %w", err).WithHint("leave those out, or replace the whole policy")
	}
	return ResolveNetwork("", &all)
}

// NetUse returns what the gate of a running sandbox has counted; nothing for
// one without a network.
func (m *Manager) NetUse(ctx context.Context, c Caller, ref string) (NetUse, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return NetUse{}, err
	}
	if m.gates.gate == nil || !sb.Spec.Networked() || sb.State != StateRunning {
		return NetUse{}, nil
	}
	use, err := m.gates.gate.Use(ctx, sb.ID)
	if err != nil {
		return NetUse{}, failure(err, sb.Spec.Name, "ask its gate")
	}
	return use, nil
}

// NetLog hands the records of what a sandbox tried to reach to yield: of one without a
// network, the names that it asked for. Those of one that ran without being kept are
// there for a while after its end, by its ID or its name.
func (m *Manager) NetLog(ctx context.Context, c Caller, ref string, o NetLogOptions, yield func(netlog.Record) error) error {
	sb, err := m.Get(ctx, c, ref)
	if KindOf(err) == NotFound {
		return m.logOfEnded(ctx, c, ref, o, yield)
	}
	if err != nil {
		return err
	}
	return m.recordsOf(ctx, sb, o, yield)
}

// NetworkChange is what a sandbox may reach from now on.
type NetworkChange struct {
	Policy policy.Policy
	// Secrets are the names of what its gate may put into requests, instead of
	// those that it had; nil: those.
	Secrets []string
	// Values are those of Secrets that belong to this sandbox alone. They are in
	// use as soon as they are kept, just before Policy is.
	Values SecretValues
	// Add has the rules of Policy added to those that there are, as Change's has.
	Add bool
	// If is the revision of the policy that this was worked out from: where another
	// is there by now, nothing is changed, and that is a Conflict. "": whichever is.
	If string
}

// SetNetwork changes what a sandbox may reach, at once and for what is open
// too. One without a network can't be given one: it has no link. What was
// written down and could not be told to the gate is an error, and tried again.
func (m *Manager) SetNetwork(ctx context.Context, c Caller, ref string, ch NetworkChange) (*Sandbox, error) {
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb, err := m.changedNetwork(ctx, c, m.registry.record(e), ch)
		if err != nil {
			return err
		}
		ctx, cancel := detached(ctx)
		defer cancel()
		if ch.Secrets != nil {
			if err := m.gates.gate.Keep(ctx, sb, ch.Values); err != nil {
				return failure(err, sb.Spec.Name, "keep its secrets")
			}
		}
		if err := m.lives.save(ctx, e, sb); err != nil {
			return err
		}
		m.note(ctx, sb, EventPolicy, "its policy was changed: %d rules, default %s", len(ch.Policy.Rules), cmp.Or(ch.Policy.Default, policy.DefaultDeny))
		if sb.State != StateRunning {
			return nil
		}
		if err := m.lives.tellGate(ctx, e, gateSet); err != nil {
			return failure(err, sb.Spec.Name, "tell its gate of the policy yet, and will try again")
		}
		return nil
	})
}

// changedNetwork returns sb as it is after ch, if that can be.
func (m *Manager) changedNetwork(ctx context.Context, c Caller, sb *Sandbox, ch NetworkChange) (*Sandbox, error) {
	if !sb.Spec.Networked() {
		return nil, Errorf(Conflict, "sandbox %s: it was started without a network", sb.Spec.Name).
			WithHint("carboy set %s --allow HOST", sb.Spec.Name)
	}
	if err := sb.Spec.hasRevision(ch.If); err != nil {
		return nil, err
	}
	old := sb.Spec.Secrets
	network, p, err := sb.wanted("", &ch.Policy, ch.Add)
	if err != nil {
		return nil, err
	}
	if network, p, err = sb.Spec.Own().Network(network, p); err != nil {
		return nil, err
	}
	sb = sb.Clone()
	sb.Spec.Network, sb.Spec.Policy = network, p
	if ch.Secrets != nil {
		sb.Spec.Secrets = slices.Clone(ch.Secrets)
	}
	if err := ch.Values.check(sb.Spec.Secrets); err != nil {
		return nil, err
	}
	if err := sb.Spec.checkNetworkChoice(m.offer); err != nil {
		return nil, err
	}
	// A secret that no rule has a place for any more is no mistake here: a
	// policy can always be made narrower.
	if _, err := policy.Compile(*sb.Spec.Policy, sb.Spec.Secrets); err != nil {
		return nil, PolicyError("policy", err)
	}
	added := slices.DeleteFunc(slices.Clone(sb.Spec.Secrets), func(name string) bool { return slices.Contains(old, name) })
	if len(added) == 0 {
		return sb, nil
	}
	return sb, m.gates.entitled(ctx, c, sb.Spec.Name, added, ch.Values)
}

// hasRevision fails where the policy is of another revision; "" is any.
func (s Spec) hasRevision(revision string) error {
	if revision == "" {
		return nil
	}
	var p policy.Policy
	if s.Policy != nil {
		p = *s.Policy
	}
	if set, err := policy.Compile(p, s.Secrets); err == nil && set.Revision() == revision {
		return nil
	}
	return Errorf(Conflict, "sandbox %s: its policy has changed meanwhile", s.Name).WithHint("carboy policy show %s", s.Name)
}

// Like returns a Spec by which another sandbox can be made as this one was: it
// has no name. Beside it are the values of secrets that are this sandbox's alone,
// which nobody else is to see. What the sandbox wrote is no part of it.
func (m *Manager) Like(ctx context.Context, c Caller, ref string) (Spec, SecretValues, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return Spec{}, nil, err
	}
	s := sb.Spec
	s.Name, s.Ephemeral = "", false
	if m.gates.gate == nil || !s.Networked() || len(s.Secrets) == 0 {
		return s, nil, nil
	}
	values, err := m.gates.gate.Values(ctx, sb)
	if err != nil {
		return Spec{}, nil, failure(err, sb.Spec.Name, "look up its secrets")
	}
	return s, values, nil
}
