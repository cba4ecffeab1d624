package trust_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/trust"
)

const fetchVariable = "CARBOY_TEST_FETCH"

// TestMain is also a program in Go that fetches something.
func TestMain(m *testing.M) {
	if url := os.Getenv(fetchVariable); url != "" {
		res, err := http.Get(url)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, _ = io.Copy(os.Stdout, res.Body)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// inJava fetches its argument.
const inJava = `public class Fetch { public static void main(String[] a) throws Exception {
	System.out.print(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }`

// machine is this machine's own files under another root, in which what is
// changed does not last.
func machine(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir, err := os.MkdirTemp("", "carboy-trust-") // a test's own would be part of what is below
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
	root := filepath.Join(dir, "root")
	mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+dir+"/upper,workdir="+dir+"/work")
	mount("/proc", root+"/proc", "", unix.MS_BIND, "")
	mount("/dev", root+"/dev", "", unix.MS_BIND, "")
	mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777")
	return root
}

// serve answers every request under the authority, for the gate's name.
func serve(t *testing.T, a authority) (url string) {
	t.Helper()
	leaf := makeCertificate(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "gate"}, DNSNames: []string{"gate.carboy.internal"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &a)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			fmt.Fprintf(w, "%040d\trefs/heads/trusted\n", 1)
		case strings.HasPrefix(r.URL.Path, "/simple/"):
			fmt.Fprint(w, `<!DOCTYPE html><html><body><a href="/trusted-1.0.tar.gz">trusted-1.0.tar.gz</a></body></html>`)
		case strings.HasPrefix(r.URL.Path, "/npm/"):
			fmt.Fprint(w, `{"name":"trusted","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"trusted","version":"1.0.0","dist":{"tarball":"http://127.0.0.1/x","shasum":"x"}}}}`)
		default:
			fmt.Fprint(w, "trusted")
		}
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key}}}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "https://gate.carboy.internal:" + port
}

// client is a program in the other root, and what it fetches with.
type client struct {
	name, tool string
	args       []string
	bare       bool // without our variables
}

// fetches reports whether the client got what the server has, and what it
// said. One that this machine lacks is skipped.
func (c client) fetches(t *testing.T, root, url string, env []string) (string, bool) {
	path := c.tool
	if !filepath.IsAbs(path) {
		var err error
		if path, err = exec.LookPath(path); err != nil {
			t.Skip(err)
		}
	}
	cmd := exec.Command(path, c.args...)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp", "LC_ALL=C.UTF-8", "NO_PROXY=*", fetchVariable + "=" + url}
	if !c.bare {
		cmd.Env = append(cmd.Env, env...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil && bytes.Contains(out, []byte("trusted"))
}

// programs puts what the machine lacks into its root.
func programs(t *testing.T, root string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"/tmp/fetch": data, "/tmp/Fetch.java": []byte(inJava)} {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Programs as they are installed trust the gate, and don't before.
func TestStockClients(t *testing.T) {
	root, a := machine(t), newAuthority(t, "Sandbox")
	url := serve(t, a)
	programs(t, root)
	o := trust.Options{Root: root, Nameservers: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Gate: "gate.carboy.internal"}
	if _, err := trust.Install(o); err != nil { // the name alone
		t.Fatal(err)
	}
	tests := []client{
		{"curl", "curl", []string{"-sS", url}, false},
		{"curl-bare", "curl", []string{"-sS", url}, true},
		{"wget", "wget", []string{"-qO-", url}, true},
		{"git", "git", []string{"ls-remote", url + "/repo.git"}, false},
		{"git-bare", "git", []string{"ls-remote", url + "/repo.git"}, true},
		{"openssl-directory", "sh", []string{"-c", "echo Q | openssl s_client -no-CAfile -CApath /etc/ssl/certs -verify_return_error -verify_quiet -connect " + strings.TrimPrefix(url, "https://") + " >/dev/null && echo trusted"}, true},
		{"python", "python3", []string{"-c", "import urllib.request as r; print(r.urlopen('" + url + "').read())"}, true},
		{"pip", "pip", []string{"index", "versions", "--retries=0", "--disable-pip-version-check", "--index-url", url + "/simple", "trusted"}, false},
		{"node", "node", []string{"-e", "fetch('" + url + "').then(r=>r.text()).then(console.log)"}, false},
		{"npm", "npm", []string{"view", "--fetch-retries=0", "--registry", url + "/npm", "trusted", "name"}, false},
		{"go", "/tmp/fetch", nil, true},
		{"java", "java", []string{"/tmp/Fetch.java", url}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name+"-before", func(t *testing.T) {
			if out, ok := tt.fetches(t, root, url, nil); ok {
				t.Errorf("it trusts already: %s", out)
			}
		})
	}
	o.Authority = a.pem
	env, err := trust.Install(o)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if out, ok := tt.fetches(t, root, url, list); !ok {
				t.Errorf("it does not trust: %s", out)
			}
		})
	}
	// What a distribution has to make its files anew keeps it.
	for _, args := range [][]string{nil, {"--fresh"}} {
		t.Run("update-ca-certificates"+strings.Join(args, ""), func(t *testing.T) {
			update := client{tool: "update-ca-certificates", args: args}
			if out, _ := update.fetches(t, root, url, nil); !strings.Contains(out, "done") {
				t.Fatalf("%s", out)
			}
			for _, tt := range tests {
				if !slices.Contains([]string{"curl-bare", "openssl-directory", "java"}, tt.name) {
					continue
				}
				if out, ok := tt.fetches(t, root, url, nil); !ok {
					t.Errorf("%s does not trust: %s", tt.name, out)
				}
			}
		})
	}
}
