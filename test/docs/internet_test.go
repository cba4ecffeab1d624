package docs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the internet that documents are run in.
const (
	webAddress = "93.184.216.34"
	dnsAddress = "93.184.216.53"
)

// token is the secret in the documents' examples, and what the server of the
// example wants.
const token = "ghp_example0123456789"

// sites are what there is on that internet.
var sites = map[string]http.HandlerFunc{
	"example.com": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<h1>Example Domain</h1>\n") },
	"api.example.com": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/items" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `["one","two"]`+"\n")
	},
	"api.github.com": func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"message":"Bad credentials"}`+"\n")
			return
		}
		_, _ = io.WriteString(w, `{"login":"me"}`+"\n")
	},
}

// internet is a network namespace with a resolver and the sites: all that a
// document can reach.
type internet struct {
	do    chan func()
	roots string // a file with the root that the sites are signed by
}

func newInternet(t *testing.T, dir string) *internet {
	t.Helper()
	n := &internet{do: make(chan func()), roots: filepath.Join(dir, "roots.pem")}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		made <- makeNetwork()
		for f := range n.do {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(n.do) })
	n.serve(t)
	return n
}

func makeNetwork() error {
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
	for _, a := range []string{webAddress, dnsAddress} {
		addr, err := netlink.ParseAddr(a + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	return nil
}

// in runs f there.
func (n *internet) in(f func()) {
	done := make(chan struct{})
	n.do <- func() { f(); close(done) }
	<-done
}

// serve starts the resolver and the sites. They end with the test.
func (n *internet) serve(t *testing.T) {
	t.Helper()
	var errs [3]error
	var questions net.PacketConn
	var clear, encrypted net.Listener
	n.in(func() {
		questions, errs[0] = net.ListenPacket("udp", dnsAddress+":53")
		clear, errs[1] = net.Listen("tcp", webAddress+":80")
		encrypted, errs[2] = net.Listen("tcp", webAddress+":443")
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := sites[r.Host]; site != nil {
			site(w, r)
		}
	})
	plain := &http.Server{Handler: handler}
	web := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{n.certificate(t)}}}
	names := &dns.Server{PacketConn: questions, Handler: dns.HandlerFunc(answer)}
	go plain.Serve(clear)              // it ends with the test
	go web.ServeTLS(encrypted, "", "") // likewise
	go names.ActivateAndServe()        // likewise
	t.Cleanup(func() { _ = plain.Close(); _ = web.Close(); _ = questions.Close() })
}

func answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	for _, one := range q.Question {
		if sites[strings.ToLower(strings.TrimSuffix(one.Name, "."))] == nil {
			m.Rcode = dns.RcodeNameError
		} else if one.Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: one.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(webAddress),
			})
		}
	}
	_ = w.WriteMsg(m)
}

// certificate is for all sites, under a root that is written to n.roots.
func (n *internet) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	names := []string{}
	for name := range sites {
		names = append(names, name)
	}
	slices.Sort(names)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a root of the documents"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	rootKey, key := newKey(t), newKey(t)
	rootRaw, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, rootKey)
	if err == nil {
		err = os.WriteFile(n.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootRaw}), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// settings are the daemon's: whom gates ask for names.
func (n *internet) settings() string { return fmt.Sprintf(`{"resolvers": ["%s:53"]}`, dnsAddress) }
