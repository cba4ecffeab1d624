package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/test/internet"
)

// Addresses of a world.
const (
	worldDNS   = internet.Resolver
	worldA     = internet.A
	worldB     = internet.B
	worldC     = internet.C
	worldA6    = internet.A6
	worldLocal = internet.Private
)

// world is an internet of its own, with servers that keep what they received.
type world struct {
	t   testing.TB
	net *internet.Internet
	// Roots is a file with the certificate that this world's servers are signed
	// by.
	roots string

	mu       sync.Mutex
	requests []*received
}

// received is a request as a server saw it.
type received struct {
	Server string // the name that the server goes by
	Method string
	Path   string
	Query  string
	Host   string
	Header http.Header
	Body   []byte
	Proto  string
}

// newWorld makes one. It ends with the test.
func newWorld(t testing.TB) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	net, err := internet.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(net.Close)
	w := &world{t: t, net: net, roots: filepath.Join(t.TempDir(), "roots.pem")}
	if err := os.WriteFile(w.roots, net.Roots(), 0o644); err != nil {
		t.Fatal(err)
	}
	return w
}

// in runs f in the world's network.
func (w *world) in(f func()) { w.net.In(f) }

// home makes a home whose daemon lives in the world.
func (w *world) home(env ...string) *home {
	w.t.Helper()
	h := newHome(w.t, append([]string{"SSL_CERT_FILE=" + w.roots, "SSL_CERT_DIR=/nonexistent"}, env...)...)
	h.start = w.net.Start
	dir := filepath.Join(h.dir, "config", "carboy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"resolvers": ["`+worldDNS+`:53"]}`), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// certificate is signed by the world's root, changed by alter if that is given.
func (w *world) certificate(alter func(*x509.Certificate), names ...string) tls.Certificate {
	w.t.Helper()
	c, err := w.net.Certificate(alter, names...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// listen listens in the world until the test's end.
func (w *world) listen(address string) net.Listener {
	w.t.Helper()
	l, err := w.net.Listen(address)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// resolve gives a name addresses, which replace those that it had.
func (w *world) resolve(name string, addrs ...string) { w.net.Resolve(name, addrs...) }

// asked are the questions that the world's resolver received, as "TYPE name.".
func (w *world) asked() (list []string) {
	for _, q := range w.net.Asked() {
		list = append(list, q.Type+" "+q.Name)
	}
	return list
}

// https serves a name at an address, on port 443 and in clear on 80. Without a
// handler every request is kept and answered with "hello from NAME".
func (w *world) https(name, address string, handler http.Handler) {
	w.t.Helper()
	kept := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.requests = append(w.requests, &received{
			Server: name, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host,
			Header: r.Header.Clone(), Body: body, Proto: r.Proto,
		})
		w.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		if handler == nil {
			_, _ = io.WriteString(rw, "hello from "+name+"\n")
			return
		}
		handler.ServeHTTP(rw, r)
	})
	if err := w.net.Serve(address, kept, name); err != nil {
		w.t.Fatal(err)
	}
}

// received are the requests that servers of a name got.
func (w *world) received(name string) []*received {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*received
	for _, r := range w.requests {
		if r.Server == name {
			list = append(list, r)
		}
	}
	return list
}
