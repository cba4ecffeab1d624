package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restAfter is how long a connection may hold a large buffer for nothing.
const restAfter = time.Second

// source reads from one connection, with as little memory as it can while
// there is nothing to read.
type source struct {
	conn    net.Conn
	raw     syscall.RawConn // of a kernel socket: waits without a buffer; else nil
	packets bool            // each read is a datagram, and none is an end
	pool    *buffers

	try func(fd uintptr) bool // readNow, of which n and err are the results
	n   int
	err error

	small []byte
	large *[largeSize]byte
	rest  *time.Timer // wakes a reader that waits with a large buffer

	mu   sync.Mutex
	last time.Time // of the last read
}

// newSource reads from c. Wrappers of sockets are not unwrapped: what they do
// to the bytes would be lost.
func newSource(c net.Conn, packets bool) *source {
	s := &source{conn: c, packets: packets, pool: &streamBuffers}
	if packets {
		s.pool = &packetBuffers
	}
	var sc syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	case *net.UDPConn:
		sc = c
	default:
		return s
	}
	if raw, err := sc.SyscallConn(); err == nil {
		s.raw, s.try = raw, s.readNow
	}
	return s
}

// read returns the next piece, which is valid until the next call. io.EOF
// comes alone.
func (s *source) read() ([]byte, error) {
	if s.raw != nil {
		return s.readRaw()
	}
	if s.packets && s.large == nil {
		s.large = s.pool.take() // a datagram has to fit at once
	}
	for {
		buf := s.buffer()
		n, err := s.conn.Read(buf)
		switch {
		case n > 0 || err == nil && s.packets:
			s.adapt(n)
			return buf[:n], nil
		case errors.Is(err, os.ErrDeadlineExceeded) && s.large != nil && !s.packets:
			if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
				return nil, err
			}
			s.release()
		case err != nil:
			return nil, err
		}
	}
}

// buffer returns what to read into.
func (s *source) buffer() []byte {
	if s.large != nil && s.packets {
		return s.large[:]
	}
	if s.large != nil {
		return s.large[:streamSize]
	}
	if s.small == nil {
		s.small = make([]byte, smallSize)
	}
	return s.small
}

// adapt takes a large buffer once a small one was filled. What was read stays
// in the small one, and is to be passed on first.
func (s *source) adapt(n int) {
	if s.packets || s.large == nil && n < smallSize {
		return
	}
	s.mu.Lock()
	s.last = time.Now()
	s.mu.Unlock()
	if s.large != nil {
		return
	}
	if s.large = s.pool.take(); s.large == nil {
		return
	}
	if s.rest == nil {
		s.rest = time.AfterFunc(restAfter, s.wake)
	} else {
		s.rest.Reset(restAfter)
	}
}

// wake makes a read that has waited for long return, so that it goes on to
// wait with a small buffer.
func (s *source) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := restAfter - time.Since(s.last); left > 0 {
		s.rest.Reset(left)
		return
	}
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // where it can't be, the buffer stays
}

// release gives the large buffer back.
func (s *source) release() {
	if s.large != nil {
		s.pool.give(s.large)
		s.large = nil
	}
}

// readRaw takes a buffer when there is something to put into it.
func (s *source) readRaw() ([]byte, error) {
	s.release() // of the piece before
	waitErr := s.raw.Read(s.try)
	switch {
	case waitErr != nil:
		return nil, waitErr
	case s.err != nil:
		return nil, os.NewSyscallError("read", s.err)
	case s.n == 0 && !s.packets:
		return nil, io.EOF
	}
	return s.buffer()[:s.n], nil
}

// readNow reads what has come, and reports whether there was something.
func (s *source) readNow(fd uintptr) bool {
	if s.large = s.pool.take(); s.large == nil && s.small == nil {
		s.small = make([]byte, smallSize)
	}
	for {
		if s.n, s.err = unix.Read(int(fd), s.buffer()); !errors.Is(s.err, unix.EINTR) {
			break
		}
	}
	if !errors.Is(s.err, unix.EAGAIN) {
		return true
	}
	s.release()
	return false
}

// cut reports whether a datagram filled its buffer, and has perhaps lost its
// end.
func (s *source) cut(p []byte) bool { return s.large == nil && len(p) == len(s.small) }

// close ends a source that nobody reads any more.
func (s *source) close() {
	s.release()
	if s.rest != nil {
		s.rest.Stop()
	}
}
