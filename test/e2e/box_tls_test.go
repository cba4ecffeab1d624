package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// ownCertificate writes a certificate of 127.0.0.1 that vouches for itself, and
// its key.
func ownCertificate(t *testing.T, cert, keyFile string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "box"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	kb, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: kb}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1_700_000_000+serial, 0) // a file system's clock may be coarse
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// TestBoxTLS has the dialect speak TLS with clients of several kinds, and with
// none in clear.
func TestBoxTLS(t *testing.T) {
	h := newHome(t)
	dir := t.TempDir()
	token := strings.Repeat("t", 40)
	files := map[string]string{"cert": "cert.pem", "key": "key.pem", "token": "token"}
	for k, name := range files {
		files[k] = filepath.Join(dir, name)
	}
	if err := os.WriteFile(files["token"], []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pool := ownCertificate(t, files["cert"], files["key"], 1)
	addr := h.listen("langbot", "serve", "--listen", "127.0.0.1:0", "--isolation", "process", "--control-token-file", files["token"],
		"--tls-cert", files["cert"], "--tls-key", files["key"])

	t.Run("by-its-description", func(t *testing.T) {
		t.Setenv("BOX_CA", files["cert"])
		t.Setenv("BOX_TOKEN", token)
		scenarios(t, addr, "secure")
	})
	t.Run("client", func(t *testing.T) { tlsClient(t, addr, token, pool) })
	t.Run("tools", func(t *testing.T) { tlsTools(t, addr, files["cert"]) })
	t.Run("versions", func(t *testing.T) {
		for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
			c, err := tls.Dial("tcp", addr, &tls.Config{MinVersion: version, MaxVersion: version, RootCAs: pool})
			if err == nil {
				c.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
		}
	})
	t.Run("in-clear", func(t *testing.T) {
		resp, err := http.Get("http://" + addr + "/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("answered %s", resp.Status)
			}
		}
	})
	t.Run("renewed", func(t *testing.T) {
		ownCertificate(t, files["cert"], files["key"], 2)
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != 2 {
			t.Errorf("the certificate is %d, want 2", got)
		}
	})
}

// tlsClient has the Go client trust that certificate, and no other.
func tlsClient(t *testing.T, addr, token string, pool *x509.CertPool) {
	open := func(o boxservice.Options) (*boxservice.Connector, error) {
		o.Token = token
		c, err := boxservice.NewConnector(o)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		return c, c.Open(t.Context())
	}
	c, err := open(boxservice.Options{Endpoint: "wss://" + addr, RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().Create(t.Context(), boxservice.NewSpec("s", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().StartProcess(t.Context(), "s", sessions.ProcessSpec{ProcessID: "p", Command: "cat"}); err != nil {
		t.Fatal(err)
	}
	a, err := c.Client().Attach(t.Context(), "s", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.WriteLine(t.Context(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if line, err := a.ReadLine(t.Context()); err != nil || string(line) != "hello" {
		t.Errorf("the relay has %q, %v", line, err)
	}
	for name, o := range map[string]boxservice.Options{
		"nobody-vouches":    {Endpoint: "wss://" + addr},
		"somebody-else":     {Endpoint: "wss://" + addr, RootCAs: x509.NewCertPool()},
		"another-name":      {Endpoint: "wss://" + strings.Replace(addr, "127.0.0.1", "localhost", 1), RootCAs: pool},
		"in-clear":          {Endpoint: "ws://" + addr},
		"in-clear-with-CAs": {Endpoint: "ws://" + addr, RootCAs: pool},
	} {
		if _, err := open(o); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

// tlsTools has curl and openssl see it as any server of HTTPS.
func tlsTools(t *testing.T, addr, ca string) {
	run := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience.For(time.Minute))
		defer cancel()
		b, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		return string(b), err
	}
	if _, err := exec.LookPath("curl"); err == nil {
		if out, err := run("curl", "-sS", "--cacert", ca, "https://"+addr+"/healthz"); err != nil || !strings.Contains(out, `"live":true`) {
			t.Errorf("curl: %v\n%s", err, out)
		}
		if out, err := run("curl", "-sS", "https://"+addr+"/healthz"); err == nil {
			t.Errorf("curl without the CA: %s", out)
		}
	}
	if _, err := exec.LookPath("openssl"); err == nil {
		if out, err := run("sh", "-c", "echo | openssl s_client -verify_return_error -CAfile "+ca+" -connect "+addr); err != nil || !strings.Contains(out, "Verify return code: 0 (ok)") {
			t.Errorf("openssl: %v\n%s", err, out)
		}
	}
}
