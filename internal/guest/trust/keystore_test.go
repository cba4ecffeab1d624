package trust_test

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/trust"
)

// keytool runs Java's own tool.
func keytool(t testing.TB, args ...string) string {
	t.Helper()
	tool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("keytool %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestWithAuthority(t *testing.T) {
	one, two, mine, next := newAuthority(t, "One"), newAuthority(t, "Two"), newAuthority(t, "Mine"), newAuthority(t, "Next")
	store, err := trust.WithAuthority(trust.NewStore(one.cert.Raw, two.cert.Raw), mine.cert.Raw)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"root-1", "root-2", "carboy"}
	if got, err := trust.Aliases(store); err != nil || !cmp.Equal(got, want) {
		t.Errorf("aliases %q, %v", got, err)
	}
	again, err := trust.WithAuthority(store, mine.cert.Raw)
	if err != nil || !bytes.Equal(again, store) {
		t.Errorf("a second time changes it: %v", err)
	}
	other, err := trust.WithAuthority(store, next.cert.Raw)
	if got, aerr := trust.Aliases(other); err != nil || aerr != nil || !cmp.Equal(got, want) || bytes.Contains(other, mine.cert.Raw) {
		t.Errorf("another authority: %q, %v, %v", got, err, aerr)
	}
}

func TestWithAuthorityRefuses(t *testing.T) {
	mine := newAuthority(t, "Mine").cert.Raw
	good := trust.NewStore(mine)
	change := func(at int, b byte) []byte {
		out := slices.Clone(good)
		out[at] ^= b
		return out
	}
	tests := []struct {
		name string
		data []byte
	}{
		{"empty", nil},
		{"cut-off", good[:len(good)-1]},
		{"another-password", change(len(good)-1, 1)},
		{"changed", change(40, 1)},
		{"another-magic", change(0, 1)},
		{"another-version", change(7, 3)},
		{"der-of-nothing", []byte{0x30, 0x03, 0x02, 0x01, 0x03}},
		{"der-without-end", []byte{0x30, 0x80, 0x02, 0x01, 0x03}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := trust.WithAuthority(tt.data, mine); err == nil {
				t.Errorf("got %d bytes", len(got))
			}
		})
	}
}

// Java reads what is made here, and what Java makes is read here.
func TestKeytool(t *testing.T) {
	dir, one, mine := t.TempDir(), newAuthority(t, "One"), newAuthority(t, "Mine")
	cert := filepath.Join(dir, "one.pem")
	if err := os.WriteFile(cert, one.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		ok   bool
	}{
		{"jks", []string{"-storetype", "JKS", "-storepass", "changeit"}, true},
		{"jks-another-password", []string{"-storetype", "JKS", "-storepass", "another"}, false},
		{"pkcs12-open", []string{
			"-storetype", "PKCS12", "-storepass", "changeit",
			"-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE", "-J-Dkeystore.pkcs12.macAlgorithm=NONE",
		}, true},
		{"pkcs12-encrypted", []string{"-storetype", "PKCS12", "-storepass", "changeit"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(dir, tt.name)
			keytool(t, append([]string{"-importcert", "-noprompt", "-alias", "one", "-file", cert, "-keystore", file}, tt.args...)...)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			now, err := trust.WithAuthority(data, mine.cert.Raw)
			if (err == nil) != tt.ok {
				t.Fatalf("error %v, want ok %v", err, tt.ok)
			}
			if !tt.ok {
				return
			}
			if err := os.WriteFile(file, now, 0o600); err != nil {
				t.Fatal(err)
			}
			out := keytool(t, "-list", "-rfc", "-keystore", file, "-storepass", "changeit")
			out = strings.ReplaceAll(out, "\r", "")
			for _, c := range []authority{one, mine} {
				if !strings.Contains(out, string(c.pem)) {
					t.Errorf("Java does not see %s in\n%s", c.cert.Subject, out)
				}
			}
		})
	}
}

