package service

import (
	"context"
	"errors"
	"slices"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
)

const (
	reapAgain = 10 * time.Second // after an attempt that failed
	maxEnded  = 100              // how many pods that are gone are listed once more
)

// Removed says that a sandbox of an owner was removed. Pods that ran in it are ended soon, and their parents have back what they had.
func (s *Service) Removed(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.owners[owner]; p != nil {
		p.look()
	}
}

func (p *pods) look() {
	select {
	case p.removed <- struct{}{}:
	default:
	}
}

// reapRemoved ends pods whose sandboxes were removed, until the pods' context ends.
func (s *Service) reapRemoved(p *pods) {
	var again <-chan time.Time
	for {
		select {
		case <-p.removed:
		case <-again:
		case <-p.ctx.Done():
			return
		}
		again = nil
		if err := s.tidy(p.ctx, p); err != nil {
			again = time.After(reapAgain)
		}
		s.sweep(p.ctx, p)
	}
}

// sweep forgets what pods said, and were told, whose sandboxes are gone.
func (s *Service) sweep(ctx context.Context, p *pods) {
	known := p.All()
	if err := p.box.Sweep(ctx, known); err != nil && ctx.Err() == nil {
		s.o.Log.Warn("remove what pods said that are gone", "error", err)
	}
	p.read.keep(func(key string) bool {
		return p.box.Heard(key) || slices.ContainsFunc(known, func(r record.Pod) bool { return r.Key() == key })
	})
}

// settle finishes what could not be done before, as giving a pod back what it had. What still can't be done is tried again.
func (s *Service) settle(ctx context.Context, p *pods) {
	if err := p.Settle(ctx); err != nil {
		s.o.Log.Warn("finish what was begun with pods", "error", err)
		p.look()
	}
}

// tidy is settle, and ends pods that are gone.
func (s *Service) tidy(ctx context.Context, p *pods) error {
	err := errors.Join(p.Settle(ctx), s.reap(ctx, p))
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("finish what was begun with pods, and end those that are gone", "error", err)
	}
	return err
}

// reap ends pods that are gone, and tells those above.
func (s *Service) reap(ctx context.Context, p *pods) error {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	gone, err := p.Reap(ctx)
	for _, r := range gone {
		p.mu.Lock()
		if r.Token != "" {
			p.ended = slices.DeleteFunc(p.ended, func(e record.Pod) bool { return e.Name == r.Name })
			p.ended = append(p.ended, r)
			p.ended = p.ended[max(0, len(p.ended)-maxEnded):]
		}
		p.mu.Unlock()
		p.tell(r.Parent, wire.PodEvent{Kind: wire.PodShutDown, PodName: r.Name})
		s.uninstall(ctx, p, r.Parent)
		p.read.forget(r.Key())
		if err := p.box.Forget(r); err != nil {
			s.o.Log.Warn("remove what a pod said", "pod", r.Name, "error", err)
		}
	}
	return err
}

// takeEnded returns the pods that are gone and were not listed yet.
func (p *pods) takeEnded() (out []record.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, p.ended = p.ended, nil
	return out
}
