package secret_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func privateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// TestKey: a private key is kept with its lines, for remotes alone, and stays one when it is rotated.
func TestKey(t *testing.T) {
	s := mustOpen(t, options(t))
	for _, bad := range []string{"", "no key at all", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", privateKey(t) + "and more"} {
		src := text(bad)
		src.Key = true
		if _, err := s.Put(t.Context(), me, "DEPLOY", src); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Put of %.20q: %v", bad, err)
		}
	}
	_, err := s.Put(t.Context(), me, "DEPLOY", text(privateKey(t))) // no header could have it
	wantKind(t, err, sandbox.Invalid)
	first, second := privateKey(t), privateKey(t)
	src := text(first)
	src.Key = true
	if info := mustPut(t, s, me, "DEPLOY", src); !info.Key {
		t.Errorf("Put = %+v", info)
	}
	again := text(second)
	if _, err := s.Rotate(t.Context(), me, "DEPLOY", &again); err != nil {
		t.Fatal(err)
	}
	m, err := s.ForRemote(t.Context(), me, "", "DEPLOY")
	if err != nil || !m.Key || m.Value.Reveal() != second {
		t.Errorf("ForRemote: %v, a key: %t", err, m.Key)
	}
	_, err = s.Value(t.Context(), me, "", "DEPLOY")
	wantKind(t, err, sandbox.Invalid)
	mustPut(t, s, me, "TOKEN", text(value))
	if m, err := s.ForRemote(t.Context(), me, "", "TOKEN"); err != nil || m.Key || m.Value.Reveal() != value {
		t.Errorf("ForRemote of a token: %v", err)
	}
}

// TestReadFile: what a record names is read with its owner's rights, who must be a user of this machine. What only
// others may read is not, nor by way of a descriptor of this process's.
func TestReadFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to take another user's rights")
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	const nobody = "uid:65534"
	if v, err := secret.ReadFile("uid:0", file); err != nil || v.Reveal() != "text" {
		t.Errorf("root's own: %v", err)
	}
	_, err := secret.ReadFile(nobody, file)
	wantKind(t, err, sandbox.Unavailable)
	if err := os.Chown(file, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if v, err := secret.ReadFile(nobody, file); err != nil || v.Reveal() != "text" {
		t.Errorf("once it is its own: %v", err)
	}
	_, err = secret.ReadFile("key:k", file)
	wantKind(t, err, sandbox.Denied)
	_, err = secret.ReadFile("uid:0", "key")
	wantKind(t, err, sandbox.Invalid)
	_, err = secret.ReadFile("uid:0", "/proc/self/fd/0")
	wantKind(t, err, sandbox.Unavailable)

	socket := filepath.Join(dir, "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := secret.Dial(t.Context(), "uid:0", socket); err != nil {
		t.Errorf("root's own socket: %v", err)
	} else {
		c.Close()
	}
	_, err = secret.Dial(t.Context(), nobody, socket)
	wantKind(t, err, sandbox.Unavailable)
}
