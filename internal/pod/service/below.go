package service

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Below is what the programs of one sandbox may do with pods: spawn some, and speak to those that stand below it. Others
// are not there for it.
type Below struct {
	s *Service
	c sandbox.Caller
	// name is the sandbox's and, once it has spawned one, its pod's; id is the sandbox's.
	name, id string
}

// Below returns what sb's programs may do.
func (s *Service) Below(sb *sandbox.Sandbox) *Below {
	return &Below{s: s, c: sandbox.Caller{Owner: sb.Owner}, name: sb.Spec.Name, id: sb.ID}
}

// Spawn is Service.Spawn with the sandbox as the parent.
func (b *Below) Spawn(ctx context.Context, q Spawn) (Pod, []string, error) {
	if q.Name == b.name {
		return Pod{}, nil, ownName(q.Name)
	}
	q.Parent = b.id
	p, err := b.s.of(ctx, b.c.Owner)
	if err != nil {
		return Pod{}, nil, err
	}
	if r, ok := p.Find(b.name); ok && r.Ref == b.id {
		q.Parent = b.name
	}
	return b.s.Spawn(ctx, b.c, q)
}

// Own is the command of the sandbox itself, where it is a pod.
func (b *Below) Own(ctx context.Context) ([]string, error) {
	p, err := b.s.of(ctx, b.c.Owner)
	if err != nil {
		return nil, err
	}
	if r, ok := p.Find(b.name); ok && r.Ref == b.id {
		return slices.Clone(r.Program.Command), nil
	}
	return nil, nil
}

// List is Service.List, of those below.
func (b *Below) List(ctx context.Context) ([]Pod, error) {
	list, err := b.s.List(ctx, b.c)
	if err != nil {
		return nil, err
	}
	p, err := b.s.of(ctx, b.c.Owner)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(one Pod) bool { return !b.has(p, one.Pod) }), nil
}

// has reports whether a pod stands below the sandbox.
func (b *Below) has(p *pods, r record.Pod) bool {
	self, ok := p.Find(b.name)
	return ok && self.Ref == b.id && p.Descends(r.Name, b.name)
}

// find fails for a pod that does not stand below as it does for one that is not there.
func (b *Below) find(ctx context.Context, name string) error {
	p, r, err := b.s.find(ctx, b.c, name)
	if err == nil && !b.has(p, r) {
		err = noPod(name)
	}
	return err
}

// Get is Service.Get, of those below.
func (b *Below) Get(ctx context.Context, name string) (Pod, error) {
	if err := b.find(ctx, name); err != nil {
		return Pod{}, err
	}
	return b.s.Get(ctx, b.c, name)
}

// Send is Service.Send, to those below.
func (b *Below) Send(ctx context.Context, name, message string) error {
	if err := b.find(ctx, name); err != nil {
		return err
	}
	return b.s.Send(ctx, b.c, name, message)
}

// Output is Service.Output, of those below; from is an entry's number.
func (b *Below) Output(ctx context.Context, name string, from int, wait bool) (Output, error) {
	if err := b.find(ctx, name); err != nil {
		return Output{}, err
	}
	return b.s.Output(ctx, b.c, name, from, wait)
}

// Stop is Service.Stop, of those below.
func (b *Below) Stop(ctx context.Context, name string) ([]scope.Rule, error) {
	if err := b.find(ctx, name); err != nil {
		return nil, err
	}
	return b.s.Stop(ctx, b.c, name)
}
