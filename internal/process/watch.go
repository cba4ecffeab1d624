package process

import (
	"context"
	"errors"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
)

const (
	longPoll = 20 * time.Second
	firstTry = time.Millisecond
	lastTry  = 2 * time.Second

	errChunk = 256 << 10
	// breather is between two pieces of errors, of which nobody needs more than
	// the newest: a process that writes byte by byte costs no more than others.
	breather = 10 * time.Millisecond
	// idle is after an answer with nothing in it, which an honest agent gives
	// when longPoll has passed.
	idle = 100 * time.Millisecond
)

// retry calls the guest until it answers, or until ctx or the process's own
// ends.
func (p *Process) retry(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	for delay := firstTry; ; delay = min(2*delay, lastTry) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := call(ctx)
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if err == nil || !errors.Is(err, agent.ErrBroken) {
			return err
		}
		if !pause(ctx, delay) {
			return context.Cause(ctx)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// least is what a connection that breaks all the time is asked to carry.
const least = 4 << 10

// read asks for output; for less of it when a connection breaks.
func (p *Process) read(ctx context.Context, r agent.Read) (o agent.Output, err error) {
	err = p.retry(ctx, func(ctx context.Context) error {
		o, err = p.guest.Read(ctx, p.command, r)
		if errors.Is(err, agent.ErrBroken) {
			r.Max = min(r.Max, max(r.Max/4, least))
		}
		return err
	})
	return o, err
}

// watch reads the errors, and learns of the end.
func (p *Process) watch() {
	offset, err := p.errorsFrom()
	for err == nil {
		var o agent.Output
		o, err = p.read(p.ctx, agent.Read{Stderr: true, Offset: offset, Release: offset, Max: errChunk, Wait: longPoll})
		if err != nil {
			break
		}
		offset = o.Offset + int64(len(o.Data))
		p.errs.add(o.Data)
		p.errs.say(p.log, o.Data, time.Now())
		if o.Ended && o.Exit != nil {
			code := int(o.Exit.GetCode())
			p.errs.flush(p.log)
			p.finish(&code)
			return
		}
		if len(o.Data) == 0 {
			pause(p.ctx, idle)
		}
		pause(p.ctx, breather)
	}
	if p.ctx.Err() == nil { // the guest does not know it any more
		p.log.Warn("a managed process is lost", "err", err)
		p.finish(nil)
	}
}

// errorsFrom is where to read the errors from: a process that is found again
// may have written a lot.
func (p *Process) errorsFrom() (int64, error) {
	var from int64
	err := p.retry(p.ctx, func(ctx context.Context) error {
		m, err := p.guest.Look(ctx, p.command)
		if err == nil {
			from = max(0, int64(m.GetStderrBytes())-errChunk)
		}
		return err
	})
	return from, err
}
