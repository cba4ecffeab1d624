package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Change is what is to be otherwise about a sandbox that is there. What is left at
// its zero stays.
type Change struct {
	CPUs               float64
	Memory, PIDs, Disk int64 // bytes, but for PIDs; a disk can only grow
	// Network and Policy say what it may reach, as those of a Spec do. NetworkOff
	// is a policy that lets nothing through, for one that has a link.
	Network string
	Policy  *policy.Policy
	// Add has the rules of Policy added to those that there are when it is done, so that of two
	// who add at once none undoes what the other did.
	Add bool
	// TTL counts from now, and from each later start; 0: it never expires.
	TTL      *time.Duration
	OnExpiry OnExpiry
	Labels   map[string]*string // nil: the label goes
}

// Next is what was set and holds from the next start on. What is zero is as it is.
type Next struct {
	CPUs    float64           `json:"cpus,omitempty"`
	Memory  int64             `json:"memory,omitempty"`
	PIDs    int64             `json:"pids,omitempty"`
	Disk    int64             `json:"disk,omitempty"`
	Network string            `json:"network,omitempty"`
	Policy  *policy.Policy    `json:"policy,omitempty"`
	Why     map[string]string `json:"why,omitempty"` // of each, why it does not hold yet
}

func (n *Next) clone() *Next {
	if n == nil {
		return nil
	}
	c := *n
	c.Policy = policy.Clone(n.Policy)
	c.Why = maps.Clone(n.Why)
	return &c
}

// limits are l with what n has of them.
func (n *Next) limits(l Limits) Limits {
	if n == nil {
		return l
	}
	l.Explicit = maps.Clone(l.Explicit)
	mark := func(name string) {
		if l.Explicit == nil {
			l.Explicit = map[string]bool{}
		}
		l.Explicit[name] = true
	}
	put(&l.CPUs, n.CPUs, LimitCPUs, mark)
	put(&l.Memory, n.Memory, LimitMemory, mark)
	put(&l.PIDs, n.PIDs, LimitPIDs, mark)
	put(&l.Disk, n.Disk, LimitDisk, mark)
	return l
}

func put[T int64 | float64](p *T, v T, name string, mark func(string)) {
	if v != 0 {
		*p = v
		mark(name)
	}
}

// isNothing reports whether nothing is left to do.
func (n *Next) isNothing() bool {
	return n.CPUs == 0 && n.Memory == 0 && n.PIDs == 0 && n.Disk == 0 && n.Network == ""
}

// Set changes a sandbox that is there, at once where its wall can and else at its
// next start: the answer says which, in the order of the fields of Change. All of
// it is checked before any of it is done, as at a create, and written down before
// it is acted on: where a daemon is killed in between, the next one goes on. What
// can't be is an error, and nothing is changed. What Carboy keeps for itself,
// by a reserved label, is a Conflict.
func (m *Manager) Set(ctx context.Context, c Caller, ref string, ch Change) (*Sandbox, []Setting, error) {
	var set []Setting
	sb, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		before := m.registry.record(e)
		b, err := m.lives.backends.of(before)
		if err != nil {
			return err
		}
		sb, err := m.changed(ctx, c, b, before, ch)
		if err != nil {
			return err
		}
		ctx, cancel := detached(ctx)
		defer cancel()
		if err := m.lives.save(ctx, e, sb); err != nil {
			return err
		}
		notes, err := m.lives.act(ctx, e, ch.changesPolicyOf(sb))
		set = ch.settings(before, m.registry.record(e))
		for i := range set {
			set[i].Note = cmp.Or(set[i].Note, notes[set[i].What])
		}
		m.note(ctx, sb, eventSet, "%s set %s", c.Owner, settingsText(set))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return sb, set, nil
}

// changed is sb as it is written down for ch: what can be done at once without an
// instance is in its Spec, all else in its Next.
func (m *Manager) changed(ctx context.Context, c Caller, b Backend, sb *Sandbox, ch Change) (*Sandbox, error) {
	if err := mayBeSet(sb); err != nil {
		return nil, err
	}
	sb = sb.Clone()
	if sb.Next == nil {
		sb.Next = new(Next)
	}
	if err := ch.labels(sb); err != nil {
		return nil, err
	}
	if err := m.changeEnd(sb, ch); err != nil {
		return nil, err
	}
	if err := m.changeNetwork(ctx, c, b, sb, ch); err != nil {
		return nil, err
	}
	if err := m.changeLimits(ctx, b, sb, ch); err != nil {
		return nil, err
	}
	if sb.State == StateStopped && !sb.Suspended {
		sb.takeNext()
	}
	sb.dropNext()
	return sb, nil
}

// mayBeSet refuses what is Carboy's own, and what is on its way.
func mayBeSet(sb *Sandbox) error {
	for _, k := range slices.Sorted(maps.Keys(sb.Spec.Labels)) {
		if k == LabelPod {
			return Errorf(Conflict, "sandbox %s: it is a pod, whose parent bounds it: what it was given stays", sb.Spec.Name).
				WithHint("carboy pod stop %s, and spawn another", sb.Spec.Name)
		}
		if strings.HasPrefix(k, ReservedLabels) {
			return Errorf(Conflict, "sandbox %s: %s is how Carboy keeps it for itself: a session's or a build's is as that says",
				sb.Spec.Name, refText(k)).WithHint("say it where the session or the template is made")
		}
	}
	if sb.State != StateRunning && sb.State != StateStopped {
		return mustRun(sb)
	}
	return nil
}

