// Package loopback has ports on this machine's loopback that are for one user:
// it listens on 127.0.0.1 and ::1, asks the kernel whose socket is at the other
// end, and joins a connection with one into a sandbox, byte for byte.
//
// It refuses connections of other users than the one named and root, those of
// which it is not known whose they are, and more at once than it was told: each
// is reset, and nothing of it is read. It looks at no byte that it passes on, so
// it can't tell a page of another site from the user.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Listener listens on one port of each loopback address that this machine has.
type Listener struct {
	port  int
	each  []net.Listener
	conns chan net.Conn
	begun sync.Once
	tasks sync.WaitGroup
	done  chan struct{}
	end   sync.Once
}

const (
	v4 = "127.0.0.1"
	v6 = "::1"
	// anyTries is how many free ports of the one address are tried on the other.
	anyTries = 32
)

// Listen opens a port; 0 is one that is free. It fails with Conflict where the
// port is taken on either address: else what says localhost would reach
// somebody else's server by the one, and this by the other.
func Listen(ctx context.Context, port int) (*Listener, error) {
	if port < 0 || port > 65535 {
		return nil, sandbox.Errorf(sandbox.Invalid, "port %d: there is no such port", port).WithHint("from 1 to 65535")
	}
	for try := 1; ; try++ {
		l, err := listen(ctx, port)
		if port != 0 || try == anyTries || sandbox.KindOf(err) != sandbox.Conflict {
			return l, err
		}
	}
}

// ListenNear opens that port where it is free, and another that is where it is
// not, or where ordinary users may not have it.
func ListenNear(ctx context.Context, port int) (*Listener, error) {
	l, err := Listen(ctx, port)
	if kind := sandbox.KindOf(err); kind == sandbox.Conflict || kind == sandbox.Denied {
		return Listen(ctx, 0)
	}
	return l, err
}

func listen(ctx context.Context, port int) (*Listener, error) {
	var lc net.ListenConfig
	a, err := lc.Listen(ctx, "tcp4", net.JoinHostPort(v4, strconv.Itoa(port)))
	if err != nil {
		return nil, listenError(v4, port, err)
	}
	l := &Listener{each: []net.Listener{a}, conns: make(chan net.Conn), done: make(chan struct{})}
	l.port = a.Addr().(*net.TCPAddr).Port
	b, err := lc.Listen(ctx, "tcp6", net.JoinHostPort(v6, strconv.Itoa(l.port)))
	switch {
	case err == nil:
		l.each = append(l.each, b)
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EPROTONOSUPPORT):
		// This machine has no IPv6, or not on its loopback.
	default:
		return nil, errors.Join(listenError(v6, l.port, err), a.Close())
	}
	return l, nil
}

// listenError says in words why a port can't be opened.
func listenError(addr string, port int, err error) error {
	at := net.JoinHostPort(addr, strconv.Itoa(port))
	var e *sandbox.Error
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		e = sandbox.Errorf(sandbox.Conflict, "port %d: %s is taken by another program", port, at).
			WithHint("name another, as in %d:PORT, or 0:PORT for any that is free", min(port+1, 65535))
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e = LowPort(port)
	default:
		e = sandbox.Errorf(sandbox.Unavailable, "port %d: %s can't be listened on", port, at)
	}
	e.Err = err
	return e
}

// LowPort is the error of a port that ordinary users may not have.
func LowPort(port int) *sandbox.Error {
	return sandbox.Errorf(sandbox.Denied, "port %d: ports below %d are root's on this machine", port, FirstPort()).
		WithHint("name one that is not, as in 8080:PORT")
}

// FirstPort is the first port that ordinary users of this machine may have.
func FirstPort() int {
	const usual = 1024
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 || n > 65536 {
		return usual
	}
	return n
}

// Port is the port that is open.
func (l *Listener) Port() int { return l.port }

// Addr implements net.Listener: the address of IPv4.
func (l *Listener) Addr() net.Addr { return l.each[0].Addr() }

// Accept implements net.Listener: the next connection to either address.
func (l *Listener) Accept() (net.Conn, error) {
	l.begun.Do(func() {
		for _, one := range l.each {
			l.tasks.Go(func() { l.pass(one) })
		}
	})
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, fmt.Errorf("accept on port %d: %w", l.port, net.ErrClosed)
	}
}

// Close implements net.Listener. Connections that nobody has accepted are reset,
// and the port is free once it returns.
func (l *Listener) Close() error {
	var errs []error
	l.end.Do(func() {
		close(l.done)
		for _, one := range l.each {
			errs = append(errs, one.Close())
		}
		l.begun.Do(func() {}) // nobody is to begin any more
		l.tasks.Wait()
	})
	return errors.Join(errs...)
}
