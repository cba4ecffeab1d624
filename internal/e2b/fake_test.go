package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fake is a domain of one owner, without walls.
type fake struct {
	mu        sync.Mutex
	now       time.Time
	instances []*sandbox.Sandbox
	events    []sandbox.Event
	specs     []sandbox.Spec
	values    []sandbox.SecretValues // of specs
	changes   []sandbox.NetworkChange
	saved     []sandbox.Snapshot
	full      int // how many sandboxes there may be; 0: any number
	removed   []string
}

func (f *fake) Create(_ context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full > 0 && len(f.instances) >= f.full {
		return nil, sandbox.Errorf(sandbox.Exhausted, "there are too many")
	}
	f.specs, f.values = append(f.specs, spec), append(f.values, values)
	sb := &sandbox.Sandbox{
		ID: fmt.Sprintf("sb_%020d", 2+len(f.instances)), Owner: c.Owner, State: sandbox.StateRunning,
		Token: "token", CreatedAt: f.now, StartedAt: f.now, ExpiresAt: f.now.Add(spec.TTL), Starts: 1,
	}
	sb.ID = strings.NewReplacer("0", "a", "1", "b", "8", "i", "9", "j").Replace(sb.ID)
	sb.Spec = spec
	sb.Spec.Name, sb.Spec.Image = fmt.Sprintf("box-%d", len(f.instances)), sandbox.DefaultImage
	sb.Spec.Limits = sandbox.Limits{CPUs: 1.5, Memory: 2 << 30, Disk: 8 << 30}
	f.instances = append(f.instances, sb)
	f.now = f.now.Add(time.Second)
	return sb.Clone(), nil
}

func (f *fake) Get(_ context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	sb, err := f.find(c, ref)
	if err != nil {
		return nil, err
	}
	return sb.Clone(), nil
}

func (f *fake) find(c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sb := range f.instances {
		if sb.Owner == c.Owner && sb.ID == ref {
			return sb, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", ref)
}

func (f *fake) List(_ context.Context, c sandbox.Caller, fl sandbox.Filter) ([]*sandbox.Sandbox, error) {
	var out []*sandbox.Sandbox
	for _, sb := range f.instances {
		ok := sb.Owner == c.Owner
		for k, v := range fl.Labels {
			ok = ok && sb.Spec.Labels[k] == v
		}
		if ok {
			out = append(out, sb.Clone())
		}
	}
	return out, nil
}

func (f *fake) Start(_ context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	sb, err := f.find(c, ref)
	if err == nil {
		sb.State = sandbox.StateRunning
	}
	return sb, err
}

func (f *fake) Remove(_ context.Context, c sandbox.Caller, ref string, force bool) error {
	sb, err := f.find(c, ref)
	if err == nil && !force {
		return errors.New("not forced")
	}
	if err == nil {
		sb.State = sandbox.StateRemoving
		f.removed = append(f.removed, ref)
	}
	return err
}

func (f *fake) SetTTL(_ context.Context, c sandbox.Caller, ref string, ttl time.Duration) (*sandbox.Sandbox, error) {
	sb, err := f.find(c, ref)
	if err == nil {
		sb.ExpiresAt = f.now.Add(ttl)
	}
	return sb, err
}

func (f *fake) Pause(_ context.Context, c sandbox.Caller, ref string, _ bool) (*sandbox.Sandbox, bool, error) {
	sb, err := f.find(c, ref)
	if err == nil && sb.State != sandbox.StateRunning {
		err = sandbox.Errorf(sandbox.Conflict, "it is paused")
	}
	if err != nil {
		return nil, false, err
	}
	sb.State, sb.Ended, sb.EndedAt, sb.ExpiresAt = sandbox.StateStopped, sandbox.EndPaused, f.now, time.Time{}
	return sb.Clone(), false, nil
}

func (f *fake) SetOnExpiry(_ context.Context, c sandbox.Caller, ref string, on sandbox.OnExpiry) (*sandbox.Sandbox, error) {
	sb, err := f.find(c, ref)
	if err == nil {
		sb.Spec.OnExpiry = on
	}
	return sb, err
}

func (f *fake) SetNetwork(_ context.Context, c sandbox.Caller, ref string, ch sandbox.NetworkChange) (*sandbox.Sandbox, error) {
	sb, err := f.find(c, ref)
	if err == nil {
		f.changes = append(f.changes, ch)
		sb.Spec.Network, sb.Spec.Policy, err = sandbox.ResolveNetwork("", &ch.Policy)
		sb.Spec.Secrets = ch.Secrets
	}
	return sb, err
}

func (f *fake) Like(_ context.Context, c sandbox.Caller, ref string) (sandbox.Spec, sandbox.SecretValues, error) {
	sb, err := f.find(c, ref)
	if err != nil {
		return sandbox.Spec{}, nil, err
	}
	spec := sb.Spec.Clone()
	spec.Name = ""
	return spec, nil, nil
}

func (f *fake) Snapshot(_ context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	sb, err := f.find(c, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	f.now = f.now.Add(time.Second)
	id := strings.NewReplacer("0", "a", "1", "b", "8", "i", "9", "j").Replace(fmt.Sprintf("sn_%020d", 2+len(f.saved)))
	f.saved = append(f.saved, sandbox.Snapshot{ID: id, Owner: c.Owner, Source: sb.ID, CreatedAt: f.now})
	return f.saved[len(f.saved)-1], nil
}

func (f *fake) Snapshots(_ context.Context, c sandbox.Caller) (out []sandbox.Snapshot, err error) {
	for _, s := range f.saved {
		if s.Owner == c.Owner && !s.Removed {
			out = append(out, s)
		}
	}
	return out, nil
}

func (f *fake) RemoveSnapshot(_ context.Context, _ sandbox.Caller, id string) error {
	for i := range f.saved {
		if f.saved[i].ID == id {
			f.saved[i].Removed = true
		}
	}
	return nil
}

func (f *fake) Events(context.Context, sandbox.Caller, string) ([]sandbox.Event, error) {
	return append([]sandbox.Event(nil), f.events...), nil
}
