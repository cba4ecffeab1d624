package interpreter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

// What a cell is told whose kernel ended under it: the names are E2B's.
const (
	restarting = "ContextRestarting"
	restarted  = "Context was restarted"
	ended      = "UnexpectedEndOfExecution"
)

const maxWaiting = 64 // cells of one context

var (
	errRemoved = errors.New("the context was removed")
	errWaiting = fmt.Errorf("%d cells wait in this context already", maxWaiting)
)

// scope is a context: a kernel, and the state that its cells share.
type scope struct {
	s             *Server
	id            string
	language, cwd string
	launch        launch

	turn    chan struct{} // held by the user of the kernel
	waiting atomic.Int32

	mu      sync.Mutex
	k       *kernel // nil before the first start
	removed bool
}

// newScope makes a context whose kernel is not started. cwd must be a
// directory.
func (s *Server) newScope(language, cwd string) (*scope, error) {
	l, err := s.launchOf(language)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(cwd)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err != nil {
		return nil, &cwdError{err}
	}
	return &scope{s: s, id: jupyter.NewID(), language: language, cwd: cwd, launch: l, turn: make(chan struct{}, 1)}, nil
}

type cwdError struct{ err error }

func (e *cwdError) Error() string { return "cwd: " + e.err.Error() }
func (e *cwdError) Unwrap() error { return e.err }

// enter waits for a turn.
func (c *scope) enter(ctx context.Context) error {
	if c.waiting.Add(1) > maxWaiting {
		c.waiting.Add(-1)
		return errWaiting
	}
	defer c.waiting.Add(-1)
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *scope) leave() { <-c.turn }

// kernel returns the kernel, and starts it where none runs. The caller has the
// turn.
func (c *scope) kernel(ctx context.Context) (*kernel, error) {
	c.mu.Lock()
	k, removed := c.k, c.removed
	c.mu.Unlock()
	if removed {
		return nil, errRemoved
	}
	if k != nil && k.alive() {
		return k, nil
	}
	k, err := c.s.start(ctx, c.launch, c.cwd)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.k, removed = k, c.removed
	c.mu.Unlock()
	if removed {
		k.kill()
		return nil, errRemoved
	}
	return k, nil
}

// execute runs a cell of a client's. All that comes of it goes into out, which
// is closed at its end; afterwards the variables that were set for it are set
// back. It returns when the context is free again.
func (c *scope) execute(ctx context.Context, code string, env map[string]string, out *outbox) {
	defer out.close()
	if err := c.enter(ctx); err != nil {
		out.say(errorEvent("ContextBusy", err.Error()))
		return
	}
	defer c.leave()
	k, err := c.kernel(c.s.ctx)
	if err != nil {
		out.say(errorEvent(ended, err.Error()))
		return
	}
	if ctx.Err() != nil {
		return
	}
	if len(env) > 0 {
		set, _ := setting(c.language, env, nil)
		if failed := k.run(c.s.ctx, set, nil); failed != nil {
			out.say(*failed)
			return
		}
	}
	k.run(ctx, code, out)
	out.close()
	if len(env) > 0 && k.alive() {
		k.run(c.s.ctx, resetting(c.language, env, c.s.o.Env), nil)
	}
}

// restart gives the context a new kernel. A cell that runs is ended; those that
// wait run in the new one.
func (c *scope) restart(ctx context.Context) error {
	c.stop(errorEvent(restarting, restarted), false)
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.leave()
	_, err := c.kernel(c.s.ctx)
	return err
}

// remove ends the context for good.
func (c *scope) remove() { c.stop(errorEvent(ended, "the context was removed"), true) }

func (c *scope) stop(why failure, forGood bool) {
	c.mu.Lock()
	k := c.k
	c.removed = c.removed || forGood
	c.mu.Unlock()
	if k != nil {
		k.end(why)
	}
}
