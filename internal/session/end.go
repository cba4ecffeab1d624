package session

import (
	"context"
	"errors"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// Delete ends a session, its processes and the commands in it, and deletes its
// sandbox. It waits for a creation that is under way. What was begun is ended
// although ctx ends.
func (r *Runtime) Delete(ctx context.Context, c sandbox.Caller, key string) error {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	s, err := r.find(c, key)
	if err != nil {
		return err
	}
	defer r.release(s)
	return tidied(r.delete(ctx, s, ""), key, "delete it")
}

// delete ends a session; where recID is not "", only the one of that record,
// and none that has taken its place.
func (r *Runtime) delete(ctx context.Context, s *session, recID string) error {
	if !s.life.take(ctx, nil) {
		return context.Cause(ctx)
	}
	defer s.life.give()
	if is := r.stateOf(s); is == absent || is == gone || recID != "" && r.record(s).ID != recID {
		return fault.NotFound(shown(s.id.key))
	}
	if err := r.erase(ctx, s); err != nil {
		return err
	}
	if err := r.become(ctx, s, step{to: gone}); err != nil { // a call that waits looks again
		return err
	}
	r.metrics.deleted.Add(1)
	r.log.Info("session deleted", "owner", s.id.owner, "session", shown(s.id.key))
	return nil
}

// reset ends a session out of one of its own commands.
func (r *Runtime) reset(ctx context.Context, s *session, recID string) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := r.delete(ctx, s, recID); err != nil && !errors.Is(err, fault.ErrNotFound) {
		r.log.Error("end a session", "owner", s.id.owner, "session", shown(s.id.key), "error", err)
	}
}

// evict ends a session whose workspace is over its quota, and returns why.
func (r *Runtime) evict(ctx context.Context, s *session, recID string, why error) error {
	r.reset(ctx, s, recID)
	return why
}

// dropAtOnce bounds how many sessions DropAll ends side by side.
const dropAtOnce = 8

// DropAll deletes the sessions of an owner, or of all for "", whose key match
// accepts; nil accepts all.
func (r *Runtime) DropAll(ctx context.Context, owner string, match func(key string) bool) error {
	ctx, done, err := r.begin(ctx, sandbox.Caller{Owner: "daemon", Admin: true})
	if err != nil {
		return err
	}
	defer done()
	r.mu.Lock()
	var list []*session
	for i, s := range r.sessions {
		if (owner == "" || i.owner == owner) && (match == nil || match(i.key)) {
			s.leases++
			list = append(list, s)
		}
	}
	r.mu.Unlock()
	errs := make([]error, len(list))
	slots := make(chan struct{}, dropAtOnce)
	var wg sync.WaitGroup
	for n, s := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer r.release(s)
			if err := r.delete(ctx, s, ""); !errors.Is(err, fault.ErrNotFound) {
				errs[n] = tidied(err, s.id.key, "delete it")
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
