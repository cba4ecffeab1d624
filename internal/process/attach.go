package process

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// queue is who reads the process, and who waits to.
type queue struct {
	mu      sync.Mutex
	holder  *Attachment
	waiting []*Attachment // the next one first
}

// Attachment is the one reader of a process, and one who writes to it. Close
// it; the process goes on.
type Attachment struct {
	p      *Process
	ctx    context.Context // ends with the attachment
	cancel context.CancelCauseFunc
	mine   chan struct{} // closed when it is this one's turn
	busy   sync.Mutex    // held by who reads
}

// Attach waits for the process to have no reader, and becomes it; those who
// wait get their turn in the order in which they came. It fails with ErrEnded
// for a process that has ended; where its output was read, too, with what is
// io.EOF besides.
func (p *Process) Attach(ctx context.Context) (*Attachment, error) { return p.attach(ctx, false) }

// TakeOver becomes the process's reader at once. The one before gets
// ErrTakenOver, and the next line is this one's.
func (p *Process) TakeOver(ctx context.Context) (*Attachment, error) { return p.attach(ctx, true) }

func (p *Process) attach(ctx context.Context, now bool) (*Attachment, error) {
	a := &Attachment{p: p, mine: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancelCause(p.ctx)
	p.line.enter(a, now)
	var err error
	select {
	case <-p.out.finished:
		err = ErrEnded
	default:
		select {
		case <-a.mine:
			return a, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-p.out.finished:
			err = ErrEnded
		case <-a.ctx.Done():
			err = context.Cause(a.ctx)
		}
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, io.EOF) {
		select {
		case <-p.out.finished:
			err = errAllRead
		default:
		}
	}
	a.cancel(err)
	p.line.leave(a)
	return nil, err
}

var errAllRead = &sandbox.Error{
	Kind: sandbox.Conflict, Msg: "the managed process has ended, and all it wrote was read", Err: errors.Join(ErrEnded, io.EOF),
}

func (q *queue) enter(a *Attachment, now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.holder == nil:
		q.holder = a
		close(a.mine)
	case now:
		q.waiting = slices.Insert(q.waiting, 0, a)
		go q.holder.end(ErrTakenOver)
	default:
		q.waiting = append(q.waiting, a)
	}
}

// leave takes one out, wherever it is.
func (q *queue) leave(a *Attachment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, a); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if q.holder != a {
		return
	}
	q.holder = nil
	if len(q.waiting) > 0 {
		q.holder = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		close(q.holder.mine)
	}
}

func (q *queue) held() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.holder != nil
}

// Done is closed when the attachment ends otherwise than by the process's end:
// it was closed or taken over, or the daemon or the sandbox goes. Cause then
// says which.
func (a *Attachment) Done() <-chan struct{} { return a.ctx.Done() }

// Cause returns why the attachment has ended; nil while it has not.
func (a *Attachment) Cause() error { return context.Cause(a.ctx) }

// ReadLine returns the next line of the process's output without its newline;
// it is the caller's. It waits for it, and the process waits for a reader. A
// line counts as delivered when it is returned; see Unread.
//
// After the last line of a process that has ended it returns io.EOF; for one
// that the sandbox does not know any more, ErrGone. A
// *TooLongError and a *LostError, as causes, stand for what is left out, and the
// next call goes on behind it. Other errors are those of ctx and of Cause.
func (a *Attachment) ReadLine(ctx context.Context) ([]byte, error) {
	a.busy.Lock()
	defer a.busy.Unlock()
	if err := a.Cause(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(a.Cause()) })()
	return a.p.next(ctx)
}

// Unread puts the line back that ReadLine has returned last, for one who could
// not hand it on: the next reader gets it. It reports whether there was one.
func (a *Attachment) Unread() bool {
	a.busy.Lock()
	defer a.busy.Unlock()
	return a.Cause() == nil && a.p.unread()
}

// WriteLine writes a line and a newline to the process's input, and waits until
// it has room for it. Lines are written one after the other, each whole: where
// ctx ends, one that was begun is still written. It fails with ErrEnded once
// the process has ended or reads no more.
func (a *Attachment) WriteLine(ctx context.Context, line []byte) error {
	if err := a.Cause(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(a.Cause()) })()
	return a.p.writeLine(ctx, line)
}

// Close ends the attachment; the next one gets its turn. It returns nil.
func (a *Attachment) Close() error {
	a.end(ErrDetached)
	return nil
}

func (a *Attachment) end(why error) {
	a.cancel(why)
	a.busy.Lock() // whoever reads has left
	defer a.busy.Unlock()
	a.p.line.leave(a)
}

// Waiting returns how many wait for their turn to read.
func (p *Process) Waiting() int {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return len(p.line.waiting)
}

// Reading reports whether there is a reader who has not got to the end.
func (p *Process) Reading() bool {
	select {
	case <-p.out.finished:
		return false
	default:
		return p.line.held()
	}
}
