package trust_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/trust"
)

// Where the certificate is by itself.
const (
	ownFile  = "etc/carboy/ca.crt"
	certFile = "usr/local/share/ca-certificates/carboy.crt"
)

// image makes a tree: what begins with "->" is a link, what ends in a slash a
// directory.
func image(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		dir := filepath.Dir(p)
		if strings.HasSuffix(name, "/") {
			dir = p
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, p)
		} else if dir != p {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// snapshot is a tree's names with what they hold.
func snapshot(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, p)
		switch {
		case err != nil:
			return err
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			all[rel] = "->" + target
			return err
		case d.Type().IsRegular():
			text, err := os.ReadFile(p)
			all[rel] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestInstall(t *testing.T) {
	public := string(newAuthority(t, "Public Root").pem)
	tests := []struct {
		name  string
		files map[string]string
		holds []string // files that hold both authorities
		main  string   // what the environment names
	}{
		{
			name:  "debian",
			files: map[string]string{"etc/ssl/certs/ca-certificates.crt": public},
			holds: []string{"etc/ssl/certs/ca-certificates.crt"},
			main:  "/etc/ssl/certs/ca-certificates.crt",
		},
		{
			name: "alpine",
			files: map[string]string{
				"etc/ssl/certs/ca-certificates.crt": public, "etc/ssl/cert.pem": "->certs/ca-certificates.crt",
			},
			holds: []string{"etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem"},
			main:  "/etc/ssl/certs/ca-certificates.crt",
		},
		{
			name: "fedora",
			files: map[string]string{
				"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": public,
				"etc/pki/ca-trust/source/anchors/":                 "",
				"etc/pki/tls/certs/ca-bundle.crt":                  "->/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
				"etc/pki/tls/cert.pem":                             "->certs/ca-bundle.crt",
				"etc/ssl/certs":                                    "->../pki/tls/certs",
			},
			holds: []string{"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"},
			main:  "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		},
		{
			name: "suse",
			files: map[string]string{
				"var/lib/ca-certificates/ca-bundle.pem": public,
				"etc/ssl/ca-bundle.pem":                 "->/var/lib/ca-certificates/ca-bundle.pem",
				"etc/pki/trust/anchors/":                "",
			},
			holds: []string{"var/lib/ca-certificates/ca-bundle.pem"},
			main:  "/etc/ssl/ca-bundle.pem",
		},
		{
			name:  "no-newline-at-the-end",
			files: map[string]string{"etc/ssl/certs/ca-certificates.crt": strings.TrimSuffix(public, "\n")},
			holds: []string{"etc/ssl/certs/ca-certificates.crt"},
			main:  "/etc/ssl/certs/ca-certificates.crt",
		},
		{
			name:  "nothing-at-all",
			files: map[string]string{"bin/": ""},
			holds: []string{"etc/ssl/certs/ca-certificates.crt"},
			main:  "/etc/ssl/certs/ca-certificates.crt",
		},
		{
			name: "named-by-the-environment",
			files: map[string]string{
				"etc/ssl/certs/ca-certificates.crt": public, "opt/own.pem": public,
			},
			holds: []string{"etc/ssl/certs/ca-certificates.crt", "opt/own.pem"},
			main:  "/etc/ssl/certs/ca-certificates.crt",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, a := image(t, tt.files), newAuthority(t, "Sandbox")
			o := options(root, a)
			o.Roots = func() ([]byte, error) { return []byte(public), nil }
			o.Env = map[string]string{"REQUESTS_CA_BUNDLE": "/opt/own.pem", "SSL_CERT_FILE": "relative", "PIP_CERT": "/not/there"}
			env, err := trust.Install(o)
			if err != nil {
				t.Fatal(err)
			}
			if got := env["SSL_CERT_FILE"]; got != tt.main {
				t.Errorf("SSL_CERT_FILE = %q, want %q", got, tt.main)
			}
			for _, name := range tt.holds {
				text, err := os.ReadFile(filepath.Join(root, name))
				pool := x509.NewCertPool()
				if err != nil || !pool.AppendCertsFromPEM(text) {
					t.Fatalf("%s: %v", name, err)
				}
				if want := public + string(a.pem); string(text) != want {
					t.Errorf("%s holds\n%s", name, text)
				}
			}
			first := snapshot(t, root)
			if _, err := trust.Install(o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, snapshot(t, root)); diff != "" {
				t.Errorf("a second time changes\n%s", diff)
			}
			for name, text := range first {
				if strings.Contains(text, "PRIVATE KEY") {
					t.Errorf("%s holds a key", name)
				}
			}
		})
	}
}

// What is installed for one authority goes when another one comes.
func TestAnotherAuthority(t *testing.T) {
	public := newAuthority(t, "Public Root")
	root := image(t, map[string]string{
		"etc/ssl/certs/ca-certificates.crt": string(public.pem),
		"etc/pki/tls/certs/ca-bundle.crt":   string(public.pem),
		"etc/ssl/certs/java/cacerts":        string(trust.NewStore(public.cert.Raw)),
		"etc/pki/trust/anchors/":            "",
	})
	clean := image(t, nil)
	if out, err := exec.Command("cp", "-a", root+"/.", clean).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first, second := newAuthority(t, "First"), newAuthority(t, "Second")
	install(t, root, first)
	install(t, root, second)
	install(t, clean, second)
	got, want := snapshot(t, root), snapshot(t, clean)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, text := range got {
		if strings.Contains(text, string(first.pem)) || strings.Contains(text, string(first.cert.Raw)) {
			t.Errorf("%s still has the first", name)
		}
	}
}

// OpenSSL finds the certificate in a directory, whichever names are taken.
func TestHashes(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip(err)
	}
	a := newAuthority(t, "  Carboy   SANDBOX Ünïcode ")
	leaf := makeCertificate(t, x509.Certificate{Subject: pkix.Name{CommonName: "x.example"}, DNSNames: []string{"x.example"}}, &a)
	file := filepath.Join(t.TempDir(), "leaf.pem")
	if err := os.WriteFile(file, leaf.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	hash, err := trust.SubjectHash(a.cert.RawSubject)
	if err != nil {
		t.Fatal(err)
	}
	other := newAuthority(t, "Other").pem
	root := image(t, map[string]string{"etc/ssl/certs/" + hash + ".0": string(other), "etc/ssl/certs/ca-certificates.crt": string(other)})
	verify := func() error {
		// The links lead to absolute names, which here are below root.
		dir := t.TempDir()
		for name, text := range snapshot(t, filepath.Join(root, "etc/ssl/certs")) {
			if strings.HasPrefix(text, "->") {
				data, err := os.ReadFile(filepath.Join(root, ownFile))
				if err != nil {
					t.Fatal(err)
				}
				text = string(data)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return exec.Command(openssl, "verify", "-no-CAfile", "-CApath", dir, file).Run()
	}
	if verify() == nil {
		t.Error("it verifies before")
	}
	install(t, root, a)
	if got, _ := os.Readlink(filepath.Join(root, "etc/ssl/certs", hash+".1")); got != "carboy.pem" {
		t.Errorf("the second name leads to %q", got)
	}
	if err := verify(); err != nil {
		t.Error("it does not verify afterwards:", err)
	}
}

// What is no ordinary file, leads out of the sandbox or is too large stays as
// it is; the rest is done, and the error says which.
func TestLeftAlone(t *testing.T) {
	public := string(newAuthority(t, "Public Root").pem)
	outside := image(t, map[string]string{"bundle": public, "dir/": ""})
	up := strings.Repeat("../", 40)
	huge := strings.Repeat("x", 8<<20+1)
	tests := []struct {
		name, path, text string
		failed           bool // it can't be done
	}{
		{"bundle-to-a-relative-outside", "etc/ssl/certs/ca-certificates.crt", "->" + up + outside + "/bundle", false},
		{"bundle-to-an-absolute-outside", "etc/ssl/certs/ca-certificates.crt", "->" + outside + "/bundle", false},
		{"bundle-too-large", "etc/pki/tls/certs/ca-bundle.crt", huge, true},
		{"bundle-is-a-directory", "etc/pki/tls/cert.pem/", "", true},
		{"store-of-garbage", "etc/ssl/certs/java/cacerts", "garbage", true},
		{"store-cut-off", "etc/pki/java/cacerts", string(trust.NewStore([]byte("x"))[:40]), true},
		{"certificate-by-a-link", certFile, "->" + outside + "/bundle", false},
		{"resolver-by-a-dangling-link", "etc/resolv.conf", "->../run/systemd/resolve/stub-resolv.conf", false},
		{"resolver-by-a-link-out", "etc/resolv.conf", "->" + outside + "/bundle", false},
		{"resolver-is-a-directory", "etc/resolv.conf/", "", true},
		{"hosts-by-a-link-out", "etc/hosts", "->" + outside + "/bundle", false},
		{"hash-directory-out", "etc/ssl/certs", "->" + outside + "/dir", true},
		{"etc-out", "etc", "->" + outside + "/dir", true},
		{"usr-out", "usr", "->" + outside + "/dir", true},
		{"proc", "etc/ssl/certs/ca-certificates.crt", "->/proc/self/environ", false},
	}
	before := snapshot(t, outside)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, a := image(t, map[string]string{tt.path: tt.text, "var/lib/ca-certificates/ca-bundle.pem": public}), newAuthority(t, "Sandbox")
			env, err := trust.Install(options(root, a))
			if (err != nil) != tt.failed {
				t.Errorf("error %v, want one: %v", err, tt.failed)
			}
			if diff := cmp.Diff(before, snapshot(t, outside)); diff != "" {
				t.Errorf("outside:\n%s", diff)
			}
			if env["SSL_CERT_FILE"] == "" {
				t.Error("no bundle is named")
			}
			text, err := os.ReadFile(filepath.Join(root, "var/lib/ca-certificates/ca-bundle.pem"))
			if err != nil || !bytes.Contains(text, a.pem) {
				t.Errorf("the rest is not done: %v", err)
			}
		})
	}
}

// Without root a host's directory is nobody's inside. What programs read is there
// nevertheless, and their variables name it.
func TestDirectoryOfNobody(t *testing.T) {
	public := string(newAuthority(t, "Public Root").pem)
	root, a := image(t, map[string]string{"etc/ssl/certs/ca-certificates.crt": public, path.Dir(certFile) + "/": ""}), newAuthority(t, "Sandbox")
	dir := filepath.Join(root, path.Dir(certFile))
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("needs root, to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a start, and another
		env, err := trust.Install(options(root, a))
		if err != nil && !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("Install: %v", err)
		}
		for _, name := range []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"} {
			data, err := os.ReadFile(filepath.Join(root, env[name]))
			if env[name] == "" || err != nil || !bytes.Equal(data, a.pem) {
				t.Errorf("%s names %q: %v", name, env[name], err)
			}
		}
	}
	// With another authority the former one goes, though only the agent's own file has it.
	b := newAuthority(t, "Another")
	_, _ = trust.Install(options(root, b)) // judged by what it leaves
	data, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || bytes.Contains(data, a.pem) || !bytes.Contains(data, b.pem) {
		t.Errorf("the former authority is still trusted, or the new one is not: %v", err)
	}
}

