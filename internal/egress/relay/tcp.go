package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// TCP carries bytes between the guest's connection and the one upstream until
// both have ended, or the context or a limit ends it. Closing one way goes
// through to the other side and leaves the other way open, where the
// connection has a CloseWrite. Deadlines that were set before are taken away.
// Both connections are closed when it returns: in order after EndClosed, and
// otherwise with a reset where they, or what their NetConn returns, have a
// Reset or a SetLinger, so that nobody takes a part for the whole.
func TCP(ctx context.Context, guest, upstream net.Conn, o Options) Result {
	r := newRelay(guest, upstream, o, DefaultIdle)
	if err := errors.Join(guest.SetDeadline(time.Time{}), upstream.SetDeadline(time.Time{})); err != nil {
		r.end(EndBroken, err)
		return r.result()
	}
	stop := r.start(ctx)
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() { r.carry(r.received, nil) })
	r.carry(r.sent, o.Head)
	wg.Wait()
	r.end(EndClosed, nil)
	return r.result()
}

// relay is what both directions share.
type relay struct {
	guest, upstream net.Conn
	o               Options
	idle            time.Duration
	sent, received  *direction

	begun   time.Time
	last    atomic.Int64 // when something passed, in nanoseconds since begun
	dropped atomic.Int32

	mu     sync.Mutex
	ended  End // "" while it is open
	err    error
	timer  *time.Timer
	failed error // of a write, while the other direction goes on
}

// direction is one of two.
type direction struct {
	sent     bool // by the guest
	from, to net.Conn
	left     int64 // until the limit; used by its own goroutine alone
	count    *atomic.Int64
}

func newRelay(guest, upstream net.Conn, o Options, idle time.Duration) *relay {
	if o.Count == nil {
		o.Count = new(Count)
	}
	if o.Idle != 0 {
		idle = o.Idle
	}
	return &relay{
		guest: guest, upstream: upstream, o: o, idle: idle, begun: time.Now(),
		sent: &direction{
			sent: true, from: guest, to: upstream,
			left: limit(o.Limits.RequestBytes), count: &o.Count.Sent,
		},
		received: &direction{
			from: upstream, to: guest,
			left: limit(o.Limits.ResponseBytes), count: &o.Count.Received,
		},
	}
}

// start makes the context and the idle time end the relay, until stop.
func (r *relay) start(ctx context.Context) (stop func()) {
	unhook := context.AfterFunc(ctx, func() { r.end(EndCut, context.Cause(ctx)) })
	if r.idle < 0 {
		return func() { unhook() }
	}
	r.mu.Lock()
	r.timer = time.AfterFunc(r.idle, r.look)
	r.mu.Unlock()
	return func() { unhook(); r.timer.Stop() }
}

// look ends a relay that was still for too long, and looks again otherwise.
func (r *relay) look() {
	still := time.Since(r.begun) - time.Duration(r.last.Load())
	if still >= r.idle {
		r.end(EndIdle, nil)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == "" {
		r.timer.Reset(r.idle - still)
	}
}

// end ends the relay, once: what comes later is a consequence.
func (r *relay) end(e End, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != "" {
		return
	}
	if e == EndClosed && r.failed != nil {
		e, err = EndBroken, r.failed
	}
	r.ended, r.err = e, err
	for _, c := range []net.Conn{r.guest, r.upstream} {
		if e != EndClosed {
			Reset(c)
		}
		c.Close()
	}
}

// Resetter is a connection that can be ended at once, with a reset.
type Resetter interface{ Reset() }

// Reset has the other side of c, or of what it wraps, see a reset when c is
// closed: an end that comes in order would let what was cut look whole.
func Reset(c net.Conn) {
	for c != nil {
		switch l := c.(type) {
		case Resetter:
			l.Reset()
			return
		case interface{ SetLinger(sec int) error }:
			_ = l.SetLinger(0)
			return
		case interface{ NetConn() net.Conn }:
			c = l.NetConn()
		default:
			return
		}
	}
}

func (r *relay) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Result{
		Sent: r.o.Count.Sent.Load(), Received: r.o.Count.Received.Load(),
		Dropped: int(r.dropped.Load()), End: r.ended, Err: r.err,
	}
}

// carry carries one way to its end, the head first.
func (r *relay) carry(d *direction, head []byte) {
	if len(head) > 0 && !r.pass(d, head) {
		return
	}
	src := newSource(d.from, false)
	defer src.close()
	for {
		p, err := src.read()
		switch {
		case errors.Is(err, io.EOF):
			r.closeWrite(d.to)
			return
		case err != nil:
			r.end(EndBroken, err)
			return
		case !r.pass(d, p):
			return
		}
	}
}

// closeWrite tells c that no more comes.
func (r *relay) closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // where it is gone already, so much the better
		return
	}
	r.end(EndClosed, nil)
}

// pass writes a piece, or as much of it as limits allow, and reports whether
// the direction goes on.
func (r *relay) pass(d *direction, p []byte) bool {
	r.last.Store(int64(time.Since(r.begun)))
	if r.o.Watch != nil {
		if err := r.o.Watch(d.sent, p); err != nil {
			r.end(EndWatch, err)
			return false
		}
	}
	may := r.o.Account.Take(min(int64(len(p)), d.left))
	if may == 0 {
		r.end(EndLimit, nil)
		return false
	}
	n, err := d.to.Write(p[:may])
	d.left -= int64(n)
	d.count.Add(int64(n))
	switch {
	case err != nil:
		// Upstream may have answered before it closed: its direction goes on to
		// its own end, which is near, and then both have ended.
		r.mu.Lock()
		r.failed = err
		r.mu.Unlock()
		return false
	case may < int64(len(p)):
		r.end(EndLimit, nil)
		return false
	}
	r.last.Store(int64(time.Since(r.begun)))
	return true
}
