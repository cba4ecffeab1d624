package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// What a connection may keep in each of its two buffers, in bytes: what each
// is sure of, and what one has as long as there are few.
const (
	minBuffer = 16 << 10
	maxBuffer = 4 << 20
)

// handshakeTimeout is how long the guest may take to answer ours: it is on
// the same machine.
const handshakeTimeout = 5 * time.Second

// A tcpDoor is where connections come in: it counts and bounds them.
type tcpDoor struct {
	stack      *Stack
	forwarder  *tcp.Forwarder
	maxPending int
	maxOpen    int

	mu        sync.Mutex
	pending   map[stack.TransportEndpointID]struct{} // guarded by mu
	open      int                                    // guarded by mu; pending ones included
	spare     int64                                  // guarded by mu; bytes for buffers
	listeners map[uint16]*listener                   // guarded by mu
}

func newTCPDoor(s *Stack, o Options) *tcpDoor {
	d := &tcpDoor{
		stack: s, maxPending: o.MaxPending, maxOpen: o.MaxTCP, spare: o.Buffers,
		pending:   map[stack.TransportEndpointID]struct{}{},
		listeners: map[uint16]*listener{},
	}
	// Its own bound is never reached: beyond it, it would leave the guest
	// without an answer.
	d.forwarder = tcp.NewForwarder(s.net, minBuffer, o.MaxPending+1, d.request)
	return d
}

// segment is called for each segment that belongs to no connection. False has
// the stack answer with a reset.
func (d *tcpDoor) segment(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	if !flags.Contains(header.TCPFlagSyn) || flags.Intersects(header.TCPFlagAck|header.TCPFlagFin|header.TCPFlagRst) {
		return false
	}
	d.mu.Lock()
	if _, again := d.pending[id]; again {
		d.mu.Unlock()
		return true
	}
	if len(d.pending) >= d.maxPending || d.open >= d.maxOpen || d.stack.ctx.Err() != nil {
		d.mu.Unlock()
		d.stack.drops.add(DropLimit, "tcp", addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort))
		return false
	}
	d.pending[id] = struct{}{}
	d.open++
	d.mu.Unlock()
	if !d.forwarder.HandlePacket(id, pkt) {
		d.settle(id)
		d.release(0)
		return false
	}
	return true
}

// request is called in a goroutine of its own.
func (d *tcpDoor) request(fr *tcp.ForwarderRequest) {
	id := fr.ID()
	r := &TCPRequest{
		From: addrPort(id.RemoteAddress, id.RemotePort),
		To:   addrPort(id.LocalAddress, id.LocalPort),
		door: d, request: fr, id: id,
	}
	defer r.Refuse()
	if IsGate(r.To.Addr()) {
		d.mu.Lock()
		l := d.listeners[r.To.Port()]
		d.mu.Unlock()
		if l != nil {
			l.take(r)
			return
		}
	}
	d.stack.handler.TCP(r)
}

// settle ends the pending state of a connection.
func (d *tcpDoor) settle(id stack.TransportEndpointID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, id)
}

// reserve returns how large each of a connection's two buffers may be.
func (d *tcpDoor) reserve() (size, taken int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Each takes a part of what the ones before it left, so that there is
	// something for any number.
	size = min(minBuffer+d.spare/64, maxBuffer)
	taken = 2 * (size - minBuffer)
	d.spare -= taken
	return size, taken
}

// release gives a connection's place back, and what it took for buffers.
func (d *tcpDoor) release(taken int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	d.spare += taken
}

func (d *tcpDoor) close() {
	d.mu.Lock()
	ls := d.listeners
	d.listeners = map[uint16]*listener{}
	d.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
}

// A TCPRequest is a connection that the guest asks for. Its handshake waits
// for Accept or Refuse; when the handler returns without either, it is
// refused.
type TCPRequest struct {
	From netip.AddrPort // the guest
	To   netip.AddrPort // as the guest asked: any address and port

	door    *tcpDoor
	id      stack.TransportEndpointID
	request *tcp.ForwarderRequest

	mu   sync.Mutex
	done bool // guarded by mu
}

var errDone = errors.New("network request: it was accepted or refused before")

// Refuse answers with a reset, at once. After Accept it does nothing.
func (r *TCPRequest) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	r.done = true
	r.request.Complete(true)
	r.door.settle(r.id)
	r.door.release(0)
}

// Accept completes the handshake. It fails where the guest does not: it has
// given up, or is silent for some seconds. The connection is a *Conn.
func (r *TCPRequest) Accept() (net.Conn, error) {
	c, err := r.accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (r *TCPRequest) accept() (*Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil, errDone
	}
	r.done = true
	stack := r.door.stack.net
	impatient := time.AfterFunc(handshakeTimeout, func() {
		ep := stack.FindTransportEndpoint(protocolOf(r.To.Addr()), tcp.ProtocolNumber, r.id, nic)
		if ep != nil {
			ep.Abort()
		}
	})
	var wq waiter.Queue
	ep, err := r.request.CreateEndpoint(&wq)
	impatient.Stop()
	r.request.Complete(false)
	r.door.settle(r.id)
	if err != nil {
		r.door.release(0)
		return nil, fmt.Errorf("accept connection from %s to %s: %s", r.From, r.To, err)
	}
	return newConn(r.door, &wq, ep), nil
}
