package sandboxtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The operations of a Warmer.
const (
	Warm  Op = "warm"
	Claim Op = "claim"
)

// Warmer is a Fake that starts instances before anyone asks for them. It
// remembers as faults what the contract of sandbox.Warmer forbids: an instance that
// is warmed with something of somebody's, claimed twice, or as what it is not.
type Warmer struct{ *Fake }

// Capabilities implements sandbox.Backend.
func (f Warmer) Capabilities() sandbox.Capabilities {
	c := f.Fake.Capabilities()
	c.Warm = f
	return c
}

// NewWarmer is New for a Warmer.
func NewWarmer(name string) Warmer { return Warmer{New(name)} }

// Warm implements sandbox.Warmer.
func (f Warmer) Warm(ctx context.Context, id string, spec sandbox.Spec, owner string) error {
	if f.has(id) {
		return f.fault("warming of %s, which there is", id)
	}
	if spec.Name != "" || len(spec.Env)+len(spec.Labels) > 0 || slices.ContainsFunc(spec.Mounts, foreign) ||
		spec.Workspace != (sandbox.Workspace{Mode: sandbox.WorkspacePrivate}) || spec.TTL != 0 || spec.Ephemeral {
		return f.fault("warming of %s for somebody: %+v", id, spec)
	}
	b, done := f.enter(Warm, id, true)
	defer done()
	if err := f.hook(ctx, Warm, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.running, b.ended = true, make(chan struct{})
	b.warmed, b.warmFor = &spec, owner
	b.starts++
	return nil
}

// Claim implements sandbox.Warmer. The instance of a Claim that fails is spoilt:
// it can only be ended.
func (f Warmer) Claim(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	if !f.has(sb.ID) {
		return nil, f.fault("claim of %s, which there is not", sb.ID)
	}
	b, done := f.enter(Claim, sb.ID, false)
	defer done()
	if err := f.claimable(b, sb); err != nil {
		return nil, err
	}
	if err := f.hook(ctx, Claim, sb.ID); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !b.running || b.hung {
		return nil, fmt.Errorf("claim of %s: it does not answer", sb.ID)
	}
	return f.enforced(), nil
}

// foreign reports whether a mount shows what is not the instance's own.
func foreign(m sandbox.Mount) bool { return !m.Own }

func targets(s sandbox.Spec) []string {
	var list []string
	for _, m := range s.Mounts {
		list = append(list, m.Target)
	}
	slices.Sort(list)
	return list
}

// claimable reports whether b may become sb's, and enters it as its owner.
func (f Warmer) claimable(b *instance, sb *sandbox.Sandbox) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong := ""
	alike := func(a, b sandbox.Limits) bool {
		a.Explicit, b.Explicit = nil, nil
		return cmp.Equal(a, b)
	}
	switch {
	case b.warmed == nil:
		wrong = "was not warmed"
	case b.warmFor != "" && b.warmFor != sb.Owner || b.warmFor == "" && f.Personal(sb.Owner, sb.Spec):
		wrong = "was warmed for another"
	case b.owner != "":
		wrong = "was claimed by " + b.owner
	case sb.Owner == "" || sb.Token == "" || sb.Backend != f.name || sb.State != sandbox.StateCreated:
		wrong = fmt.Sprintf("is not to be a sandbox's: %+v", sb)
	case sb.Spec.Image != b.warmed.Image || sb.Spec.Snapshot != b.warmed.Snapshot || sb.Spec.User != b.warmed.User || sb.Spec.Network != b.warmed.Network ||
		sb.Spec.Workspace != b.warmed.Workspace || !alike(sb.Spec.Limits, b.warmed.Limits),
		sb.Spec.ReadOnlyRoot != b.warmed.ReadOnlyRoot || sb.Spec.Sudo != b.warmed.Sudo || !slices.Equal(targets(sb.Spec), targets(*b.warmed)) || slices.ContainsFunc(sb.Spec.Mounts, foreign):
		wrong = fmt.Sprintf("is another kind: %+v", sb.Spec)
	}
	if wrong != "" {
		f.faults = append(f.faults, fmt.Sprintf("claim of %s, which %s", sb.ID, wrong))
		return fmt.Errorf("claim of %s, which %s", sb.ID, wrong)
	}
	b.owner = sb.Owner
	return nil
}

// Warmed lists the IDs of the running instances that nobody has claimed, in order.
func (f Warmer) Warmed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id, b := range f.instances {
		if b.running && b.warmed != nil && b.owner == "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// WarmedWith returns what an instance was warmed with, or the zero Spec.
func (f Warmer) WarmedWith(id string) sandbox.Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil && b.warmed != nil {
		return b.warmed.Clone()
	}
	return sandbox.Spec{}
}

func (f Warmer) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances[id] != nil
}

// PersonalOwner is whom a Warmer gives instances of their own.
const PersonalOwner = "uid:4711"

// Personal implements sandbox.Warmer.
func (f Warmer) Personal(owner string, _ sandbox.Spec) bool { return owner == PersonalOwner }
