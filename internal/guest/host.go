package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// forwardTimeout bounds the dialling of a port inside.
const forwardTimeout = 10 * time.Second

// forwards are the connections that were joined to ports inside: the server
// that accepted them knows of them no more.
type forwards struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
	done sync.WaitGroup
}

// with answers CONNECT, that of the action protocol by actions and that of sockets by what socket connects to, and leaves the
// rest to next.
func (f *forwards) with(next http.Handler, actions func(context.Context, net.Conn, io.Reader), socket func(path string) (net.Conn, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodConnect:
			next.ServeHTTP(w, r)
		case r.Host == api.ActionsTarget:
			f.act(w, actions)
		case r.Host == api.SocketTarget:
			f.socket(w, r, socket)
		default:
			f.forward(w, r)
		}
	})
}

// act has one request of the action protocol answered on the host's connection. It
// ends when the connection is cut, whatever it waits for.
func (f *forwards) act(w http.ResponseWriter, serve func(context.Context, net.Conn, io.Reader)) {
	outside, buffered, err := f.hijack(w)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &actionConn{Conn: outside, cut: cancel}
	f.add(c)
	defer f.end(c)
	if accept(c) == nil {
		serve(ctx, c, buffered)
	}
}

// actionConn is a connection that is cut by the end of its context: there may be no
// read or write for a deadline to end.
type actionConn struct {
	net.Conn
	cut context.CancelFunc
}

// SyscallConn is for who waits for the host to leave.
func (c *actionConn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}

// CloseWrite ends the direction to the host.
func (c *actionConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}

// hijack takes a connection over from the server, or refuses.
func (*forwards) hijack(w http.ResponseWriter) (net.Conn, io.Reader, error) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "CONNECT needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return nil, nil, http.ErrNotSupported
	}
	c, buffered, err := hijacker.Hijack()
	return c, buffered, err
}

// accept answers CONNECT.
func accept(c net.Conn) error {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	return err
}

func (f *forwards) add(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[net.Conn]struct{}{}
	}
	f.open[c] = struct{}{}
	f.done.Add(1)
}

func (f *forwards) end(c net.Conn) {
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
	f.done.Done()
}

// cut ends them all.
func (f *forwards) cut() {
	f.mu.Lock()
	for c := range f.open {
		if a, ok := c.(*actionConn); ok {
			a.cut()
		}
		_ = c.SetDeadline(time.Unix(1, 0))
	}
	f.mu.Unlock()
	f.done.Wait()
}

// syncFiles writes back what the guest's kernel still holds of files.
func syncFiles(w http.ResponseWriter, _ *http.Request) {
	unix.Sync()
	w.WriteHeader(http.StatusNoContent)
}

// forward joins the host's connection to a port on the guest's loopback,
// where commands listen. No other host is dialled.
func (f *forwards) forward(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.Host)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host != "127.0.0.1" {
		http.Error(w, "only ports of 127.0.0.1 are forwarded to", http.StatusBadRequest)
		return
	}
	inside, err := dialInside(r.Context(), port)
	if err != nil {
		http.Error(w, "nothing listens on port "+port, http.StatusBadGateway)
		return
	}
	f.pass(w, inside)
}

// socket joins the host's connection to a unix socket inside.
func (f *forwards) socket(w http.ResponseWriter, r *http.Request, connect func(path string) (net.Conn, error)) {
	path, err := url.QueryUnescape(r.Header.Get(api.SocketHeader))
	if err == nil {
		err = control.CheckPath(path)
	}
	if err != nil {
		http.Error(w, "the path of a socket has to be absolute and clean", http.StatusUnprocessableEntity)
		return
	}
	inside, err := connect(path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOTSOCK), errors.Is(err, unix.ENOTDIR):
		http.Error(w, "nobody listens there", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		f.pass(w, inside)
	}
}

// pass joins the host's connection to one inside, which it closes.
func (f *forwards) pass(w http.ResponseWriter, inside net.Conn) {
	defer inside.Close()
	outside, buffered, err := f.hijack(w)
	if err != nil {
		return
	}
	f.add(outside)
	defer f.end(outside)
	if accept(outside) == nil {
		join(outside, buffered, inside)
	}
}

// dialInside connects to what listens on a port of the guest's loopback: of
// either family, for a server that says localhost may mean ::1 alone.
func dialInside(ctx context.Context, port string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: forwardTimeout}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if errors.Is(err, unix.ECONNREFUSED) {
		if six, serr := dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); serr == nil {
			return six, nil
		}
	}
	return c, err
}

// join copies both ways, passing on each side's end, until both have ended.
func join(outside net.Conn, fromOutside io.Reader, inside net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(inside, fromOutside) // its end is all that there is to tell
		closeWrite(inside)
	})
	both.Go(func() {
		_, _ = io.Copy(outside, inside)
		closeWrite(outside)
	})
	both.Wait()
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
