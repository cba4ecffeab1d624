package daemon

import (
	"net"
	"sync"
)

// bounded accepts no more connections at once than it has slots: more wait until
// others end. It is netutil.LimitListener, but for what a connection lets its users
// ask the kernel: see boundedConn.NetConn.
type bounded struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	end   sync.Once
}

func newBounded(l net.Listener, slots int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, slots), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: c, release: sync.OnceFunc(func() { <-b.slots })}, nil
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.end.Do(func() { close(b.done) })
	return b.Listener.Close()
}

// boundedConn gives its slot back when it is closed.
type boundedConn struct {
	net.Conn
	release func()
}

// NetConn returns the connection itself, of which the kernel knows whose it is.
func (c *boundedConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
