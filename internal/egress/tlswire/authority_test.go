package tlswire_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
)

func newAuthority(t testing.TB, now func() time.Time) *tlswire.Authority {
	t.Helper()
	a, err := tlswire.NewAuthority("sandbox test", now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pool(t *testing.T, a *tlswire.Authority) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(a.CertificatePEM()) {
		t.Fatal("no certificate in CertificatePEM")
	}
	return p
}

// handshake connects a client to a gate that is name.
func handshake(a *tlswire.Authority, name string, client *tls.Config) (tls.ConnectionState, error) {
	config, err := a.ServerConfig(name, "h2", "http/1.1")
	if err != nil {
		return tls.ConnectionState{}, err
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Server(theirs, config).Handshake()
		theirs.Close()
	}()
	c := tls.Client(ours, client)
	err = c.Handshake()
	ours.Close()
	<-done
	return c.ConnectionState(), err
}

func TestCertificate(t *testing.T) {
	a, other := newAuthority(t, nil), newAuthority(t, nil)
	tests := []struct {
		name, gate, client string
		roots              *tlswire.Authority
		want               string // of the error
	}{
		{"name", "a.example", "a.example", a, ""},
		{"upper-case", "A.example", "a.example", a, ""},
		{"trailing-dot", "a.example.", "a.example", a, ""},
		{"address", "192.0.2.1", "192.0.2.1", a, ""},
		{"address-6", "2001:DB8::1", "2001:db8::1", a, ""},
		{"mapped-address", "::ffff:192.0.2.1", "192.0.2.1", a, ""},
		{"long-name", strings.Repeat("a.", 100) + "example", strings.Repeat("a.", 100) + "example", a, ""},
		{"wrong-name", "a.example", "b.example", a, "not b.example"},
		{"wrong-authority", "a.example", "a.example", other, "unknown authority"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, err := handshake(a, tt.gate, &tls.Config{
				ServerName: tt.client,
				RootCAs:    pool(t, tt.roots),
				NextProtos: []string{"h2"},
			})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("handshake = %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if state.NegotiatedProtocol != "h2" || state.Version != tls.VersionTLS13 {
				t.Errorf("agreed on %q, %#x", state.NegotiatedProtocol, state.Version)
			}
		})
	}
}

func TestCertificateRefuses(t *testing.T) {
	a := newAuthority(t, nil)
	for _, name := range []string{"", ".", "a..example", "*.example", "a.example\x00", "127.1", "fe80::1%eth0", strings.Repeat("a", 64)} {
		if _, err := a.Certificate(name); err == nil {
			t.Errorf("Certificate(%q) succeeded", name)
		}
	}
}

// What strict verifiers want of an authority, and what it may not do.
func TestAuthorityCertificate(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := newAuthority(t, func() time.Time { return now })
	leaf, err := a.Certificate("a.example")
	if err != nil {
		t.Fatal(err)
	}
	c := leaf.Leaf
	if len(c.AuthorityKeyId) == 0 || c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Error("the leaf lacks what OpenSSL's X509_V_FLAG_X509_STRICT wants")
	}
	if !c.NotBefore.Equal(now.Add(-time.Hour)) || c.NotAfter.Sub(now) > 8*24*time.Hour {
		t.Errorf("valid from %s to %s", c.NotBefore, c.NotAfter)
	}
	// A leaf that was signed by a leaf leads to no root.
	roots := pool(t, a)
	verify := func(at time.Time) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: "a.example", CurrentTime: at})
		return err
	}
	if err := verify(now); err != nil {
		t.Error(err)
	}
	if err := verify(now.Add(8 * 24 * time.Hour)); err == nil {
		t.Error("verified after its time")
	}
}

