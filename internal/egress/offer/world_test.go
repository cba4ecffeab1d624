package offer_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// world is a desk behind a socket.
type world struct {
	t    testing.TB
	desk *offer.Desk
	path string
}

func newWorld(t testing.TB, names ...string) *world {
	t.Helper()
	w := &world{t: t, desk: offer.NewDesk(), path: filepath.Join(t.TempDir(), "s")}
	w.desk.Set(names)
	l, err := net.Listen("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.desk.Serve(ctx, l) }()
	t.Cleanup(func() { w.desk.Set(nil); cancel(); <-done })
	return w
}

func (w *world) dial() net.Conn {
	w.t.Helper()
	c, err := net.Dial("unix", w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// offered greets the desk.
func (w *world) offered(name string) (net.Conn, error) {
	c := w.dial()
	return c, offer.Greet(w.t.Context(), c, name)
}

// serve offers a service until stop is called, or the test ends. It returns once
// the offer stands. conns has the connections that it was offered on.
func (w *world) serve(name string, h http.Handler) (stop func(), conns chan net.Conn) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	conns = make(chan net.Conn, 16)
	go func() {
		done <- offer.Serve(ctx, offer.Options{Handler: h, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", w.path)
			if err != nil {
				return nil, err
			}
			if err := offer.Greet(ctx, c, name); err != nil {
				c.Close()
				return nil, err
			}
			conns <- c
			return c, nil
		}})
	}()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				w.t.Errorf("the end of an offer: %v", err)
			}
		}
	}
	w.t.Cleanup(stop)
	w.until("an offer of "+name, func() bool { return slices.Contains(w.desk.Standing(), name) })
	return stop, conns
}

// until waits for a fact that nobody announces.
func (w *world) until(what string, fact func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(patience.For(20 * time.Second))
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-deadline.C:
			w.t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

// call calls a service; its body is to be read by the caller.
func (w *world) call(ctx context.Context, name, method, path string, body io.Reader) (*http.Response, func(), error) {
	w.t.Helper()
	to, done, err := w.desk.Call(name)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gate.carboy.internal"+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := to.RoundTrip(req)
	if err != nil {
		done()
	}
	return resp, done, err
}

// get calls a service and reads the whole answer.
func (w *world) get(name, path string) (string, error) {
	w.t.Helper()
	resp, done, err := w.call(w.t.Context(), name, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	defer done()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// says answers with a word and the path.
func says(word string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, word+" "+r.RequestURI)
	})
}

// endless writes until nobody reads.
func endless(w http.ResponseWriter, _ *http.Request) {
	chunk := []byte(strings.Repeat("x", 16<<10))
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}
