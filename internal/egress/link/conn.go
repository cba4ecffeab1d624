package link

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// lingering is how long a closed connection may take to hand over what is
// still to be sent. Its place counts until then.
const lingering = 30 * time.Second

// A Conn is an open TCP connection of the guest's. Beside what net.Conn has,
// its directions can be closed apart, and Reset ends it at once.
//
// Its errors are those of a socket where there is one: syscall.ECONNRESET,
// ETIMEDOUT, EPIPE; net.ErrClosed after Close and Reset; os.ErrDeadlineExceeded.
type Conn struct {
	*gonet.TCPConn
	ep     tcpip.Endpoint
	wq     *waiter.Queue
	closed atomic.Bool

	once   sync.Once
	finish func() // gives its place back; called once
}

var _ net.Conn = (*Conn)(nil)

func newConn(d *tcpDoor, wq *waiter.Queue, ep tcpip.Endpoint) *Conn {
	size, taken := d.reserve()
	options := ep.SocketOptions()
	options.SetSendBufferSize(size, true)
	options.SetReceiveBufferSize(size, true)
	options.SetDelayOption(false)
	c := &Conn{TCPConn: gonet.NewTCPConn(wq, ep), ep: ep, wq: wq, finish: func() { d.release(taken) }}
	entry := waiter.NewFunctionEntry(waiter.EventHUp, func(waiter.EventMask) {
		// The endpoint is locked: nothing of it may be called.
		if c.closed.Load() {
			c.over()
		}
	})
	wq.EventRegister(&entry)
	return c
}

func (c *Conn) over() { c.once.Do(c.finish) }

// finished reports whether the endpoint needs no more than to be forgotten.
func (c *Conn) finished() bool {
	switch tcp.EndpointState(c.ep.State()) {
	case tcp.StateClose, tcp.StateError, tcp.StateTimeWait:
		return true
	}
	return false
}

// Close closes both directions. What was written is still sent, for half a
// minute; then the connection is reset.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.ep.Close()
	if c.finished() {
		c.over()
		return nil
	}
	time.AfterFunc(lingering, func() {
		if !c.finished() {
			c.ep.Abort()
		}
		c.over()
	})
	return nil
}

// Reset closes the connection at once: the guest sees it reset, and what was
// not sent is not.
func (c *Conn) Reset() {
	if c.closed.Swap(true) {
		return
	}
	c.ep.Abort()
	c.ep.Close()
	c.over()
}

// Read reads. The end of what the guest sends is io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	return n, c.explain(err)
}

// Write writes all of b, or says why not.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	return n, c.explain(err)
}

// Cork has what is written wait until it fills a packet, 200 ms have passed,
// or it is called again with false.
func (c *Conn) Cork(on bool) { c.ep.SocketOptions().SetCorkOption(on) }

// reasons are the stack's texts, and the errors that sockets have for them.
var reasons = map[string]error{
	(&tcpip.ErrConnectionReset{}).String():   syscall.ECONNRESET,
	(&tcpip.ErrConnectionAborted{}).String(): syscall.ECONNABORTED,
	(&tcpip.ErrTimeout{}).String():           syscall.ETIMEDOUT,
	(&tcpip.ErrClosedForSend{}).String():     syscall.EPIPE,
}

// explain gives the stack's errors their usual form.
func (c *Conn) explain(err error) error {
	if err == nil {
		return nil
	}
	if c.closed.Load() {
		return net.ErrClosed
	}
	var op *net.OpError
	if errors.Is(err, io.EOF) || !errors.As(err, &op) {
		return err
	}
	if op.Timeout() {
		op.Err = os.ErrDeadlineExceeded
		return op
	}
	if usual, ok := reasons[op.Err.Error()]; ok {
		op.Err = usual
	}
	return op
}
