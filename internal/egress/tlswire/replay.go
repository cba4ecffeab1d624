package tlswire

import (
	"net"
)

// Replay returns c with head before what is yet to be read from it: bytes that
// were read to look at them. Closing for writing goes through where c can.
func Replay(c net.Conn, head []byte) net.Conn {
	if len(head) == 0 {
		return c
	}
	return &replayed{Conn: c, head: head}
}

type replayed struct {
	net.Conn
	head []byte // what is left of it; one goroutine reads
}

// Read returns what is left of the head, and then what the connection has.
func (r *replayed) Read(p []byte) (int, error) {
	if len(r.head) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.head)
	if r.head = r.head[n:]; len(r.head) == 0 {
		r.head = nil
	}
	return n, nil
}

// CloseWrite ends what is written, or everything where that can't be ended by
// itself.
func (r *replayed) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return r.Conn.Close()
}

// NetConn returns the connection itself, for those who want more of it. What
// is left of the head is not in it.
func (r *replayed) NetConn() net.Conn { return r.Conn }
