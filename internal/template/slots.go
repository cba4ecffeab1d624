package template

import (
	"context"
	"sync"
)

// slots bound the builds at work, of each owner and of all.
type slots struct {
	all   chan struct{}
	bound func(owner string) int // of one owner's

	mu sync.Mutex
	of map[string]chan struct{}
}

// take waits until a build of owner may work: within those of all, too, where it
// counts.
func (s *slots) take(ctx context.Context, owner string, counts bool) (free func(), err error) {
	s.mu.Lock()
	own := s.of[owner]
	if own == nil {
		own = make(chan struct{}, s.bound(owner))
		s.of[owner] = own
	}
	s.mu.Unlock()
	select {
	case own <- struct{}{}:
	case <-ctx.Done():
		return nil, &buildError{msg: causeText(ctx)}
	}
	if !counts {
		return func() { <-own }, nil
	}
	select {
	case s.all <- struct{}{}:
		return func() { <-s.all; <-own }, nil
	case <-ctx.Done():
		<-own
		return nil, &buildError{msg: causeText(ctx)}
	}
}

// addBusy adds the owners that have builds at work.
func (s *slots) addBusy(busy map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, own := range s.of {
		busy[owner] = busy[owner] || len(own) > 0
	}
}
