package offer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// HeaderSandbox is the field in which the gate tells a service who calls: the
// sandbox's ID. No guest can set it.
const HeaderSandbox = "Carboy-Sandbox"

// HeaderPrefix is the field in which it tells below what the service is called:
// "/NAME", which was taken off the path.
const HeaderPrefix = "X-Forwarded-Prefix"

// Times of an offer.
const (
	firstPause = 50 * time.Millisecond // until a broken offer is made again
	longPause  = time.Second           // the longest between two attempts
	goodbye    = 2 * time.Second       // for calls under way, when the offer ends
)

// Options say how a service is offered.
type Options struct {
	// Dial returns a connection on which the offer stands: after Greet. Required.
	Dial func(context.Context) (io.ReadWriteCloser, error)
	// Handler serves the calls. Their path is what follows the service's name,
	// as it was sent. Required.
	Handler http.Handler
	// Again says whether to go on after Dial failed; nil: always.
	Again func(error) bool
	// Told is told when the offer stands, with nil, and why it does not any
	// more, or not yet; nil: nobody is.
	Told func(error)
}

// errBroke is why an offer does not stand any more.
var errBroke = errors.New("the connection to the gate broke off")

// Serve offers a service until ctx ends, and then returns nil. An offer that
// breaks off, as where the gate or who leads to it has died, is made again.
func Serve(ctx context.Context, o Options) error {
	if o.Told == nil {
		o.Told = func(error) {}
	}
	for pause := firstPause; ; {
		c, err := o.Dial(ctx)
		if err == nil {
			o.Told(nil)
			began := time.Now()
			serveOne(ctx, c, o.Handler)
			if err = errBroke; time.Since(began) > longPause {
				pause = firstPause
			}
		} else if ctx.Err() == nil && o.Again != nil && !o.Again(err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		o.Told(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longPause)
	}
}

// serveOne is the server of one connection, until that or ctx ends.
func serveOne(ctx context.Context, c io.ReadWriteCloser, h http.Handler) {
	conn := &carried{ReadWriteCloser: c, done: make(chan struct{})}
	srv := &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		MaxHeaderBytes: maxHead, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 2 * MaxCalls, SendPingTimeout: pingAfter, PingTimeout: pingLimit,
			MaxReceiveBufferPerConnection: MaxCalls * callBuffer, MaxReceiveBufferPerStream: callBuffer,
		},
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(&single{conn: conn, done: make(chan struct{})}) })
	select {
	case <-conn.done:
	case <-ctx.Done():
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		_ = srv.Shutdown(bye)
		cancel()
	}
	_ = srv.Close()
	_ = conn.Close()
	served.Wait()
}

// single is a listener of one connection.
type single struct {
	conn        *carried
	once, close sync.Once
	done        chan struct{}
}

// Accept implements net.Listener.
func (s *single) Accept() (c net.Conn, err error) {
	s.once.Do(func() { c = s.conn })
	if c != nil {
		return c, nil
	}
	<-s.done
	return nil, net.ErrClosed
}

// Close implements net.Listener: the connection outlives it.
func (s *single) Close() error {
	s.close.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return nowhere{} }

// carried is a net.Conn over whatever carries bytes.
type carried struct {
	io.ReadWriteCloser
	once sync.Once
	done chan struct{} // closed once it is
}

// Close closes it once.
func (c *carried) Close() (err error) {
	c.once.Do(func() {
		err = c.ReadWriteCloser.Close()
		close(c.done)
	})
	return err
}

// What may not know deadlines and addresses has none: pings tell whether the
// other end is there.

// SetDeadline implements net.Conn.
func (c *carried) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *carried) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *carried) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (c *carried) LocalAddr() net.Addr { return nowhere{} }

// RemoteAddr implements net.Conn.
func (c *carried) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return Protocol }
func (nowhere) String() string  { return Protocol }
