package proxy

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// strict stands between a guest's bytes and net/http's reading of them as
// HTTP/1. A head is passed on once it is whole and sound, a body as it comes;
// after what is unsound, nothing is. It follows where each message ends by
// itself: that and net/http's view are compared by a fuzz test.
type strict struct {
	net.Conn
	headTime time.Duration  // from a head's first byte to its last
	bodyTime time.Duration  // between two reads of a body
	report   func(*Refusal) // is told what was refused, once

	raw     atomic.Bool // whether the connection has become another protocol
	serving atomic.Bool // whether a handler runs

	// One goroutine reads.
	held    []byte // read, and not passed on
	ready   int    // of held: sound
	seen    int    // of the head that begins held[ready:]: searched for its end
	readErr error  // to be returned once held is empty
	refused *Refusal
	inBody  bool
	left    int64 // of the body, where it is not chunked
	chunks  *chunks
	renewed time.Time // when due was last set for a body
	told    bool

	mu    sync.Mutex // guards what follows
	outer time.Time  // the deadline that net/http set
	due   time.Time  // ours; zero where none is
}

// held grows in these steps, up to maxHead.
const headRoom = 4 << 10

// Read reads what is sound.
func (s *strict) Read(p []byte) (int, error) {
	if s.raw.Load() || weak.On(weak.NetFramingLax) {
		return s.readRaw(p)
	}
	for len(p) > 0 {
		if s.ready > 0 {
			return s.pass(p), nil
		}
		if s.refused != nil {
			return 0, s.refuse()
		}
		if s.readErr != nil {
			return 0, s.readErr
		}
		if len(s.held) > 0 {
			if s.ready = s.follow(s.held); s.ready > 0 || s.refused != nil {
				continue
			}
			if err := s.more(); err != nil {
				return 0, err
			}
			continue
		}
		if n, err := s.direct(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// pass copies sound bytes out of held.
func (s *strict) pass(p []byte) int {
	n := copy(p, s.held[:s.ready])
	s.held, s.ready = s.held[n:], s.ready-n
	if len(s.held) == 0 {
		s.held = nil
	}
	return n
}

// direct reads into p, and keeps what of it can't be passed on yet.
func (s *strict) direct(p []byte) (int, error) {
	s.renew()
	n, err := s.Conn.Read(p)
	k := s.follow(p[:n])
	if k < n {
		s.held = append(s.held, p[k:n]...)
		s.limitHead()
	}
	if k == 0 {
		return 0, err
	}
	s.readErr = err
	return k, nil
}

// more reads more of a head into held.
func (s *strict) more() error {
	s.limitHead()
	if cap(s.held)-len(s.held) < headRoom/4 {
		s.held = append(make([]byte, 0, len(s.held)*2+headRoom), s.held...)
	}
	n, err := s.Conn.Read(s.held[len(s.held):cap(s.held)])
	s.held = s.held[:len(s.held)+n]
	if n > 0 {
		s.readErr = err
		return nil
	}
	return err
}

// follow follows the framing over data, returns how much of it is sound, and
// notes what is not.
func (s *strict) follow(data []byte) (n int) {
	for n < len(data) && s.refused == nil {
		k := s.followOne(data[n:])
		if k == 0 {
			break
		}
		n += k
	}
	return n
}

// followOne follows it over a head, or over as much of a body as there is.
func (s *strict) followOne(data []byte) (n int) {
	switch {
	case !s.inBody:
		return s.followHead(data)
	case s.chunks != nil:
		var done bool
		if n, done, s.refused = s.chunks.scan(data); done {
			s.endBody()
		}
	default:
		n = int(min(s.left, int64(len(data))))
		if s.left -= int64(n); s.left == 0 {
			s.endBody()
		}
	}
	return n
}

// followHead returns the length of the head that data begins with, or 0 where
// it is not whole or not sound.
func (s *strict) followHead(data []byte) int {
	if !isToken[data[0]] {
		s.refused = badRequest("a request that does not begin with a method")
		return 0
	}
	from := max(0, s.seen-3)
	i := bytes.Index(data[from:], []byte("\r\n\r\n"))
	if i < 0 {
		if bareLF(data, s.seen) {
			s.refused = badRequest("a line that ends in LF without CR")
		} else if len(data) >= maxHead {
			s.refused = refuse(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "a head of more than 64 KiB")
		}
		s.seen = len(data)
		return 0
	}
	n := from + i + 4
	if n > maxHead {
		s.refused = refuse(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "a head of more than 64 KiB")
		return 0
	}
	f, bad := checkHead(data[:n])
	if bad != nil {
		s.refused = bad
		return 0
	}
	s.seen = 0
	s.setDue(time.Time{})
	s.inBody, s.left = f.chunked || f.length > 0, f.length
	if f.chunked {
		s.chunks = new(chunks)
	}
	return n
}

// bareLF looks from an offset on for a line feed without its carriage return.
func bareLF(data []byte, from int) bool {
	for from < len(data) {
		i := bytes.IndexByte(data[from:], '\n')
		if i < 0 {
			return false
		}
		if from += i; from == 0 || data[from-1] != '\r' {
			return true
		}
		from++
	}
	return false
}

func (s *strict) endBody() {
	s.inBody, s.chunks = false, nil
	s.renewed = time.Time{}
	s.setDue(time.Time{})
}

// refuse returns the refusal as an error, and reports it at first: while a
// handler runs, that is the handler's to do.
func (s *strict) refuse() error {
	if !s.told && !s.serving.Load() {
		s.told = true
		s.report(s.refused)
	}
	return s.refused
}

// Raw ends the checking: the connection has become another protocol. It is to
// be called while nobody reads.
func (s *strict) Raw() {
	s.ready, s.refused = 0, nil
	s.setDue(time.Time{})
	s.raw.Store(true)
}

func (s *strict) readRaw(p []byte) (int, error) {
	if len(s.held) > 0 {
		s.ready = len(s.held)
		return s.pass(p), nil
	}
	if err := s.readErr; err != nil {
		s.readErr = nil
		return 0, err
	}
	return s.Conn.Read(p)
}

// NetConn returns the connection itself.
func (s *strict) NetConn() net.Conn { return s.Conn }

// CloseWrite ends what is written, or everything where that can't be ended by
// itself.
func (s *strict) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Conn.Close()
}

// plainError is how net/http begins an answer of its own to what it could not
// read as a request. No handler's answer begins so: those have a Date.
var plainError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write passes on what net/http writes, but puts the gate's own words in place
// of net/http's answer to what is no request.
func (s *strict) Write(p []byte) (int, error) {
	if s.serving.Load() || s.raw.Load() || !bytes.HasPrefix(p, []byte("HTTP/1.1 ")) {
		return s.Conn.Write(p)
	}
	status, _, _ := bytes.Cut(p, crlf)
	if !bytes.HasPrefix(p[len(status):], plainError) {
		return s.Conn.Write(p)
	}
	r := s.refused
	if r == nil {
		r = badRequest("no HTTP request that the gate can read")
		s.report(r)
	}
	if _, err := s.Conn.Write(rawAnswer(r)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetReadDeadline keeps net/http's deadline, and sets it or ours, whichever is
// earlier.
func (s *strict) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outer = t
	return s.applyLocked()
}

// SetDeadline does so, and bounds writes too.
func (s *strict) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

func (s *strict) setDue(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.IsZero() && t.IsZero() {
		return
	}
	s.due = t
	_ = s.applyLocked() // a connection that takes none fails when it is read
}

func (s *strict) applyLocked() error {
	d := s.outer
	if !s.due.IsZero() && (d.IsZero() || s.due.Before(d)) {
		d = s.due
	}
	return s.Conn.SetReadDeadline(d)
}

// limitHead bounds the time of a head that has begun.
func (s *strict) limitHead() {
	if s.inBody || s.headTime <= 0 {
		return
	}
	s.mu.Lock()
	begun := !s.due.IsZero()
	s.mu.Unlock()
	if !begun {
		s.setDue(time.Now().Add(s.headTime))
	}
}

// renew gives a body more time, at most once a second: deadlines cost more than
// small reads.
func (s *strict) renew() {
	if !s.inBody || s.bodyTime <= 0 {
		return
	}
	now := time.Now()
	if now.Sub(s.renewed) > min(time.Second, s.bodyTime/4) {
		s.renewed = now
		s.setDue(now.Add(s.bodyTime))
	}
}
