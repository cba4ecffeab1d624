package guest

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// with answers CONNECT and leaves the rest to next.
func (f *forwards) with(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			f.forward(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
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
	dialer := net.Dialer{Timeout: forwardTimeout}
	inside, err := dialer.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, "nothing listens on port "+port, http.StatusBadGateway)
		return
	}
	defer inside.Close()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "CONNECT needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	outside, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	f.add(outside)
	defer f.end(outside)
	if _, err := io.WriteString(outside, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	join(outside, buffered, inside)
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
