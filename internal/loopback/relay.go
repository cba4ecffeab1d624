package loopback

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	// acceptRest is how long accepting rests when this process has no more files.
	acceptRest = 50 * time.Millisecond
	// dialLimit bounds how long a connection waits until its port was reached.
	dialLimit = 30 * time.Second
	// lookAgain is how often a connection that its user has ended, and the
	// sandbox has not, is looked at.
	lookAgain = 15 * time.Second
)

// pass hands connections of one address on, until the listener is closed.
func (l *Listener) pass(from net.Listener) {
	for {
		c, err := from.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of this one connection, or there are no files: both pass
			select {
			case <-time.After(acceptRest):
				continue
			case <-l.done:
				return
			}
		}
		select {
		case l.conns <- c:
		case <-l.done:
			Reset(c)
			return
		}
	}
}

// Reset ends a connection at once, so that its other end learns that it was not
// served.
func Reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// MayUse reports whether c is a connection of that user, or of root.
func MayUse(c net.Conn, owner uint32) bool {
	uid, ok := PeerUser(c)
	return ok && (uid == owner || uid == 0) || weak.On(weak.LoopbackForAll)
}

// Relay joins connections of one user with connections into a sandbox.
type Relay struct {
	// Owner is the user whose connections are passed on; root's are, too.
	Owner uint32
	// Dial reaches the port inside. Its error has the connection reset.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Slots bound how many connections there may be at once: each holds one of
	// every one of them. One that finds none free is reset.
	Slots []Slots
	// Failed is told why a connection was reset; nil: nobody is.
	Failed func(err error)
	Log    *slog.Logger
}

// Slots are places for connections.
type Slots chan struct{}

// NewSlots makes n places.
func NewSlots(n int) Slots { return make(Slots, n) }

func take(slots []Slots) (leave func(), ok bool) {
	var taken []Slots
	leave = func() {
		for _, s := range taken {
			<-s
		}
	}
	for _, s := range slots {
		select {
		case s <- struct{}{}:
			taken = append(taken, s)
		default:
			leave()
			return nil, false
		}
	}
	return leave, true
}

// Serve passes connections on until ctx ends or l is closed, then ends those
// that are left, and returns once they have.
func (r *Relay) Serve(ctx context.Context, l *Listener) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() { r.serve(ctx, c) })
	}
}

func (r *Relay) serve(ctx context.Context, c net.Conn) {
	if !MayUse(c, r.Owner) {
		Reset(c)
		r.Log.Warn("connection of another user, or of nobody known, refused", "address", c.LocalAddr())
		return
	}
	leave, ok := take(r.Slots)
	if !ok {
		Reset(c)
		r.failed(errTooMany)
		return
	}
	defer leave()
	dial, cancel := context.WithTimeout(ctx, dialLimit)
	inside, err := r.Dial(dial)
	cancel()
	if err != nil {
		Reset(c)
		r.failed(err)
		return
	}
	Join(ctx, c, inside)
}

var errTooMany = errors.New("too many connections at once")

func (r *Relay) failed(err error) {
	r.Log.Debug("connection reset", "error", err)
	if r.Failed != nil {
		r.Failed(err)
	}
}

// Limited accepts as many connections of a listener as there are slots, and the
// next when one of them has ended.
type Limited struct {
	net.Listener
	Slots Slots
}

// Accept implements net.Listener.
func (l Limited) Accept() (net.Conn, error) {
	l.Slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.Slots
		return nil, err
	}
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.Slots })}, nil
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn is the connection below.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// Join copies both ways, each direction's end passed on, until both have ended,
// one was broken off, or ctx ends. It closes both.
func Join(ctx context.Context, outside net.Conn, inside io.ReadWriteCloser) {
	broken := sync.OnceFunc(func() {
		Reset(outside)
		_ = inside.Close()
	})
	defer context.AfterFunc(ctx, broken)()
	var both sync.WaitGroup
	half := func(to, from io.ReadWriteCloser) {
		if _, err := io.Copy(to, from); err != nil {
			broken()
			return
		}
		if closeWrite(to) != nil {
			broken()
		}
	}
	answered := make(chan struct{})
	both.Go(func() {
		half(inside, outside)
		leftBehind(outside, answered, broken)
	})
	both.Go(func() {
		defer close(answered)
		half(outside, inside)
	})
	both.Wait()
	_ = outside.Close()
	_ = inside.Close()
}

// leftBehind breaks a connection off whose other end was closed as a whole: what
// a half that was closed looks the same as, until something is written.
func leftBehind(c net.Conn, answered <-chan struct{}, broken func()) {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-answered:
			return
		case <-look.C:
			if gone(c) {
				broken()
				return
			}
		}
	}
}

// gone reports whether nobody is at the other end of c any more, whose process
// has ended its direction before.
func gone(c net.Conn) bool {
	if in, wraps := c.(interface{ NetConn() net.Conn }); wraps {
		return gone(in.NetConn())
	}
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok && addr.IP.IsLoopback() {
		_, known := PeerUser(c)
		return !known
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	var n int
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, 0) // of hang-ups and errors it tells unasked
	})
	return err != nil || n > 0
}

func closeWrite(c io.Closer) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
