package trust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"iter"
	"maps"
	"math/big"
	"net/netip"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/trust"
)

// authority is a sandbox's own, with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) authority {
	t.Helper()
	return makeCertificate(t, x509.Certificate{
		Subject: pkix.Name{Organization: []string{"Carboy"}, CommonName: name},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
}

// makeCertificate fills in a template. Without a parent it signs itself.
func makeCertificate(t testing.TB, template x509.Certificate, parent *authority) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	issuer, signer := &template, key
	if parent != nil {
		issuer, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, issuer, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

var nameservers = []netip.Addr{netip.MustParseAddr("192.0.0.1"), netip.MustParseAddr("fd63:6172:626f:7900::1")}

func options(root string, a authority) trust.Options {
	return trust.Options{Root: root, Nameservers: nameservers, Gate: "gate.carboy.internal", Authority: a.pem}
}

func install(t testing.TB, root string, a authority) map[string]string {
	t.Helper()
	env, err := trust.Install(options(root, a))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func keys(m map[string]string) iter.Seq[string] { return maps.Keys(m) }

func subjectOf(t testing.TB, der []byte) []byte {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert.RawSubject
}
