package proxy_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
)

// direct is a client of a world's servers without the proxy.
func (w *world) direct(http2 bool) *http.Client {
	c := w.client(http2)
	tr := c.Transport.(*http.Transport)
	tr.TLSClientConfig = &tls.Config{RootCAs: w.roots}
	tr.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for to, at := range w.servers {
			if w.names[host][0] == to.Addr() && port == portOf(to.Port()) {
				return net.Dial("tcp", at)
			}
		}
		return nil, net.ErrClosed
	}
	return c
}

func portOf(p uint16) string {
	if p == 80 {
		return "80"
	}
	return "443"
}

// variants runs a benchmark over both versions and both ways.
func variants(b *testing.B, f func(b *testing.B, c *http.Client)) {
	for _, v := range []struct {
		name  string
		http2 bool
	}{{"1", false}, {"2", true}} {
		w := newWorld(b, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				buf := make([]byte, 64<<10)
				for range (256 << 20) / len(buf) {
					if _, err := rw.Write(buf); err != nil {
						return
					}
				}
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(rw, "hello")
		}))
		b.Run("direct-"+v.name, func(b *testing.B) { f(b, w.direct(v.http2)) })
		b.Run("through-"+v.name, func(b *testing.B) { f(b, w.client(v.http2)) })
	}
}

// BenchmarkKeepAlive is one request after another on one connection.
func BenchmarkKeepAlive(b *testing.B) {
	variants(b, func(b *testing.B, c *http.Client) {
		b.ReportAllocs()
		for b.Loop() {
			resp, err := c.Get("https://a.example/")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// BenchmarkDownload is 256 MiB.
func BenchmarkDownload(b *testing.B) {
	variants(b, func(b *testing.B, c *http.Client) {
		b.SetBytes(256 << 20)
		for b.Loop() {
			resp, err := c.Get("https://a.example/large")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 256<<20 {
				b.Fatal(n, err)
			}
			resp.Body.Close()
		}
	})
}

// BenchmarkUpload is 256 MiB the other way.
func BenchmarkUpload(b *testing.B) {
	variants(b, func(b *testing.B, c *http.Client) {
		b.SetBytes(256 << 20)
		for b.Loop() {
			req, _ := http.NewRequest(http.MethodPost, "https://a.example/", io.LimitReader(zeros{}, 256<<20))
			req.ContentLength = 256 << 20
			resp, err := c.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkFraming is the cost of the strict reader for a head.
func BenchmarkFraming(b *testing.B) {
	head := []byte("GET /path/to/somewhere?x=y HTTP/1.1\r\nHost: a.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer x\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, bad := proxy.Frame(head, len(head)); bad != nil {
			b.Fatal(bad)
		}
	}
}
