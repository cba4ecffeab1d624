package link

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// A Drop is one or many frames that were not let in, alike in everything but
// the time.
type Drop struct {
	Reason   Reason
	Protocol string         // tcp, udp, icmp; ip for other packets, frame for what is none
	From, To netip.AddrPort // as the frame had them, zero where it had none; From is without its port
	Count    int
}

// How drops are told: at once, and then at most this many kinds each interval.
// Further kinds count as one, without addresses.
const (
	dropInterval = time.Second
	dropKinds    = 16
)

type dropKind struct {
	reason   Reason
	protocol string
	from, to netip.AddrPort
}

// drops gathers what was dropped until it is told.
type drops struct {
	mu      sync.Mutex
	waiting map[dropKind]int // guarded by mu
	wake    chan struct{}    // holds one
}

func newDrops() *drops {
	return &drops{waiting: map[dropKind]int{}, wake: make(chan struct{}, 1)}
}

// add counts one.
func (d *drops) add(r Reason, protocol string, from, to netip.AddrPort) {
	// A sender's port is a new one each time: as part of the kind it would
	// make each its own.
	k := dropKind{r, protocol, netip.AddrPortFrom(from.Addr(), 0), to}
	d.mu.Lock()
	if _, known := d.waiting[k]; !known && len(d.waiting) >= dropKinds {
		k = dropKind{reason: r}
	}
	d.waiting[k]++
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run tells what was added, until ctx ends and all is told.
func (d *drops) run(ctx context.Context, tell func(Drop)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			d.flush(tell)
			return
		}
		d.flush(tell)
		timer.Reset(dropInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			d.flush(tell)
			return
		}
	}
}

func (d *drops) flush(tell func(Drop)) {
	d.mu.Lock()
	told := d.waiting
	d.waiting = map[dropKind]int{}
	d.mu.Unlock()
	for k, n := range told {
		tell(Drop{Reason: k.reason, Protocol: k.protocol, From: k.from, To: k.to, Count: n})
	}
}
