package link

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// flowBuffer is what a flow keeps in each direction, in bytes: one datagram of
// any size, or many small ones.
const flowBuffer = 64 << 10

// maxWaiting is how many datagrams wait for a flow's acceptance. Resolvers
// send two at once.
const maxWaiting = 4

// A udpDoor is where flows come in: datagrams from one address and port to
// one other.
type udpDoor struct {
	stack      *Stack
	maxPending int
	maxOpen    int

	mu      sync.Mutex
	pending map[stack.TransportEndpointID]*UDPRequest // guarded by mu
	open    int                                       // guarded by mu; pending ones included
}

func newUDPDoor(s *Stack, o Options) *udpDoor {
	return &udpDoor{
		stack: s, maxPending: o.MaxPending, maxOpen: o.MaxUDP,
		pending: map[stack.TransportEndpointID]*UDPRequest{},
	}
}

// datagram is called for each that belongs to no flow. It never returns false:
// the stack's own answer would know no bound.
func (d *udpDoor) datagram(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	r := &UDPRequest{
		From: addrPort(id.RemoteAddress, id.RemotePort),
		To:   addrPort(id.LocalAddress, id.LocalPort),
		door: d, id: id,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first := d.pending[id]; first != nil {
		if len(first.waiting) < maxWaiting {
			first.waiting = append(first.waiting, pkt.Clone())
		}
		return true
	}
	if len(d.pending) >= d.maxPending || d.open >= d.maxOpen || d.stack.ctx.Err() != nil {
		d.stack.drops.add(DropLimit, "udp", r.From, r.To)
		d.stack.refusePacket(pkt)
		return true
	}
	r.waiting = append(r.waiting, pkt.Clone())
	d.pending[id] = r
	d.open++
	go func() {
		defer r.Refuse()
		d.stack.handler.UDP(r)
	}()
	return true
}

func (d *udpDoor) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// close drops what waits.
func (d *udpDoor) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.pending {
		r.drop()
	}
}

// A UDPRequest is the first datagram of a flow. Others of the same flow wait
// with it, a few, for Accept or Refuse; when the handler returns without
// either, it is refused.
type UDPRequest struct {
	From netip.AddrPort // the guest
	To   netip.AddrPort // as the guest asked: any address and port

	door    *udpDoor
	id      stack.TransportEndpointID
	waiting []*stack.PacketBuffer // guarded by door.mu

	mu   sync.Mutex
	done bool // guarded by mu
}

// take returns what waits for r, after which datagrams belong to another
// request, or to the flow's own endpoint.
func (r *UDPRequest) take() []*stack.PacketBuffer {
	r.door.mu.Lock()
	defer r.door.mu.Unlock()
	w := r.waiting
	r.waiting = nil
	if r.door.pending[r.id] == r {
		delete(r.door.pending, r.id)
	}
	return w
}

// drop forgets what waits. The door's lock is held.
func (r *UDPRequest) drop() {
	for _, pkt := range r.waiting {
		pkt.DecRef()
	}
	r.waiting = nil
}

// Refuse answers with ICMP messages: the port is unreachable. After Accept it
// does nothing.
func (r *UDPRequest) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	r.done = true
	for _, pkt := range r.take() {
		r.door.stack.refusePacket(pkt)
		pkt.DecRef()
	}
	r.door.release()
}

// Accept returns the flow as a connection whose reads and writes are one
// datagram each; the first is there to be read. Who accepts it closes it: the
// guest can't.
func (r *UDPRequest) Accept() (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil, errDone
	}
	r.done = true
	door := r.door
	door.mu.Lock()
	var first *stack.PacketBuffer
	if len(r.waiting) > 0 {
		first, r.waiting = r.waiting[0], r.waiting[1:]
	}
	door.mu.Unlock()
	if first == nil { // the stack was closed
		door.release()
		return nil, net.ErrClosed
	}
	defer first.DecRef()
	var wq waiter.Queue
	ep, err := udp.NewForwarderRequest(door.stack.net, r.id, first).CreateEndpoint(&wq)
	if err != nil {
		for _, pkt := range r.take() {
			pkt.DecRef()
		}
		door.release()
		return nil, fmt.Errorf("accept flow from %s to %s: %s", r.From, r.To, err)
	}
	ep.SocketOptions().SetReceiveBufferSize(flowBuffer, true)
	ep.SocketOptions().SetSendBufferSize(flowBuffer, true)
	more, _ := ep.(interface {
		HandlePacket(stack.TransportEndpointID, *stack.PacketBuffer)
	})
	for _, pkt := range r.take() {
		if more != nil {
			more.HandlePacket(r.id, pkt)
		}
		pkt.DecRef()
	}
	return &flow{UDPConn: gonet.NewUDPConn(&wq, ep), door: door}, nil
}

// A flow is an accepted one.
type flow struct {
	*gonet.UDPConn
	door *udpDoor
	once sync.Once
}

// Close forgets the flow: the next datagram begins another.
func (f *flow) Close() error {
	err := net.ErrClosed
	f.once.Do(func() {
		err = f.UDPConn.Close()
		f.door.release()
	})
	return err
}

// refusePacket answers a UDP packet that the stack has taken apart.
func (s *Stack) refusePacket(pkt *stack.PacketBuffer) {
	whole := make([]byte, 0, maxMessage6)
	for _, b := range pkt.AsSlices() {
		whole = append(whole, b[:min(len(b), maxMessage6-len(whole))]...)
	}
	s.refuse(pkt.NetworkProtocolNumber, whole, portUnreachable)
}