// labels changes those of sb.
func (ch Change) labels(sb *Sandbox) error {
	for _, k := range slices.Sorted(maps.Keys(ch.Labels)) {
		if err := CheckCallersLabels(map[string]string{k: ""}); err != nil {
			return err
		}
		v := ch.Labels[k]
		if v == nil {
			delete(sb.Spec.Labels, k)
			continue
		}
		if sb.Spec.Labels == nil {
			sb.Spec.Labels = map[string]string{}
		}
		sb.Spec.Labels[k] = *v
	}
	if err := checkLabels(sb.Spec.Labels); err != nil {
		return err
	}
	return nil
}

// changeEnd changes when sb ends, and how.
func (m *Manager) changeEnd(sb *Sandbox, ch Change) error {
	if ch.OnExpiry != "" {
		if err := checkOnExpiry(ch.OnExpiry); err != nil {
			return err
		}
		sb.Spec.OnExpiry = ch.OnExpiry
	}
	if ch.TTL != nil {
		if *ch.TTL != 0 {
			if err := checkTTL(*ch.TTL); err != nil {
				return err
			}
		}
		if err := m.quotas.Quota(sb.Owner).allowsTTL(*ch.TTL); err != nil {
			return err
		}
		sb.Spec.TTL = *ch.TTL
		sb.ExpiresAt = expiry(m.now(), *ch.TTL)
	}
	if !sb.mayExpire() {
		sb.ExpiresAt = time.Time{}
	}
	return nil
}

// changeLimits puts the limits of ch into what is next, once they are known to be
// such as a create could have.
func (m *Manager) changeLimits(ctx context.Context, b Backend, sb *Sandbox, ch Change) error {
	if ch.CPUs == 0 && ch.Memory == 0 && ch.PIDs == 0 && ch.Disk == 0 {
		return nil
	}
	asked := &Next{CPUs: ch.CPUs, Memory: ch.Memory, PIDs: ch.PIDs, Disk: ch.Disk}
	spec := sb.Spec.Clone()
	spec.Limits = asked.limits(sb.Next.limits(spec.Limits))
	if err := spec.Limits.check(m.offer); err != nil {
		return err
	}
	if err := m.quotas.Quota(sb.Owner).allows(spec); err != nil {
		return err
	}
	if ch.Disk != 0 && ch.Disk < sb.Spec.Limits.Disk {
		return Errorf(Invalid, "disk %s: a disk can only grow, and that of %s has %s", SizeText(ch.Disk), sb.Spec.Name, SizeText(sb.Spec.Limits.Disk)).
			WithHint("make another sandbox with a smaller one")
	}
	if _, err := b.Check(ctx, spec); err != nil {
		return failure(err, sb.Spec.Name, "check its limits")
	}
	if r := b.Capabilities().Resize; r != nil {
		if err := r.Resizable(ctx, sb, spec.Limits); err != nil {
			return failure(err, sb.Spec.Name, "check its limits")
		}
	} else if ch.Disk > sb.Spec.Limits.Disk {
		return Errorf(Unsupported, "disk: its wall %s can't make one larger", sb.Backend)
	}
	merge(&sb.Next.CPUs, ch.CPUs)
	merge(&sb.Next.Memory, ch.Memory)
	merge(&sb.Next.PIDs, ch.PIDs)
	merge(&sb.Next.Disk, ch.Disk)
	return nil
}

func merge[T int64 | float64](p *T, v T) {
	if v != 0 {
		*p = v
	}
}

// changeNetwork changes what sb may reach: at once where its instance has a link,
// for its next start where it has none.
func (m *Manager) changeNetwork(ctx context.Context, c Caller, b Backend, sb *Sandbox, ch Change) error {
	if ch.Network == "" && ch.Policy == nil {
		return nil
	}
	network, p, err := sb.wanted(ch.Network, ch.Policy, ch.Add)
	if err != nil {
		return err
	}
	if network == NetworkOff && !sb.Spec.Networked() {
		sb.Next.Network, sb.Next.Policy = "", nil
		return nil
	}
	if network == NetworkOff {
		network, p = NetworkPolicy, new(policy.Policy)
	}
	if network, p, err = sb.Spec.Own().Network(network, p); err != nil {
		return err
	}
	spec := sb.Spec.Clone()
	spec.Network, spec.Policy = network, p
	if err := spec.checkNetworkChoice(m.offer); err != nil {
		return err
	}
	if _, err := policy.Compile(*p, spec.Secrets); err != nil {
		return PolicyError("policy", err)
	}
	if sb.Spec.Networked() {
		sb.Spec.Network, sb.Spec.Policy = network, p
		return nil
	}
	if err := m.gates.canLink(b, spec); err != nil {
		return err
	}
	if err := m.gates.check(ctx, c, spec, nil); err != nil {
		return err
	}
	sb.Next.Network, sb.Next.Policy = network, p
	return nil
}

// changesPolicyOf reports whether a gate is to be told of ch.
func (ch Change) changesPolicyOf(sb *Sandbox) bool {
	return (ch.Network != "" || ch.Policy != nil) && sb.Spec.Networked()
}
