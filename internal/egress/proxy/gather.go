package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// TLS reads and writes its records one by one, and a packet on the link costs
// about the same whatever is in it. So where much flows, several records are
// read, and go out as one packet.

// Of records of TLS.
const (
	recordSize = 16 << 10 // what one carries at most
	maxRecord  = recordSize + 512
)

// Sizes of buffers. What streams a little now and then waits with a small one:
// a gate may have a thousand of them open.
const (
	smallBuffer = 2 << 10
	// largeBuffer is somewhat less than what the link carries in one packet,
	// with what TLS adds to it.
	largeBuffer = 62 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// buffer is what a body is copied through. Its zero value is one.
type buffer struct {
	small []byte
	large *[largeBuffer]byte
}

// room is what to read into next.
func (b *buffer) room() []byte {
	if b.large != nil {
		return b.large[:]
	}
	if b.small == nil {
		b.small = make([]byte, smallBuffer)
	}
	return b.small
}

// used tells how much was read. It may be called once that was passed on.
func (b *buffer) used(n int) {
	switch {
	case b.large == nil && n == smallBuffer:
		b.large = largeBuffers.Get().(*[largeBuffer]byte)
	case n < smallBuffer:
		b.release()
	}
}

// release gives a large one back.
func (b *buffer) release() {
	if b.large != nil {
		largeBuffers.Put(b.large)
		b.large = nil
	}
}

// ahead knows whether an upstream's connection has so much more that another
// read does not wait. A nil one never does.
type ahead struct {
	raw   syscall.RawConn
	flows bool // the last read was of a record that was full, or more
	whole int  // records that are there whole, at least, and may be read
}

// aheadOf is for an answer that nobody else reads the connection of: one of
// HTTP/1, in TLS.
func aheadOf(resp *http.Response, conn *net.Conn) *ahead {
	if conn == nil || resp.ProtoMajor != 1 {
		return nil
	}
	encrypted, ok := (*conn).(*tls.Conn)
	if !ok {
		return nil
	}
	socket, ok := encrypted.NetConn().(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return &ahead{raw: raw}
}

// read reads from a body at least once, and on while p has room and as much
// is there that it need not wait: what came is never kept back.
func (a *ahead) read(body io.Reader, p []byte) (n int, err error) {
	n, err = body.Read(p)
	if a == nil {
		return n, err
	}
	a.flows = a.flows || n >= recordSize
	if !a.flows {
		return n, err
	}
	for err == nil && n < len(p) && a.more() {
		var k int
		k, err = body.Read(p[n:])
		n += k
	}
	a.flows = n >= recordSize
	return n, err
}

// peeked is where nothing is ever written to: the kernel counts and does not
// copy.
var peeked [4 * maxRecord]byte

// more reports whether a record is there whole, and takes it for read.
func (a *ahead) more() bool {
	if a.whole == 0 {
		err := a.raw.Control(func(fd uintptr) {
			n, _, err := unix.Recvfrom(int(fd), peeked[:], unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if err == nil {
				a.whole = n / maxRecord
			}
		})
		if err != nil || a.whole == 0 {
			return false
		}
	}
	a.whole--
	return true
}

// together has what write writes, n bytes, go out in as few packets as it
// takes. A connection of HTTP/2 has other streams, which are not to wait.
func (cn *conn) together(n int, write func() error) error {
	c, ok := cn.carrier.Conn.(interface{ Cork(on bool) })
	if !ok || cn.http2 || n <= recordSize {
		return write()
	}
	c.Cork(true)
	defer c.Cork(false)
	return write()
}
