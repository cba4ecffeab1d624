package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// UDP carries the datagrams of one flow between the guest and what dial
// returns, a socket that is connected to the one peer, until nothing passed
// for the idle time, or the context, a limit or an error ends it: upstream's
// port unreachable is one. A datagram is passed on whole or not at all. Both
// connections are closed when it returns.
func UDP(ctx context.Context, guest net.Conn, dial func(context.Context) (net.Conn, error), o Options) Result {
	upstream, err := dial(ctx)
	if err != nil {
		guest.Close()
		return Result{End: EndRefused, Err: err}
	}
	r := newRelay(guest, upstream, o, defaultUDPIdle)
	if err := errors.Join(guest.SetDeadline(time.Time{}), upstream.SetDeadline(time.Time{})); err != nil {
		r.end(EndBroken, err)
		return r.result()
	}
	stop := r.start(ctx)
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() { r.carryPackets(r.received) })
	r.carryPackets(r.sent)
	wg.Wait()
	return r.result()
}

// carryPackets carries one way until the relay ends, and ends it with an
// error.
func (r *relay) carryPackets(d *direction) {
	src := newSource(d.from, true)
	defer src.close()
	for {
		p, err := src.read()
		if err != nil {
			r.end(EndBroken, err)
			return
		}
		if src.cut(p) {
			r.dropped.Add(1)
			continue
		}
		if !r.passPacket(d, p) {
			return
		}
	}
}

// passPacket writes one datagram, and reports whether the direction goes on.
func (r *relay) passPacket(d *direction, p []byte) bool {
	n := int64(len(p))
	if n > d.left || r.o.Account.Take(n) < n {
		r.end(EndLimit, nil)
		return false
	}
	r.last.Store(int64(time.Since(r.begun)))
	_, err := d.to.Write(p)
	switch {
	case errors.Is(err, unix.EMSGSIZE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN):
		r.dropped.Add(1) // as a wire would
		return true
	case err != nil:
		r.end(EndBroken, err)
		return false
	}
	d.left -= n
	d.count.Add(n)
	return true
}
