package offer

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Bounds of a desk.
const (
	MaxCalls    = 256 // at once, of all services of a sandbox
	maxGreeting = 16  // connections at once that have not said what they offer
	// What a service may have the gate hold of the answer of one call, and so of
	// all of them: no call that stands still keeps another from going on.
	callBuffer  = 64 << 10
	maxHead     = 256 << 10 // bytes of an answer's head
	pingAfter   = 15 * time.Second
	pingLimit   = 10 * time.Second
	writeLimit  = 30 * time.Second // of a service that reads nothing at all
	acceptPause = 100 * time.Millisecond
)

// Errors of Call.
var (
	ErrAway = errors.New("no program serves it at the moment")
	ErrMany = errors.New("more calls are under way than the gate takes")
)

// Desk is a gate's end: it takes offers, and leads calls to those that stand.
// Its methods may be called by several goroutines.
type Desk struct {
	mu       sync.Mutex // guards what follows
	names    []string   // that may be offered
	standing map[string]*standing
	greeting int
	calls    int
}

// standing is an offer that was taken.
type standing struct {
	conn *http.ClientConn // nil: it is about to be
}

// takes reports whether a further call can be made: the other end has not said
// that it leaves, nor is it as busy as it lets itself be.
func (s *standing) takes() bool {
	return s.conn != nil && s.conn.Err() == nil && s.conn.Available() > 0
}

// NewDesk returns a desk that takes no offer yet.
func NewDesk() *Desk { return &Desk{standing: map[string]*standing{}} }

// Set says which services may be offered. Those that stand and are not among
// them are ended.
func (d *Desk) Set(names []string) {
	d.mu.Lock()
	d.names = slices.Clone(names)
	var gone []*http.ClientConn
	for name, s := range d.standing {
		if !slices.Contains(names, name) {
			gone = append(gone, s.conn)
			delete(d.standing, name)
		}
	}
	d.mu.Unlock()
	for _, c := range gone {
		if c != nil {
			_ = c.Close()
		}
	}
}

// Standing lists the services that somebody offers, in order.
func (d *Desk) Standing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := []string{}
	for name, s := range d.standing {
		if s.takes() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Call makes room for a call of a service. What it returns takes the call's
// request; done ends the call.
func (d *Desk) Call(name string) (to http.RoundTripper, done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.standing[name]
	switch {
	case s == nil || s.conn == nil || s.conn.Err() != nil:
		return nil, nil, ErrAway
	case d.calls >= MaxCalls:
		return nil, nil, ErrMany
	case !s.takes():
		return nil, nil, ErrAway
	}
	d.calls++
	return s.conn, sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls--
	}), nil
}

// Serve takes offers from a listener until that fails or ctx ends.
func (d *Desk) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			d.meet(c)
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			select { // until others end
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		default:
			return err
		}
	}
}

// meet listens to what a connection offers, if there are not too many already.
func (d *Desk) meet(c net.Conn) {
	d.mu.Lock()
	full := d.greeting >= maxGreeting
	if !full {
		d.greeting++
	}
	d.mu.Unlock()
	_ = c.SetDeadline(time.Now().Add(greetLimit))
	if full {
		_ = answer(c, &RefusedError{codeFull, "too many connections to the gate have not said what they offer"})
		_ = c.Close()
		return
	}
	go func() {
		if err := d.take(c); err != nil {
			_ = c.Close()
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.greeting--
	}()
}

func answer(c net.Conn, e *RefusedError) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = c.Write(append(line, '\n'))
	return err
}

// take reads an offer and has it stand, or refuses it.
func (d *Desk) take(c net.Conn) error {
	var h hello
	if err := readLine(c, &h); err != nil {
		return deny(c, &RefusedError{codeInvalid, "this is no offer of a service"})
	}
	s := &standing{}
	if no := d.reserve(h.Service, s); no != nil {
		return deny(c, no)
	}
	leave := func() { d.leave(h.Service, s) }
	if err := answer(c, &RefusedError{}); err != nil {
		leave()
		return err
	}
	_ = c.SetDeadline(time.Time{})
	conn, err := clientOf(&watched{Conn: c, gone: leave})
	if err != nil {
		leave()
		return err
	}
	d.mu.Lock()
	s.conn = conn
	stays := d.standing[h.Service] == s
	d.mu.Unlock()
	if !stays { // it was taken back meanwhile, or has ended
		return conn.Close()
	}
	return nil
}

// deny refuses, and is an error for that.
func deny(c net.Conn, no *RefusedError) error { return errors.Join(no, answer(c, no)) }

// reserve takes a name for an offer. One that is busy, or leaves once its calls are
// over, keeps its name until its connection has failed.
func (d *Desk) reserve(name string, s *standing) *RefusedError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.names, name) {
		return &RefusedError{CodeUnknown, "the sandbox's policy has no such service"}
	}
	if old := d.standing[name]; old != nil && (old.conn == nil || old.conn.Err() == nil) {
		return &RefusedError{CodeTaken, "another program serves under that name"}
	}
	d.standing[name] = s
	return nil
}

// leave forgets an offer that has ended.
func (d *Desk) leave(name string, s *standing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.standing[name] == s {
		delete(d.standing, name)
	}
}

// clientOf makes the gate the client of a connection.
func clientOf(c net.Conn) (*http.ClientConn, error) {
	tr := &http.Transport{
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
		ExpectContinueTimeout:  time.Second,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: MaxCalls * callBuffer,
			MaxReceiveBufferPerStream:     callBuffer,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingLimit,
			WriteByteTimeout:              writeLimit,
		},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return tr.NewClientConn(context.Background(), "http", "service:80")
}

// watched is a connection that tells once that it was closed.
type watched struct {
	net.Conn
	once sync.Once
	gone func()
}

// Close closes it. Whoever does may hold a lock.
func (w *watched) Close() error {
	w.once.Do(func() { go w.gone() })
	return w.Conn.Close()
}
