package link

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// A listener takes connections to one of the gate's ports. They come through
// the same door as others, and count like them.
type listener struct {
	door  *tcpDoor
	port  uint16
	conns chan *Conn
	done  chan struct{}
	once  sync.Once
}

// ListenTCP takes the connections to a port of the gate's own addresses, of
// both families. A port has one listener at most. Its connections are *Conn.
func (s *Stack) ListenTCP(port uint16) (net.Listener, error) {
	l := &listener{door: s.tcp, port: port, conns: make(chan *Conn), done: make(chan struct{})}
	s.tcp.mu.Lock()
	defer s.tcp.mu.Unlock()
	if s.tcp.listeners[port] != nil || port == 0 {
		return nil, fmt.Errorf("listen on port %d of the gate: %w", port, unix.EADDRINUSE)
	}
	s.tcp.listeners[port] = l
	return l, nil
}

// take accepts a connection, and hands it on when it is asked for.
func (l *listener) take(r *TCPRequest) {
	c, err := r.accept()
	if err != nil {
		return // the guest went away
	}
	select {
	case l.conns <- c:
	case <-l.done:
		c.Reset()
	}
}

// Accept returns the next connection. After Close the error is net.ErrClosed.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close refuses further connections, and those that nobody has taken.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.door.mu.Lock()
		if l.door.listeners[l.port] == l {
			delete(l.door.listeners, l.port)
		}
		l.door.mu.Unlock()
		close(l.done)
	})
	return nil
}

// Addr is the IPv4 one of the two.
func (l *listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(Gate4, l.port))
}
