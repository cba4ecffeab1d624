// Package asked is the resolver of a sandbox without a network: it says of every
// name that there is no such one, and remembers which were asked for.
//
// It listens on the guest's loopback and asks nobody, on the host or inside. A
// look-up that finds no server is taken for a passing trouble, and clients make it
// again for minutes; a name that does not exist is an answer.
//
// What asks is hostile. A question is read from one datagram of bounded size and one
// that is none gets no answer; of names, Max are remembered, bounded and escaped, and
// those beyond are counted.
package asked

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// Max is how many names are remembered: those that were asked for first.
const Max = 128

// Address is where it listens.
var Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)

// Resolver answers until Close.
type Resolver struct {
	conn net.PacketConn
	done chan struct{}
	now  func() time.Time

	mu     sync.Mutex
	names  []api.Asked
	others int // questions for names beyond those
}

// Listen begins to answer at Address.
func Listen() (*Resolver, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(Address))
	if err != nil {
		return nil, err
	}
	return Serve(conn, time.Now), nil
}

// Serve answers what comes over conn, which it owns.
func Serve(conn net.PacketConn, now func() time.Time) *Resolver {
	r := &Resolver{conn: conn, done: make(chan struct{}), now: now}
	go r.run()
	return r
}

// Close ends it. What was asked is still told.
func (r *Resolver) Close() error {
	err := r.conn.Close()
	<-r.done
	return err
}

// Names tells what was asked for, in the order of the first time.
func (r *Resolver) Names() api.AskedAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.AskedAnswer{Names: slices.Clone(r.names), Others: r.others}
}

func (r *Resolver) run() {
	defer close(r.done)
	buf := make([]byte, maxMessage)
	for {
		n, from, err := r.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // as of an answer that found nobody
		}
		q, ok := parse(buf[:n])
		if !ok {
			continue
		}
		r.note(q)
		_, _ = r.conn.WriteTo(q.answer, from) // who does not listen has no use for it
	}
}

// note remembers a question. The sandbox itself is nobody's to allow.
func (r *Resolver) note(q question) {
	if q.local() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.names, func(a api.Asked) bool { return a.Name == q.name && a.Type == q.kind })
	switch {
	case i >= 0:
		r.names[i].Count++
		r.names[i].Last = r.now()
	case len(r.names) < Max:
		r.names = append(r.names, api.Asked{Name: q.name, Type: q.kind, Count: 1, Last: r.now()})
	default:
		r.others++
	}
}
