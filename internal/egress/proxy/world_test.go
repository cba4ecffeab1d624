package proxy_test

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// world is a sandbox's view of a network: names, addresses, servers on
// loopback in their place, and the proxy between.
type world struct {
	t       testing.TB
	proxy   *proxy.Proxy
	policy  atomic.Pointer[policy.Set]
	roots   *x509.CertPool // of the upstreams
	trusted *x509.CertPool // of the gate
	ca      *issuer
	flows   *relay.Flows

	mu      sync.Mutex
	names   map[string][]netip.Addr
	servers map[netip.AddrPort]string // loopback addresses
	records []netlog.Record
	dials   []netip.AddrPort
}

// worldOptions change what newWorld makes.
type worldOptions struct {
	secrets map[string]string // names to values
	change  func(*proxy.Options)
}

// placeholder is what stands for a secret in these tests.
func placeholder(name string) string {
	return "carboy-" + strings.ToLower(name) + "-0123456789abcdefghijklmnopqrstuv"
}

func newWorld(t testing.TB, p policy.Policy, o worldOptions) *world {
	t.Helper()
	w := &world{
		t: t, roots: x509.NewCertPool(), trusted: x509.NewCertPool(), ca: newIssuer(t),
		names: map[string][]netip.Addr{}, servers: map[netip.AddrPort]string{}, flows: relay.NewFlows(0, 0),
	}
	w.roots.AddCert(w.ca.cert)
	authority, err := tlswire.NewAuthority("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.trusted.AppendCertsFromPEM(authority.CertificatePEM())
	holders := map[string]string{}
	var given []string
	for name := range o.secrets {
		holders[name] = placeholder(name)
		given = append(given, name)
	}
	w.set(p, given...)
	options := proxy.Options{
		Policy:      func() proxy.Policy { return w.policy.Load() },
		Names:       w.pinned,
		Resolve:     w.resolve,
		Dial:        w.dialUpstream,
		Certificate: authority.Certificate,
		Roots:       func() *x509.CertPool { return w.roots },
		Record:      w.record,
		Flows:       w.flows,
		Guard: inject.NewGuard(inject.Options{
			Placeholders: holders,
			Value:        func(_ context.Context, name string) (string, error) { return o.secrets[name], nil },
		}),
	}
	if o.change != nil {
		o.change(&options)
	}
	w.proxy = proxy.New(options)
	t.Cleanup(w.proxy.Close)
	return w
}

// set makes p the policy.
func (w *world) set(p policy.Policy, secrets ...string) {
	w.t.Helper()
	set, err := policy.Compile(p, secrets)
	if err != nil {
		w.t.Fatal(err)
	}
	w.policy.Store(set)
}

func (w *world) pinned(a netip.Addr) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, addrs := range w.names {
		if slices.Contains(addrs, a) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, policy.Verdict, error) {
	v := w.policy.Load().Name(name)
	if !v.Allowed() {
		return nil, v, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if addrs := w.names[name]; len(addrs) > 0 {
		return addrs, v, nil
	}
	return nil, v, errors.New("no such name")
}

func (w *world) dialUpstream(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	at, ok := w.servers[to]
	w.dials = append(w.dials, to)
	w.mu.Unlock()
	if !ok {
		return nil, errors.New("nobody is there")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at)
}

func (w *world) record(r netlog.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// recorded waits for a record that fits.
func (w *world) recorded(fits func(netlog.Record) bool) netlog.Record {
	w.t.Helper()
	deadline := time.Now().Add(patience.For(10 * time.Second))
	for {
		w.mu.Lock()
		i := slices.IndexFunc(w.records, fits)
		var r netlog.Record
		if i >= 0 {
			r = w.records[i]
		}
		w.mu.Unlock()
		if i >= 0 {
			return r
		}
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("no such record among %+v", w.records)
		}
		wait()
	}
}

// wait gives others a moment.
func wait() { <-time.After(time.Millisecond) }

func code(c string) func(netlog.Record) bool {
	return func(r netlog.Record) bool { return r.Code == c }
}

// at gives a name an address.
func (w *world) at(name, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = append(w.names[name], netip.MustParseAddr(addr))
}

// serve puts a listener in an address's place.
func (w *world) serve(addrPort string, l net.Listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[netip.MustParseAddrPort(addrPort)] = l.Addr().String()
}

func (w *world) listen() net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

// web serves HTTP for a name: in TLS on port 443 and clear on port 80, both
// versions.
func (w *world) web(name, addr string, h http.Handler) {
	w.at(name, addr)
	cert := w.ca.issue(w.t, nil, name)
	w.start(addr+":443", h, &tls.Config{Certificates: []tls.Certificate{cert}})
	w.start(addr+":80", h, nil)
}

// start serves HTTP at an address, in TLS where there is a configuration.
func (w *world) start(addrPort string, h http.Handler, config *tls.Config) *http.Server {
	l := w.listen()
	w.serve(addrPort, l)
	s := &http.Server{Handler: h, TLSConfig: config, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(config == nil || len(config.NextProtos) == 0)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	w.t.Cleanup(func() { s.Close() })
	if config != nil {
		go s.ServeTLS(l, "", "")
	} else {
		go s.Serve(l)
	}
	return s
}

// pair is a TCP connection's two ends.
func pair(t testing.TB) (guest, gate net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	guest, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	gate, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close(); gate.Close() })
	return guest, gate
}

// dial is the sandbox's own: a connection to an address, through the gate.
func (w *world) dial(addrPort string) net.Conn {
	guest, gate := pair(w.t)
	go w.proxy.ServeTCP(context.WithoutCancel(w.t.Context()), gate, netip.MustParseAddrPort(addrPort))
	return guest
}

// dialName resolves first.
func (w *world) dialName(hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	addr := host
	w.mu.Lock()
	if addrs := w.names[host]; len(addrs) > 0 {
		addr = addrs[0].String()
	}
	w.mu.Unlock()
	return w.dial(net.JoinHostPort(addr, port)), nil
}

// client is an HTTP client in the sandbox, of HTTP/1 or both versions.
func (w *world) client(http2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: w.trusted},
		DialContext:        func(_ context.Context, _, addr string) (net.Conn, error) { return w.dialName(addr) },
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience.For(20 * time.Second)}
}