// A pipe in the way does not hold the start up.
func TestPipe(t *testing.T) {
	root, a := image(t, map[string]string{"etc/ssl/certs/": ""}), newAuthority(t, "Sandbox")
	if err := unix.Mkfifo(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Install(options(root, a)); err == nil || !strings.Contains(err.Error(), "no ordinary file") {
		t.Errorf("error %v", err)
	}
}

// What is mounted inside is the host's, or hidden from commands: nothing is
// written there. Without the mount it is.
func TestOtherMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	for _, place := range []string{"srv", "usr/share"} {
		for _, mounted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s-%v", filepath.Base(place), mounted), func(t *testing.T) {
				public := string(newAuthority(t, "Public Root").pem)
				root, a := image(t, map[string]string{
					place + "/": "", "etc/ssl/certs/ca-certificates.crt": "->/" + place + "/bundle.pem",
				}), newAuthority(t, "Sandbox")
				if mounted {
					if err := unix.Mount("tmpfs", filepath.Join(root, place), "tmpfs", 0, ""); err != nil {
						t.Skip("mount:", err)
					}
					t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, place), unix.MNT_DETACH) })
				}
				bundle := filepath.Join(root, place, "bundle.pem")
				if err := os.WriteFile(bundle, []byte(public), 0o644); err != nil {
					t.Fatal(err)
				}
				_, err := trust.Install(options(root, a))
				if got := err != nil && strings.Contains(err.Error(), "leads out"); got != mounted {
					t.Errorf("error %v", err)
				}
				if _, err := os.Readlink(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")); err != nil {
					t.Errorf("the link is gone: %v", err)
				}
				text, err := os.ReadFile(bundle)
				if err != nil || bytes.Contains(text, a.pem) == mounted {
					t.Errorf("it holds %s, %v", text, err)
				}
			})
		}
	}
}