// A JDK of an image's own, and one that leads to Debian's store, which is
// made of the bundle.
func TestJavaHomes(t *testing.T) {
	public, mine := newAuthority(t, "Public Root"), newAuthority(t, "Mine")
	root := image(t, map[string]string{
		"etc/ssl/certs/ca-certificates.crt":          "# words\n" + string(public.pem),
		"usr/lib/jvm/debian/lib/security/cacerts":    "->/etc/ssl/certs/java/cacerts",
		"opt/java/openjdk/lib/security/cacerts":      string(trust.NewStore(public.cert.Raw)),
		"opt/jdk-8/jre/lib/security/cacerts":         string(trust.NewStore(public.cert.Raw)),
		"opt/elsewhere/lib/security/cacerts":         string(trust.NewStore(public.cert.Raw)),
		"usr/java/without/lib/security/nothing-here": "",
	})
	o := options(root, mine)
	o.Env = map[string]string{"JAVA_HOME": "/opt/jdk-8"}
	for range 2 {
		if _, err := trust.Install(o); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"etc/ssl/certs/java/cacerts":            {"root-1", "carboy"},
		"opt/java/openjdk/lib/security/cacerts": {"root-1", "carboy"},
		"opt/jdk-8/jre/lib/security/cacerts":    {"root-1", "carboy"},
		"opt/elsewhere/lib/security/cacerts":    {"root-1"},
	} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := trust.Aliases(data); err != nil || !cmp.Equal(got, want) || !bytes.Contains(data, public.cert.Raw) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	// No Java, no store.
	root = image(t, nil)
	install(t, root, mine)
	if _, ok := snapshot(t, root)["etc/ssl/certs/java/cacerts"]; ok {
		t.Error("a store is made where there is no Java")
	}
}

// The hashes of this machine's authorities are those that OpenSSL gave them.
func TestSubjectHash(t *testing.T) {
	links, err := filepath.Glob("/etc/ssl/certs/*.[0-9]")
	if err != nil || len(links) == 0 {
		t.Skip("no hashed directory on this machine")
	}
	for _, link := range links {
		text, err := os.ReadFile(link)
		if err != nil {
			continue // a link that leads nowhere
		}
		block, _ := pem.Decode(text)
		if block == nil {
			continue
		}
		want, _, _ := strings.Cut(filepath.Base(link), ".")
		if got, err := trust.SubjectHash(subjectOf(t, block.Bytes)); err != nil || got != want {
			t.Errorf("%s: %s, %v", link, got, err)
		}
	}
}

// Names in the other encodings that there are, and with many parts in one.
func TestSubjectHashOfOldStrings(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct{ name, mask, subject string }{
		{"printable", "default", "/O=Some  Company/CN= Root"},
		{"t61", "default", "/O=Züriçh  AG/CN=ROOT É"},
		{"bmp", "default", "/O=Ωmega  Σ/CN=x"},
		{"utf8", "utf8only", "/O=Ωmega  Σ 山/CN=x"},
		{"ia5", "default", "/CN=x/emailAddress=A@B.example"},
		{"parts-together", "utf8only", "/O=b/CN=a+OU=B  c+UID=Q"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			conf := filepath.Join(dir, "conf")
			text := "[req]\ndistinguished_name=dn\nstring_mask=" + tt.mask + "\nutf8=yes\n[dn]\n"
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cert := filepath.Join(dir, "cert")
			out, err := exec.Command(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
				"-keyout", filepath.Join(dir, "key"), "-out", cert, "-config", conf, "-utf8", "-multivalue-rdn", "-subj", tt.subject).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want, err := exec.Command(openssl, "x509", "-in", cert, "-noout", "-subject_hash").Output()
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(cert)
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(data)
			got, err := trust.SubjectHash(subjectOf(t, block.Bytes))
			if err != nil || got != strings.TrimSpace(string(want)) {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}

func FuzzWithAuthority(f *testing.F) {
	mine := newAuthority(f, "Mine").cert.Raw
	f.Add(trust.NewStore(mine))
	f.Add([]byte{0x30, 0x03, 0x02, 0x01, 0x03})
	f.Fuzz(func(t *testing.T, data []byte) {
		now, err := trust.WithAuthority(data, mine)
		if err != nil {
			// With the right digest, what is inside counts.
			if len(data) < 12 {
				return
			}
			body := trust.Sign(data)
			if now, err = trust.WithAuthority(body, mine); err != nil {
				return
			}
		}
		names, err := trust.Aliases(now)
		if err != nil || len(names) != int(binary.BigEndian.Uint32(now[8:])) || !slices.Contains(names, "carboy") {
			t.Errorf("%q: %q, %v", data, names, err)
		}
	})
}

func FuzzSubjectHash(f *testing.F) {
	f.Add(newAuthority(f, "  A  b Ü").cert.RawSubject)
	f.Fuzz(func(t *testing.T, name []byte) {
		if hash, err := trust.SubjectHash(name); err == nil && len(hash) != 8 {
			t.Errorf("%q: %q", name, hash)
		}
	})
}
