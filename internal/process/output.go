package process

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// MaxRead is how much is received at once, in bytes.
const MaxRead = 256 << 10

// TooLongError stands for a line that was left out.
type TooLongError struct{ Limit int }

// Error says how long a line may be.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the process wrote a line of more than %d bytes, which was left out", e.Limit)
}

// LostError stands for output that the sandbox has not kept: the agent was
// replaced, or too many commands have ended since. The rest of the line that
// it was in is left out as well.
type LostError struct{ Bytes int64 }

// Error says how much.
func (e *LostError) Error() string {
	return fmt.Sprintf("%d bytes of the process's output are lost", e.Bytes)
}

// leftOut is an error for who reads.
func leftOut(cause error) error {
	return &sandbox.Error{Kind: sandbox.Exhausted, Msg: cause.Error(), Hint: "read on: the next line is whole", Err: cause}
}

// output is what was received and not delivered. It belongs to whoever has
// the turn.
type output struct {
	turn    chan struct{}
	framer  framer
	spooled int      // of framer.buf
	back    []byte   // the line that was put back; nil: none
	last    []byte   // the line that was delivered last; nil: it can't be put back
	before  position // where it began
	final   bool     // all was received
	clear   bool     // the spool has a line that was delivered

	finished chan struct{} // closed when all was delivered
	once     sync.Once
}

func (o *output) init() {
	o.turn = make(chan struct{}, 1)
	o.framer.most = MaxLine
	o.finished = make(chan struct{})
}

// over says that there is no output at all.
func (o *output) over() {
	o.final = true
	o.done()
}

func (o *output) done() { o.once.Do(func() { close(o.finished) }) }

// resume takes up the lines where the ledger says.
func (p *Process) resume() {
	o := &p.out
	o.framer.off, o.framer.skip = p.last.out, p.last.skip
	b, err := p.book.spooled(p.last)
	if err != nil {
		p.log.Warn("read the beginning of a line", "err", err)
		p.last.spooled = 0
	}
	o.framer.add(b)
	o.spooled = len(b)
}

// next returns the next line. What it has done by an error of ctx, the next
// call goes on with.
func (p *Process) next(ctx context.Context) ([]byte, error) {
	o := &p.out
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if o.back != nil {
		line := o.back
		o.back = nil
		p.deliver(line)
		return line, nil
	}
	o.last = nil
	if o.clear {
		p.book.clear()
		o.clear = false
	}
	for {
		cut := o.framer.next
		if o.final {
			cut = o.framer.rest
		}
		switch line, what := cut(); what {
		case oneLine:
			p.deliver(line)
			return line, nil
		case tooLong:
			p.passed()
			return nil, leftOut(&TooLongError{MaxLine})
		case nothing:
		}
		if o.final {
			return nil, p.atEnd(ctx)
		}
		if err := p.receive(ctx); err != nil {
			return nil, err
		}
	}
}

// deliver notes that a line is handed out.
func (p *Process) deliver(line []byte) {
	o := &p.out
	p.mu.Lock()
	o.before = p.last
	p.mu.Unlock()
	o.last = line
	o.clear = o.clear || o.before.spooled > 0
	p.passed()
	p.touch.now(p.o.OnUse)
}

// passed notes how far the framer is.
func (p *Process) passed() {
	o := &p.out
	o.spooled = 0
	p.note(func(at *position) { at.out, at.skip, at.spooled = o.framer.off, o.framer.skip, 0 })
}

// unread puts the line that was delivered last back.
func (p *Process) unread() bool {
	o := &p.out
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	if o.last == nil {
		return false
	}
	o.back, o.last, o.clear = o.last, nil, false
	p.note(func(at *position) { at.out, at.skip, at.spooled = o.before.out, o.before.skip, o.before.spooled })
	return true
}

// receive asks the guest for more, and lets it forget what was delivered or
// spooled.
func (p *Process) receive(ctx context.Context) error {
	o := &p.out
	want := o.framer.end()
	got, err := p.read(ctx, agent.Read{Offset: want, Release: p.release(), Max: MaxRead, Wait: longPoll})
	if err != nil {
		if over(err) && ctx.Err() == nil {
			return p.atEnd(ctx)
		}
		return err
	}
	o.final = got.Ended
	if got.Offset > want {
		lost := got.Offset - o.framer.off
		o.framer.jump(got.Offset)
		o.framer.add(got.Data)
		p.passed()
		return leftOut(&LostError{lost})
	}
	o.framer.add(got.Data)
	if len(got.Data) == 0 && !got.Ended {
		pause(ctx, idle)
	}
	return nil
}

// release is what the guest need not keep. A line that may become longer than
// what it keeps is spooled here.
func (p *Process) release() int64 {
	o := &p.out
	if o.framer.skip {
		p.passed()
	}
	if len(o.framer.buf) < MaxRead {
		return o.framer.off + int64(o.spooled)
	}
	if p.book != nil {
		if err := p.book.spool(int64(o.spooled), o.framer.buf[o.spooled:]); err != nil {
			p.log.Warn("spool a line", "err", err) // it goes on in memory
		} else {
			p.note(func(at *position) { at.spooled = o.framer.end() })
		}
	}
	o.spooled = len(o.framer.buf)
	return o.framer.end()
}

// atEnd says that all was delivered, once the process has ended: one that has
// closed its output may still read. One that was lost has not ended in order.
func (p *Process) atEnd(ctx context.Context) error {
	if p.Running() {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
	p.out.done()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit.code == nil {
		return ErrGone
	}
	return io.EOF
}

// touch calls a function, at most once a second.
type touch struct {
	mu   sync.Mutex
	last time.Time
}

func (t *touch) now(f func()) {
	if f == nil {
		return
	}
	t.mu.Lock()
	now := time.Now()
	due := now.Sub(t.last) >= time.Second
	if due {
		t.last = now
	}
	t.mu.Unlock()
	if due {
		f()
	}
}
