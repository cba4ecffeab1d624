package tlswire

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
)

// Fingerprint returns the SHA-256 of the certificate, in lower-case
// hexadecimal.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// ServerConfig returns the configuration of a handshake in which the gate is
// name, with the protocols of ALPN that it may agree on. TLS 1.2 and 1.3.
func (a *Authority) ServerConfig(name string, protocols ...string) (*tls.Config, error) {
	cert, err := a.Certificate(name)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{*cert},
		NextProtos:   protocols,
		MinVersion:   tls.VersionTLS12,
		Time:         a.now,
		// The link leaves no machine: a post-quantum exchange would protect
		// nothing there, and costs more than all else of a handshake.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		// One signature is cheaper than keeping tickets right: they would have
		// to be bound to a name and to a policy.
		SessionTicketsDisabled: true,
	}, nil
}