// tls is a TLS connection in the sandbox to an address, asking for a name.
func (w *world) tls(addrPort, sni string, protocols ...string) *tls.Conn {
	w.t.Helper()
	c := tls.Client(w.dial(addrPort), &tls.Config{ServerName: sni, RootCAs: w.trusted, NextProtos: protocols})
	if err := c.HandshakeContext(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// speak sends bytes and reads one answer of HTTP/1.
func speak(t testing.TB, c net.Conn, text string) (*http.Response, string) {
	t.Helper()
	return talk(t, c, bufio.NewReader(c), text)
}

func talk(t testing.TB, c net.Conn, r *bufio.Reader, text string) (*http.Response, string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("after %.60q: %v", text, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// issuer signs certificates of upstreams.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "upstreams"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert: cert, key: key}
}

func (i *issuer) issue(t testing.TB, change func(*x509.Certificate), names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "upstream"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if a, err := netip.ParseAddr(n); err == nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, a.AsSlice())
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	if change != nil {
		change(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, i.cert, &key.PublicKey, i.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (i *issuer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
}

// tlsTo makes a connection one of TLS with a.example itself.
func tlsTo(t testing.TB, w *world, c net.Conn) net.Conn {
	t.Helper()
	tc := tls.Client(c, &tls.Config{ServerName: "a.example", RootCAs: w.roots})
	if err := tc.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tc
}

// echConfig is a list of one configuration under which a client hides the name
// that it asks for behind another.
func echConfig(public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(0xfe0d)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint8(1)
			b.AddUint16(0x0020) // X25519
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key.PublicKey().Bytes()) })
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				b.AddUint16(1) // HKDF-SHA256
				b.AddUint16(1) // AES-128-GCM
			})
			b.AddUint8(0)
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(public)) })
			b.AddUint16(0)
		})
	})
	return b.BytesOrPanic()
}
