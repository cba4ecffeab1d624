package files

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// NewAgentWorkers returns Workers whose threads keep the agent's own rights:
// what the security tests must notice.
func NewAgentWorkers(o WorkerOptions) *Workers {
	w := NewWorkers(o)
	w.enter = func(WorkerOptions, account.Account) error { return nil }
	return w
}

// UseAgentRights makes s act as the agent.
func (s *Service) UseAgentRights() {
	s.workers, s.streams = NewAgentWorkers(WorkerOptions{}), NewAgentWorkers(WorkerOptions{})
}

// Threads returns how many users have threads, and how many are idle.
func (w *Workers) Threads() (users, idle int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pools {
		idle += len(p.idle)
	}
	return len(w.pools), idle
}

// Accepted picks gzip or not for an answer.
func Accepted(header string, plain bool) (bool, error) { return accepted(header, plain) }

// RemoveAll is what Remove does.
func RemoveAll(ctx context.Context, p string) error { return removeAll(ctx, p) }

// Workers returns the threads for short work, for others who must act as a
// user: they share the service's limits.
func (s *Service) Workers() *Workers { return s.workers }
