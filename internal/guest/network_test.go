package guest_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Sandbox"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// copied has the agent of an instance in a copy-on-write root of this machine's.
func copied(t *testing.T) (root string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "carboy-root-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	mount := func(source, target, kind string, flags uintptr, opts string) {
		if err := unix.Mount(source, target, kind, flags, opts); err != nil {
			t.Skip("mount:", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	mount("tmpfs", dir, "tmpfs", 0, "mode=755")
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root = filepath.Join(dir, "root")
	mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+dir+"/upper,workdir="+dir+"/work")
	mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, "")
	mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777")
	return root
}

// probe asks for one attempt after another, by name.
func (b *instance) probe(p api.Probe) map[string]api.ProbeResult {
	b.t.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := b.http.Post("http://agent/carboy/probe", "application/json", bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s, %v", res.Status, text, err)
	}
	var answer api.ProbeAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		b.t.Fatal(err)
	}
	by := map[string]api.ProbeResult{}
	for _, r := range answer.Results {
		by[r.Name] = r
	}
	return by
}

const look = `cat /etc/resolv.conf | grep ^nameserver; getent hosts gate.test; readlink /etc/ssl/certs/carboy.pem; ls /usr/local/share/ca-certificates/carboy.crt
	for v in $SSL_CERT_FILE $PIP_CERT $NODE_EXTRA_CA_CERTS; do openssl crl2pkcs7 -nocrl -certfile $v | openssl pkcs7 -print_certs -noout | grep -c 'subject=CN = Sandbox'; done
	echo $GIT_SSL_CAINFO; grep -rl 'PRIVATE KEY' /etc/ssl/certs /usr/local/share/ca-certificates /etc/carboy`

// An instance is connected before its first command, or when it is claimed.
func TestNetwork(t *testing.T) {
	n := &api.Network{Nameservers: []string{"192.0.0.1"}, Gate: "gate.test", Trust: authority(t)}
	env := map[string]string{"GIT_SSL_CAINFO": "/mine"}
	want := "nameserver 192.0.0.1\n192.0.0.1       gate.test\n/etc/carboy/ca.crt\n/usr/local/share/ca-certificates/carboy.crt\n1\n1\n1\n/mine\n"
	claim, err := json.Marshal(map[string]any{"env": env, "network": n})
	if err != nil {
		t.Fatal(err)
	}
	for _, claimed := range []bool{false, true} {
		b := start(t, func(c *control.Config) {
			c.Env = env
			if !claimed {
				c.Network = n
			}
		}, copied(t))
		if claimed {
			if out, _ := b.sh("", look); strings.Contains(out, "192.0.0.1") {
				t.Errorf("before it is claimed: %q", out)
			}
			if got := b.post("/carboy/claim", `{"network":{"nameservers":["x"]}}`); got != http.StatusBadRequest {
				t.Errorf("a bad claim: status %d", got)
			}
			if got := b.post("/carboy/claim", string(claim)); got != http.StatusNoContent {
				t.Errorf("status %d", got)
			}
		}
		if out, _ := b.sh("", look); out != want {
			t.Errorf("claimed %v: got %q, want %q", claimed, out, want)
		}
		if got := b.post("/init", `{"envVars":{"PIP_CERT":"/other"}}`); got != http.StatusNoContent {
			t.Errorf("status %d", got)
		}
		if out, _ := b.sh("", "echo $PIP_CERT $GIT_SSL_CAINFO; test -r $SSL_CERT_FILE && echo read"); out != "/other /mine\nread\n" {
			t.Errorf("after init: %q", out)
		}
		var s struct{ Lacks []string }
		if b.get("/carboy/status", &s); strings.Contains(strings.Join(s.Lacks, " "), "network") {
			t.Errorf("it lacks %q", s.Lacks)
		}
	}
}

// Without a network an image's name servers are nobody's, and no look-up
// waits for them.
func TestNoNetwork(t *testing.T) {
	root := copied(t)
	if err := os.WriteFile(filepath.Join(root, "etc/resolv.conf"), []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := start(t, func(c *control.Config) { c.Furnish = true }, root)
	out, _ := b.sh("", "grep ^nameserver /etc/resolv.conf; env | grep -c CERT; echo $PIP_RETRIES $npm_config_fetch_retries")
	if out != "nameserver 127.0.0.1\n0\n0 0\n" {
		t.Errorf("got %q", out)
	}
}

// The probe has a command's rights, and what is refused is so by the network.
func TestProbe(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	defer ln.Close()
	b := start(t, func(c *control.Config) { c.Strict = true }, "")
	got := b.probe(api.Probe{TimeoutMS: 200, Attempts: []api.Attempt{
		{Name: "open", Network: "tcp", Address: ln.Addr().String(), Want: "open"},
		{Name: "should-not", Network: "tcp", Address: ln.Addr().String(), Want: "refused"},
		{Name: "closed", Network: "tcp", Address: closed.Addr().String(), Want: "refused"},
		{Name: "raw", Network: "raw", Want: "refused"},
	}})
	for name, want := range map[string]api.ProbeResult{
		"open":       {OK: true, Outcome: "connected"},
		"should-not": {OK: false, Outcome: "connected"},
		"closed":     {OK: true, Outcome: "refused"},
		"raw":        {OK: true, Outcome: "denied"},
	} {
		if r := got[name]; r.OK != want.OK || r.Outcome != want.Outcome {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	if status := b.post("/carboy/probe", `{"attempts":[]}`); status != http.StatusBadRequest {
		t.Errorf("an empty one: status %d", status)
	}
	// The thread is a command's again.
	if out, _ := b.sh("", "id -u"); out != "1000\n" {
		t.Errorf("a command afterwards: %q", out)
	}
}
