package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

// writeCertificate writes a new certificate of "localhost" with a serial
// number, and its key.
func writeCertificate(t *testing.T, cert, keyFile string, serial int64) *x509.Certificate {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kb, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: kb}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// A file system's clock may be coarse.
		at := time.Unix(1_700_000_000+serial, 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func tlsConfig(t *testing.T) daemon.Config {
	t.Helper()
	_, hash, err := key.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(`{"id":"a","hash":"`+hash+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := daemon.DefaultConfig(newHome(t))
	cfg.Listen, cfg.APIKeyFile = "127.0.0.1:0", keys
	cfg.TLSCert, cfg.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	return cfg
}

func TestTLS(t *testing.T) {
	cfg := tlsConfig(t)
	first := writeCertificate(t, cfg.TLSCert, cfg.TLSKey, 1)
	r := run(t, cfg, deps(sandboxtest.New("gvisor")))
	addr := r.addrs[1].String()
	seen := func(trusted *x509.Certificate, h2 bool) *http.Response {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AddCert(trusted)
		tr := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, ForceAttemptHTTP2: h2, DisableKeepAlives: true,
		}
		resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("https://" + addr + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := seen(first, true); resp.ProtoMajor != 2 || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("by TLS: %s %s, want HTTP/2 and 401", resp.Proto, resp.Status)
	}
	if resp := seen(first, false); resp.ProtoMajor != 1 {
		t.Errorf("who knows no HTTP/2 got %s", resp.Proto)
	}
	if resp, err := http.Get("http://" + addr + "/health"); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("in clear: %s, want it refused", resp.Status)
		}
	}
	if c, err := tls.Dial("tcp", addr, &tls.Config{MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}); err == nil {
		c.Close()
		t.Error("TLS 1.1 was accepted")
	}
	second := writeCertificate(t, cfg.TLSCert, cfg.TLSKey, 2)
	if got := seen(second, true).TLS.PeerCertificates[0].SerialNumber.Int64(); got != 2 {
		t.Errorf("after a renewal: certificate %d, want 2", got)
	}
	if err := os.WriteFile(cfg.TLSCert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := seen(second, true).TLS.PeerCertificates[0].SerialNumber.Int64(); got != 2 {
		t.Errorf("while its file is broken: certificate %d, want 2", got)
	}
	third := writeCertificate(t, cfg.TLSCert, cfg.TLSKey, 3)
	if got := seen(third, true).TLS.PeerCertificates[0].SerialNumber.Int64(); got != 3 {
		t.Errorf("once it is whole: certificate %d, want 3", got)
	}
	if err := errors.Join(os.Remove(cfg.TLSKey), unix.Mkfifo(cfg.TLSKey, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := seen(third, true).TLS.PeerCertificates[0].SerialNumber.Int64(); got != 3 {
		t.Errorf("while a pipe has the key's name: certificate %d, want 3", got)
	}
	if _, err := dial(t, cfg.Dirs).Status(t.Context()); err != nil {
		t.Errorf("the unix socket: %v", err)
	}
}

func TestTLSRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, cfg *daemon.Config)
		want  sandbox.Kind
	}{
		{"no-key", func(_ *testing.T, cfg *daemon.Config) { cfg.TLSKey = "" }, sandbox.Invalid},
		{"no-cert", func(_ *testing.T, cfg *daemon.Config) { cfg.TLSCert = "" }, sandbox.Invalid},
		{"no-address", func(_ *testing.T, cfg *daemon.Config) { cfg.Listen, cfg.APIKeyFile = "", "" }, sandbox.Invalid},
		{"no-file", func(_ *testing.T, cfg *daemon.Config) { cfg.TLSCert += "x" }, sandbox.Invalid},
		{"a-directory", func(_ *testing.T, cfg *daemon.Config) { cfg.TLSCert = filepath.Dir(cfg.TLSCert) }, sandbox.Denied},
		{"a-pipe", func(t *testing.T, cfg *daemon.Config) {
			cfg.TLSCert = filepath.Join(t.TempDir(), "pipe")
			if err := unix.Mkfifo(cfg.TLSCert, 0o600); err != nil {
				t.Fatal(err)
			}
		}, sandbox.Denied},
		{"certificate-of-all", func(t *testing.T, cfg *daemon.Config) {
			if err := os.Chmod(cfg.TLSCert, 0o666); err != nil {
				t.Fatal(err)
			}
		}, sandbox.Denied},
		{"key-for-all", func(t *testing.T, cfg *daemon.Config) {
			if err := os.Chmod(cfg.TLSKey, 0o644); err != nil {
				t.Fatal(err)
			}
		}, sandbox.Denied},
		{"another-key", func(t *testing.T, cfg *daemon.Config) {
			writeCertificate(t, filepath.Join(t.TempDir(), "c"), cfg.TLSKey, 3)
		}, sandbox.Invalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := tlsConfig(t)
			writeCertificate(t, cfg.TLSCert, cfg.TLSKey, 1)
			tc.spoil(t, &cfg)
			if err := daemon.Run(t.Context(), cfg, deps(sandboxtest.New("gvisor"))); sandbox.KindOf(err) != tc.want {
				t.Errorf("Run = %v, want %s", err, tc.want)
			}
		})
	}
}
