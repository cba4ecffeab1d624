package tlswire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Validity of what an Authority signs.
const (
	// authorityLife outlasts any sandbox: the key is gone with its sandbox, and
	// that is what ends the authority.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	leafRenew     = leafLife / 2 // what must be left of it
	backdate      = time.Hour    // for a guest whose clock is behind
)

// Authority signs certificates for one sandbox. Its methods may be called by
// several goroutines.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // one for all: who has one has the process that holds them all
	now  func() time.Time

	cache cache
}

// NewAuthority makes an authority with a key of its own. name is how tools
// show it: what it is, and for which sandbox; at most 64 bytes count. now may
// be nil: time.Now.
func NewAuthority(name string, now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority: key: %w", err)
	}
	template, err := newTemplate(now(), authorityLife)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: name[:min(len(name), 64)]}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.MaxPathLenZero = true // no authority below it
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority: sign: %w", err)
	}
	return newAuthority(der, key, now)
}

// ParseAuthority reads what CertificatePEM and KeyPEM wrote. It refuses a key
// that is another certificate's, and a certificate that signs none.
func ParseAuthority(certPEM, keyPEM []byte, now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	cert, err := onePEM(certPEM, "CERTIFICATE")
	if err != nil {
		return nil, fmt.Errorf("authority: certificate: %w", err)
	}
	der, err := onePEM(keyPEM, "PRIVATE KEY")
	if err != nil {
		return nil, fmt.Errorf("authority: key: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("authority: key: no PKCS #8") // the cause might quote it
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("authority: key: not of ECDSA")
	}
	a, err := newAuthority(cert, key, now)
	if err != nil {
		return nil, err
	}
	switch {
	case !key.PublicKey.Equal(a.cert.PublicKey):
		return nil, errors.New("authority: the key is not the certificate's")
	case !a.cert.IsCA || a.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("authority: the certificate is no authority's")
	}
	return a, nil
}

// onePEM returns what is in the only block of text.
func onePEM(text []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("not one PEM block of type %q", kind)
	}
	return block.Bytes, nil
}

func newAuthority(der []byte, key *ecdsa.PrivateKey, now func() time.Time) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority: certificate: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority: key: %w", err)
	}
	return &Authority{cert: cert, key: key, leaf: leaf, now: now}, nil
}

// CertificatePEM returns the authority's certificate, for guests to trust.
func (a *Authority) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// KeyPEM returns its private key, in PKCS #8. Who has it can pose as any host
// towards this one sandbox.
func (a *Authority) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("authority: key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Certificate returns a certificate for a name: a DNS name in any case, or an
// IP address. It is one of those made before while that is valid for days. Not
// to be changed. A name that can't be one is an error.
func (a *Authority) Certificate(name string) (*tls.Certificate, error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" {
			return nil, fmt.Errorf("certificate: %q: an address with a zone", name)
		}
		name = addr.Unmap().String()
	} else if name, err = serverName(strings.TrimSuffix(name, ".")); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return a.cache.get(name, a.now().Add(leafRenew), a.sign)
}

// sign makes the certificate of a name that Certificate has made canonical.
func (a *Authority) sign(name string) (*tls.Certificate, error) {
	template, err := newTemplate(a.now(), leafLife)
	if err != nil {
		return nil, err
	}
	if len(name) <= 64 {
		template.Subject.CommonName = name
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{name}
	}
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate: sign: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: leaf}, nil
}

// newTemplate holds what every certificate has: a random serial number of 127
// bits, and its validity.
func newTemplate(now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("certificate: serial number: %w", err)
	}
	serial.Add(serial, big.NewInt(1)) // never zero
	return &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(life),
	}, nil
}
