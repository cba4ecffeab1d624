package link

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// A Handler decides what becomes of what the sandbox sends to others than the
// gate's listeners. Its methods are called concurrently, each call of TCP and
// UDP in a goroutine of its own, as many at once as Options allow; Dropped is
// called by one goroutine, at a bounded rate.
type Handler interface {
	TCP(*TCPRequest)
	UDP(*UDPRequest)
	Dropped(Drop)
}

// Options of a stack. Zeros stand for the defaults.
type Options struct {
	// Handler is required.
	Handler Handler
	// MaxPending bounds the connections that are neither open nor refused yet,
	// and apart from them the flows. Default 512.
	MaxPending int
	// MaxTCP bounds the connections, pending ones included. Default 4096.
	MaxTCP int
	// MaxUDP bounds the flows, pending ones included. Default 1024.
	MaxUDP int
	// Buffers bounds, in bytes, what connections may have in buffers beyond
	// the 32 KiB that each is sure of. Default 64 MiB.
	Buffers int64
}

func (o Options) defaults() (Options, error) {
	if o.Handler == nil {
		return o, errors.New("network stack: no handler")
	}
	for _, n := range []*int{&o.MaxPending, &o.MaxTCP, &o.MaxUDP} {
		if *n < 0 {
			return o, fmt.Errorf("network stack: a bound of %d: it can't be negative", *n)
		}
	}
	if o.Buffers < 0 {
		return o, fmt.Errorf("network stack: buffers of %d bytes: they can't be negative", o.Buffers)
	}
	setDefault(&o.MaxPending, 512)
	setDefault(&o.MaxTCP, 4096)
	setDefault(&o.MaxUDP, 1024)
	setDefault(&o.Buffers, 64<<20)
	if weak.On(weak.NetBoundsOff) {
		o.MaxPending, o.MaxTCP, o.MaxUDP = math.MaxInt32, math.MaxInt32, math.MaxInt32
	}
	return o, nil
}

func setDefault[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// A Stack is the gate's end of a link. Make it with NewStack, listen on it,
// then Start it.
type Stack struct {
	net     *stack.Stack
	link    *endpoint
	handler Handler
	tcp     *tcpDoor
	udp     *udpDoor
	drops   *drops
	refusal *rate.Limiter // of ICMP messages

	cancel context.CancelFunc
	ctx    context.Context // ends with the stack; its goroutines' alone
	wg     sync.WaitGroup
	start  sync.Once
	ended  chan struct{} // closed once the TAP is no longer read
	err    error         // why; set before ended is closed
}

const nic = tcpip.NICID(1)

// NewStack runs a TCP/IP stack on a TAP of Create or Attach. It takes tap
// over, also where it fails. Nothing is read before Start.
func NewStack(tap *os.File, opts Options) (*Stack, error) {
	return newStack(tap, MTU, opts)
}

func newStack(tap *os.File, mtu uint32, opts Options) (*Stack, error) {
	opts, err := opts.defaults()
	if err != nil {
		tap.Close()
		return nil, err
	}
	s := &Stack{
		handler: opts.Handler,
		drops:   newDrops(),
		refusal: rate.NewLimiter(1000, 200),
		ended:   make(chan struct{}),
	}
	if s.link, err = newEndpoint(tap, mtu, s.dropped); err != nil {
		return nil, err
	}
	s.net = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := s.setUp(); err != nil {
		s.net.Destroy()
		return nil, errors.Join(err, s.link.close())
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tcp, s.udp = newTCPDoor(s, opts), newUDPDoor(s, opts)
	s.net.SetTransportProtocolHandler(tcp.ProtocolNumber, s.tcp.segment)
	s.net.SetTransportProtocolHandler(udp.ProtocolNumber, s.udp.datagram)
	return s, nil
}

// setUp has the stack take whatever comes, for whichever address, and answer
// in that address's name.
func (s *Stack) setUp() error {
	if err := s.net.CreateNIC(nic, s.link); err != nil {
		return fmt.Errorf("set up network stack: interface: %s", err)
	}
	for _, a := range []netip.Addr{Gate4, Gate6} {
		addr := tcpip.ProtocolAddress{Protocol: protocolOf(a), AddressWithPrefix: address(a).WithPrefix()}
		if err := s.net.AddProtocolAddress(nic, addr, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("set up network stack: %s: %s", a, err)
		}
	}
	if err := s.net.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("set up network stack: take all packets: %s", err)
	}
	if err := s.net.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("set up network stack: answer for all: %s", err)
	}
	s.net.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	return setTCPOptions(s.net)
}

func setTCPOptions(n *stack.Stack) error {
	sack, recovery := tcpip.TCPSACKEnabled(true), tcpip.TCPRACKLossDetection
	congestion := tcpip.CongestionControlOption("cubic")
	// Nothing on this link comes late or out of order. A guest that uses a
	// port again is not to wait for what is left of its last connection.
	timeWait, linger := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond), tcpip.TCPLingerTimeoutOption(10*time.Second)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: minBuffer, Default: minBuffer, Max: maxBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: minBuffer, Default: minBuffer, Max: maxBuffer}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &recovery, &congestion, &timeWait, &linger, &receive, &send} {
		if err := n.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("set up network stack: %T: %s", o, err)
		}
	}
	return nil
}

// Start begins to read the TAP. What came before waits in the interface's
// queue. It is called once; later calls do nothing.
func (s *Stack) Start() {
	s.start.Do(func() {
		s.wg.Go(func() { s.drops.run(s.ctx, s.handler.Dropped) })
		s.wg.Go(func() {
			s.err = s.link.run()
			close(s.ended)
		})
	})
}

// Wait waits until the TAP is no longer read. The error is nil after Close,
// and says what failed otherwise.
func (s *Stack) Wait() error {
	<-s.ended
	if s.ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read network link: %w", s.err)
}

// Close ends everything: the TAP is closed, and every connection and listener
// with it. Connections of Accept are to be closed by their owners still. It
// waits for all goroutines of the stack but the handler's own.
func (s *Stack) Close() error {
	s.cancel()
	s.start.Do(func() { close(s.ended) })
	err := s.link.close()
	s.wg.Wait()
	s.tcp.close()
	s.udp.close()
	s.net.Destroy()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// dropped makes a record of a frame that the filter stopped, and says no where
// a guest that means well would wait.
func (s *Stack) dropped(f *frame) {
	if f.reason == chatter {
		return
	}
	switch {
	case f.reason == DropEcho:
		s.refuse(f.number, f.packet, prohibited)
	case f.reason == DropDestination && f.protocol == "tcp":
		s.refuse(f.number, f.packet, nowhere)
	}
	s.drops.add(f.reason, f.protocol, f.from, f.to)
}

// refuse answers a packet with an ICMP message, at a bounded rate.
func (s *Stack) refuse(number tcpip.NetworkProtocolNumber, packet []byte, a answer) {
	if s.refusal.Allow() {
		s.link.inject(number, message(number, packet, a))
	}
}

func address(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// addrPort keeps an address as the guest wrote it: one that stands for an IPv4
// address within IPv6 is not turned into that.
func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}
