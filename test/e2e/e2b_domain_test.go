package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestE2BDomain has E2B's SDK find everything by a domain, over TLS, as on a
// server that has a name: over each wall.
func TestE2BDomain(t *testing.T) {
	for _, wall := range e2bWalls {
		t.Run(wall, func(t *testing.T) {
			t.Parallel()
			newE2BDomain(t, wall).node(t, "../e2b/domain.mjs", "e2b")
		})
	}
}

// newE2BDomain is newE2BServer at port 443 of a world's own loopback, with a
// certificate for all names below the domain by the world's root.
func newE2BDomain(t *testing.T, wall string) *e2bServer {
	t.Helper()
	const domain = "sandboxes.example"
	w := newWorld(t)
	h := w.home()
	pair := w.certificate(nil, domain, "*."+domain)
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(h.dir, "cert.pem"), filepath.Join(h.dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.settings(map[string]any{
		"domain": domain, "e2b_isolation": wall, "weakest_isolation": wall, "listen": "127.0.0.1:443", "tls_cert": cert, "tls_key": key,
	})
	secret := newE2BKey()
	h.serveOn("127.0.0.1:443", secret)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "E2B_") })
	return &e2bServer{h: h, wall: wall, env: append(env,
		"E2B_API_KEY="+secret, "E2B_DOMAIN="+domain, "NODE_EXTRA_CA_CERTS="+w.roots, "CARBOY_WALL="+wall)}
}
