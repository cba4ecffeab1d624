package gitgate

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// errIdle is of an upstream that has stopped.
var errIdle = errors.New("it has neither said nor taken anything for two minutes")

const idleTime = 2 * time.Minute

// idleConn is a connection that ends where nothing goes either way for long. Its errors
// have no addresses.
type idleConn struct {
	net.Conn
	timer *time.Timer
	idle  atomic.Bool
}

func newIdle(conn net.Conn) *idleConn {
	c := &idleConn{Conn: conn}
	c.timer = time.AfterFunc(idleTime, func() {
		c.idle.Store(true)
		_ = conn.Close() // what is read or written fails
	})
	return c
}

// went notes that so much went, and says what an error means.
func (c *idleConn) went(n int, err error) (int, error) {
	if n > 0 {
		c.timer.Reset(idleTime)
	}
	if err != nil && c.idle.Load() {
		return n, errIdle
	}
	return n, unplaced(err)
}

// Read implements net.Conn.
func (c *idleConn) Read(p []byte) (int, error) { return c.went(c.Conn.Read(p)) }

// Write implements net.Conn.
func (c *idleConn) Write(p []byte) (int, error) { return c.went(c.Conn.Write(p)) }

// Close implements net.Conn.
func (c *idleConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
