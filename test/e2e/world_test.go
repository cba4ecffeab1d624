package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of a world: public ones, as far as anyone in it can tell.
const (
	worldDNS   = "93.184.216.53"
	worldA     = "93.184.216.34"
	worldB     = "93.184.216.35"
	worldC     = "93.184.216.36"
	worldA6    = "2606:2800:220:1::34"
	worldLocal = "10.77.0.1" // a private one
)

// world is an internet of its own: a network namespace with public addresses,
// a resolver with a zone, and servers that keep what they received. The
// machine's own network can't be reached from it.
type world struct {
	t    testing.TB
	do   chan func()
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Roots is a file with the certificate that this world's servers are signed
	// by.
	roots string

	mu        sync.Mutex
	zone      map[string][]string // name, with a dot at its end, to addresses
	questions []string
	requests  []*received
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
	w := &world{t: t, do: make(chan func()), zone: map[string][]string{}}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		made <- makeWorld()
		for f := range w.do {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(w.do) })
	w.makeCA()
	w.serveDNS()
	return w
}

func makeWorld() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range []string{worldDNS + "/32", worldA + "/32", worldB + "/32", worldC + "/32", worldLocal + "/32", worldA6 + "/128"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	return nil
}

// in runs f in the world's network.
func (w *world) in(f func()) {
	done := make(chan struct{})
	w.do <- func() { f(); close(done) }
	<-done
}

// home makes a home whose daemon lives in the world.
func (w *world) home(env ...string) *home {
	w.t.Helper()
	h := newHome(w.t, append([]string{"SSL_CERT_FILE=" + w.roots, "SSL_CERT_DIR=/nonexistent"}, env...)...)
	h.start = func(c *exec.Cmd) (err error) {
		w.in(func() { err = c.Start() })
		return err
	}
	dir := filepath.Join(h.dir, "config", "carboy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"resolvers": ["`+worldDNS+`:53"]}`), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) makeCA() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a world's root"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.cert, err = x509.ParseCertificate(raw); err != nil {
		w.t.Fatal(err)
	}
	w.key = key
	w.roots = filepath.Join(w.t.TempDir(), "roots.pem")
	if err := os.WriteFile(w.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// certificate is signed by the world's root, changed by alter if that is given.
func (w *world) certificate(alter func(*x509.Certificate), names ...string) tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if alter != nil {
		alter(template)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, w.cert, &key.PublicKey, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// listen listens in the world until the test's end.
func (w *world) listen(address string) net.Listener {
	w.t.Helper()
	var l net.Listener
	var err error
	w.in(func() { l, err = net.Listen("tcp", address) })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

// resolve gives a name addresses, which replace those that it had.
func (w *world) resolve(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zone[dns.Fqdn(name)] = addrs
}

// asked are the questions that the world's resolver received, as "TYPE name.".
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.questions...)
}

func (w *world) serveDNS() {
	var pc net.PacketConn
	var err error
	w.in(func() { pc, err = net.ListenPacket("udp", worldDNS+":53") })
	if err != nil {
		w.t.Fatal(err)
	}
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(w.answer)}
	go server.ActivateAndServe() // it ends with the test
	w.t.Cleanup(func() { pc.Close() })
}

func (w *world) answer(rw dns.ResponseWriter, q *dns.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	for _, one := range q.Question {
		name := strings.ToLower(one.Name)
		w.questions = append(w.questions, dns.TypeToString[one.Qtype]+" "+name)
		addrs, ok := w.zone[name]
		if !ok {
			m.Rcode = dns.RcodeNameError
			continue
		}
		for _, a := range addrs {
			head := dns.RR_Header{Name: one.Name, Class: dns.ClassINET, Ttl: 60}
			ip := net.ParseIP(a)
			switch {
			case ip == nil:
				head.Rrtype = dns.TypeCNAME
				m.Answer = append(m.Answer, &dns.CNAME{Hdr: head, Target: dns.Fqdn(a)})
			case ip.To4() != nil && one.Qtype == dns.TypeA:
				head.Rrtype = dns.TypeA
				m.Answer = append(m.Answer, &dns.A{Hdr: head, A: ip})
			case ip.To4() == nil && one.Qtype == dns.TypeAAAA:
				head.Rrtype = dns.TypeAAAA
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: ip})
			}
		}
	}
	_ = rw.WriteMsg(m)
}

// https serves a name at an address, on port 443 and in clear on 80. Without a
// handler every request is kept and answered with "hello from NAME".
func (w *world) https(name, address string, handler http.Handler) {
	w.t.Helper()
	w.resolve(name, address)
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
	clear := &http.Server{Handler: kept}
	encrypted := &http.Server{Handler: kept, TLSConfig: &tls.Config{Certificates: []tls.Certificate{w.certificate(nil, name)}}}
	l80, l443 := w.listen(net.JoinHostPort(address, "80")), w.listen(net.JoinHostPort(address, "443"))
	go clear.Serve(l80)                 // it ends with the test
	go encrypted.ServeTLS(l443, "", "") // likewise
	w.t.Cleanup(func() { clear.Close(); encrypted.Close() })
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