// A file keeps its owner and mode.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	root, a := image(t, map[string]string{"etc/ssl/certs/ca-certificates.crt": ""}), newAuthority(t, "Sandbox")
	name := filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")
	if err := os.Chown(name, 7, 8); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	install(t, root, a)
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil || st.Uid != 7 || st.Gid != 8 || st.Mode&0o777 != 0o640 {
		t.Errorf("got %d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
}

func TestCheckAuthority(t *testing.T) {
	a := newAuthority(t, "Sandbox")
	leaf := makeCertificate(t, x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}}, &a)
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(a.pem)
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"one", text, true},
		{"a-newline-more", text + "\n", true},
		{"none", "", false},
		{"two", text + text, false},
		{"a-leaf", string(leaf.pem), false},
		{"words-before", "words\n" + text, false},
		{"words-after", text + "words", false},
		{"cut-off", text[:len(text)/2], false},
		{"no-certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", false},
		{"a-key", pemOf("PRIVATE KEY", key), false},
		{"with-its-key", text + pemOf("PRIVATE KEY", key), false},
		{"too-large", text + strings.Repeat("\n", 16<<10), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := control.CheckAuthority([]byte(tt.text)); (err == nil) != tt.ok {
				t.Errorf("error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func FuzzCheckAuthority(f *testing.F) {
	f.Add(newAuthority(f, "Sandbox").pem)
	f.Fuzz(func(t *testing.T, text []byte) {
		cert, err := control.CheckAuthority(text)
		if err == nil && (!cert.IsCA || bytes.Count(text, []byte("-----BEGIN ")) != 1) {
			t.Errorf("%q is taken for an authority", text)
		}
	})
}

func TestResolve(t *testing.T) {
	root := image(t, map[string]string{"etc/resolv.conf": "->/run/nowhere", "etc/hosts": "127.0.0.1 localhost\n9.9.9.9\tgate.carboy.internal"})
	for range 2 {
		if _, err := trust.Install(trust.Options{Root: root, Nameservers: nameservers, Gate: "gate.carboy.internal"}); err != nil {
			t.Fatal(err)
		}
	}
	got := snapshot(t, root)
	want := "nameserver 192.0.0.1\nnameserver fd63:6172:626f:7900::1\n"
	if !strings.Contains(got["etc/resolv.conf"], want) {
		t.Errorf("resolv.conf: %q", got["etc/resolv.conf"])
	}
	want = "127.0.0.1 localhost\n192.0.0.1\tgate.carboy.internal\nfd63:6172:626f:7900::1\tgate.carboy.internal\n"
	if got["etc/hosts"] != want {
		t.Errorf("hosts: %q", got["etc/hosts"])
	}
	if len(got) != 2 {
		t.Errorf("without an authority there are %q", slices.Sorted(keys(got)))
	}
	for name, root := range map[string]string{
		"after-a-gate": root, "image": image(t, map[string]string{"etc/resolv.conf": "nameserver 9.9.9.9\n"}),
	} {
		if err := trust.NoNetwork(root); err != nil {
			t.Fatal(err)
		}
		if text := snapshot(t, root)["etc/resolv.conf"]; strings.Count(text, "nameserver ") != 1 || !strings.Contains(text, "nameserver 127.0.0.1\n") {
			t.Errorf("%s: without a network: %q", name, text)
		}
	}
}