func TestParseAuthority(t *testing.T) {
	a, other := newAuthority(t, nil), newAuthority(t, nil)
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := other.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := tlswire.ParseAuthority(a.CertificatePEM(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.Fingerprint() != a.Fingerprint() || a.Fingerprint() == other.Fingerprint() {
		t.Errorf("fingerprints %s, %s and of another %s", a.Fingerprint(), again.Fingerprint(), other.Fingerprint())
	}
	if _, err := handshake(again, "a.example", &tls.Config{ServerName: "a.example", RootCAs: pool(t, a)}); err != nil {
		t.Errorf("signed by what was parsed: %v", err)
	}
	tests := []struct {
		name      string
		cert, key []byte
		want      string
	}{
		{"other-key", a.CertificatePEM(), otherKey, "the key is not the certificate's"},
		{"swapped", key, a.CertificatePEM(), "not one PEM block"},
		{"two", bytes.Repeat(a.CertificatePEM(), 2), key, "not one PEM block"},
		{"empty", nil, nil, "not one PEM block"},
	}
	for _, tt := range tests {
		if _, err := tlswire.ParseAuthority(tt.cert, tt.key, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestCertificatesAreKept(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, func() time.Time { return now })
	serial := func(name string) string {
		c, err := a.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber.String()
	}
	first := serial("a.example")
	if got := serial("A.Example."); got != first {
		t.Error("the same name got another certificate")
	}
	if got := serial("b.example"); got == first {
		t.Error("another name got the same certificate")
	}
	for i := range 255 { // with a.example 256
		serial(fmt.Sprintf("%d.many.example", i))
		serial("a.example")
	}
	if serial("a.example") != first {
		t.Error("the one used last was dropped")
	}
	for i := range 256 {
		serial(fmt.Sprintf("%d.others.example", i))
	}
	if serial("a.example") == first {
		t.Error("more are kept than the bound")
	}
	first = serial("a.example")
	now = now.Add(5 * 24 * time.Hour)
	if serial("a.example") == first {
		t.Error("one that ends soon is kept")
	}
}

func TestCertificateIsMadeOnce(t *testing.T) {
	a := newAuthority(t, nil)
	var (
		wg  sync.WaitGroup
		got [16]*tls.Certificate
	)
	for i := range got {
		wg.Go(func() { got[i], _ = a.Certificate("a.example") })
	}
	wg.Wait()
	for _, c := range got {
		if c == nil || c != got[0] {
			t.Fatal("several certificates were made for one name at the same time")
		}
	}
}

// A client that sees its hello replayed notices nothing.
func TestReplay(t *testing.T) {
	a := newAuthority(t, nil)
	ours, theirs := net.Pipe()
	defer ours.Close()
	served := make(chan error, 1)
	go func() {
		defer theirs.Close()
		h, raw, err := tlswire.ReadHello(theirs)
		if err != nil {
			served <- err
			return
		}
		config, err := a.ServerConfig(h.SNI)
		if err != nil {
			served <- err
			return
		}
		c := tls.Server(tlswire.Replay(theirs, raw), config)
		_, err = io.WriteString(c, "hello from "+h.SNI)
		served <- err
		c.Close()
	}()
	c := tls.Client(ours, &tls.Config{ServerName: "a.example", RootCAs: pool(t, a)})
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "hello from a.example" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func BenchmarkCertificate(b *testing.B) {
	a := newAuthority(b, nil)
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			_, _ = a.Certificate("a.example")
		}
	})
	b.Run("new", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := a.Certificate(fmt.Sprintf("%d.example", i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// OpenSSL, as strict as Python has it since 3.13, takes what is signed, and
// refuses it under another name.
func TestOpenSSLVerifies(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	a := newAuthority(t, nil)
	dir := t.TempDir()
	write := func(name string, p []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", a.CertificatePEM())
	long := strings.Repeat("a.", 40) + "example"
	tests := []struct{ name, flag, as, other string }{
		{"host", "-verify_hostname", "a.example", "b.example"},
		{"address", "-verify_ip", "192.0.2.1", "192.0.2.2"},
		{"long", "-verify_hostname", long, "example"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := a.Certificate(tt.as)
			if err != nil {
				t.Fatal(err)
			}
			leaf := write(tt.name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
			verify := func(name string) ([]byte, error) {
				return exec.Command("openssl", "verify", "-x509_strict", "-purpose", "sslserver",
					"-CAfile", ca, tt.flag, name, leaf).CombinedOutput()
			}
			if out, err := verify(tt.as); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := verify(tt.other); err == nil {
				t.Errorf("taken for %s\n%s", tt.other, out)
			}
		})
	}
}
