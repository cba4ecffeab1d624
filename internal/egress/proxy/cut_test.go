package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// watchedConn keeps how its reading ended, below TLS and HTTP.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan error
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { c.ended <- err })
	}
	return n, err
}

// TestCutIsReset has an answer in part cut by a change of the policy, at a time
// when the connection could be closed in order: clients that take any end for a
// good one, as curl's HTTP/2 does now and then and HTTP/1.0 has to, are not to
// have it for a whole. An answer that ends by itself ends in order.
func TestCutIsReset(t *testing.T) {
	for _, one := range []struct {
		name, scheme string
		http2, old   bool
		whole        bool // the connection is cut, not a request on it
	}{
		{name: "http2-tls", scheme: "https", http2: true, whole: true},
		{name: "http2-clear", scheme: "http", http2: true},
		{name: "http1-tls", scheme: "https", whole: true},
		{name: "http1-clear", scheme: "http"},
		{name: "http1.0", scheme: "http", old: true, whole: true},
	} {
		for _, cut := range []bool{true, false} {
			name := one.name + "-cut"
			if !cut {
				name = one.name + "-ends"
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, allow("a.example"), worldOptions{})
				end := make(chan struct{})
				w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(rw, "begun\n")
					_ = http.NewResponseController(rw).Flush()
					select {
					case <-end:
					case <-r.Context().Done():
					}
				}))
				c := &watchedConn{ended: make(chan error, 1)}
				var body io.Reader
				if one.old {
					c.Conn = w.dial("45.0.0.1:80")
					_, _ = io.WriteString(c, "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n")
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Fatal(err)
					}
					body = resp.Body
				} else {
					client := w.client(one.http2)
					tr := client.Transport.(*http.Transport)
					tr.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
						inner, err := w.dialName(addr)
						c.Conn = inner
						return c, err
					}
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, one.scheme+"://a.example/", nil)
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					body = resp.Body
				}
				if _, err := io.ReadFull(body, make([]byte, 6)); err != nil {
					t.Fatal(err)
				}
				if cut {
					w.set(allow("b.example"))
					if w.proxy.Recheck() == 0 {
						t.Fatal("nothing was cut")
					}
				} else {
					close(end)
				}
				_, err := io.ReadAll(body)
				if (err != nil) != cut {
					t.Errorf("the answer ended with %v", err)
				}
				if !one.whole || !cut && !one.old {
					return
				}
				select {
				case err = <-c.ended:
				case <-time.After(patience.For(10 * time.Second)):
					t.Fatal("the connection is open still")
				}
				if errors.Is(err, syscall.ECONNRESET) != cut {
					t.Errorf("the connection ended with %v", err)
				}
			})
		}
	}
}
