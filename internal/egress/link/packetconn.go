package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A packetConn is one port of both of the gate's addresses. A reply goes out
// from that one which is of its kind: the guest has one address of each kind,
// and asked there.
type packetConn struct {
	port      uint16
	endpoints []tcpip.Endpoint // of IPv4, of IPv6
	queue     waiter.Queue
	entry     waiter.Entry
	readable  chan struct{} // of entry; wakes one reader

	mu       sync.Mutex
	closed   chan struct{}
	ended    bool          // guarded by mu
	deadline chan struct{} // guarded by mu; closed when the time is over
	timer    *time.Timer   // guarded by mu
}

// ListenUDP takes the datagrams to a port of the gate's own addresses, of both
// families. Replies come from the address that was asked.
func (s *Stack) ListenUDP(port uint16) (net.PacketConn, error) {
	c := &packetConn{port: port, closed: make(chan struct{}), deadline: make(chan struct{})}
	c.entry, c.readable = waiter.NewChannelEntry(waiter.ReadableEvents)
	c.queue.EventRegister(&c.entry)
	for _, a := range []netip.Addr{Gate4, Gate6} {
		ep, err := s.net.NewEndpoint(udp.ProtocolNumber, protocolOf(a), &c.queue)
		if err == nil {
			c.endpoints = append(c.endpoints, ep)
			ep.SocketOptions().SetReceiveBufferSize(4*flowBuffer, true)
			if a.Is6() {
				ep.SocketOptions().SetV6Only(true)
			}
			err = ep.Bind(tcpip.FullAddress{NIC: nic, Addr: address(a), Port: port})
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("listen on UDP port %d of the gate: %s", port, err)
		}
	}
	return c, nil
}

// ReadFrom reads one datagram. What does not fit b is lost.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		c.mu.Lock()
		deadline, ended := c.deadline, c.ended
		c.mu.Unlock()
		if ended {
			return 0, nil, c.fail("read", net.ErrClosed)
		}
		select {
		case <-deadline:
			return 0, nil, c.fail("read", os.ErrDeadlineExceeded)
		default:
		}
		for _, ep := range c.endpoints {
			w := tcpip.SliceWriter(b)
			res, err := ep.Read(&w, tcpip.ReadOptions{NeedRemoteAddr: true})
			if err == nil {
				c.wakeNext()
				return res.Count, net.UDPAddrFromAddrPort(addrPort(res.RemoteAddr.Addr, res.RemoteAddr.Port)), nil
			}
			if _, empty := err.(*tcpip.ErrWouldBlock); !empty {
				return 0, nil, c.fail("read", errors.New(err.String()))
			}
		}
		select {
		case <-c.readable:
		case <-deadline:
		case <-c.closed:
		}
	}
}

// wakeNext has another reader look: one wake may stand for many datagrams.
func (c *packetConn) wakeNext() {
	select {
	case c.readable <- struct{}{}:
	default:
	}
}

// WriteTo sends one datagram to the guest.
func (c *packetConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, c.fail("write", fmt.Errorf("an address of kind %T: it has to be of UDP", addr))
	}
	at := to.AddrPort().Addr().Unmap()
	ep := c.endpoints[0]
	if at.Is6() {
		ep = c.endpoints[1]
	}
	n, err := ep.Write(bytes.NewReader(b), tcpip.WriteOptions{
		To: &tcpip.FullAddress{NIC: nic, Addr: address(at), Port: uint16(to.Port)},
	})
	if err != nil {
		return int(n), c.fail("write", errors.New(err.String()))
	}
	return int(n), nil
}

// Close ends waiting reads.
func (c *packetConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	c.ended = true
	close(c.closed)
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, ep := range c.endpoints {
		ep.Close()
	}
	c.queue.EventUnregister(&c.entry)
	return nil
}

// LocalAddr is the IPv4 one of the two.
func (c *packetConn) LocalAddr() net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(Gate4, c.port))
}

// SetDeadline is SetReadDeadline: writes don't wait.
func (c *packetConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes don't wait.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline ends reads at t, those that wait already too. The zero time
// is never.
func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	if c.timer != nil && !c.timer.Stop() || isClosed(c.deadline) {
		c.deadline = make(chan struct{})
	}
	c.timer = nil
	if t.IsZero() {
		return nil
	}
	over := c.deadline
	if d := time.Until(t); d > 0 {
		c.timer = time.AfterFunc(d, func() { close(over) })
	} else {
		close(over)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (c *packetConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Addr: c.LocalAddr(), Err: err}
}
