package relay

import (
	"sync"
	"sync/atomic"
)

// Sizes of buffers. A connection that waits for bytes holds a small one, or
// none: a gate has a thousand of them open and little memory. A large one is
// taken for as long as much is passing.
const (
	smallSize  = 2 << 10
	largeSize  = 64 << 10 // also a whole datagram
	streamSize = 63 << 10 // of a large one that a stream uses: what one packet of the link carries
	maxStream  = 128      // large buffers of all streams together
	maxPacket  = 64       // and of all flows of datagrams
)

// buffers are large ones, a bounded number of them.
type buffers struct {
	max  int32
	used atomic.Int32
	pool sync.Pool
}

var (
	streamBuffers = buffers{max: maxStream}
	packetBuffers = buffers{max: maxPacket}
)

// take returns a large buffer, or nil where too many are in use.
func (b *buffers) take() *[largeSize]byte {
	if b.used.Add(1) > b.max {
		b.used.Add(-1)
		return nil
	}
	if p, ok := b.pool.Get().(*[largeSize]byte); ok {
		return p
	}
	return new([largeSize]byte)
}

// give takes back what take returned.
func (b *buffers) give(p *[largeSize]byte) {
	b.used.Add(-1)
	b.pool.Put(p)
}
