package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// With the network on and no rule about a host, its TLS is between it and the
// client: the client sees the server's own certificate, and may pin it.
func TestPassedThrough(t *testing.T) {
	t.Parallel()
	needs(t, "curl", "openssl", "node")
	w := newWorld(t)
	cert := w.certificate(nil, "pinned.example")
	w.sitesWith(worldA, map[string]http.Handler{"pinned.example": webSite()}, map[string]*tls.Certificate{"pinned.example": &cert})
	h := w.home()
	dir := filepath.Join(h.dir, "given")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	roots, err := os.ReadFile(w.roots)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/roots.pem", roots, 0o644); err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	pinned := "curl -sS -k --pinnedpubkey sha256//" + base64.StdEncoding.EncodeToString(sum[:]) + " https://pinned.example/"
	issuer := "echo | openssl s_client -servername pinned.example -connect pinned.example:443"
	through := []clientCase{
		{name: "distrusts", script: "curl -sS https://pinned.example/", want: []string{"curl: (60)"}, fails: true},
		{name: "trusts-the-file", script: "curl -sS --cacert /given/roots.pem https://pinned.example/", want: []string{"trusted over HTTP/2.0"}},
		{name: "node-trusts-the-file", script: "NODE_EXTRA_CA_CERTS=/given/roots.pem node -e 'fetch(\"https://pinned.example/\").then(r => r.text()).then(console.log)'", want: []string{"trusted over"}},
		{name: "issuer", script: issuer, want: []string{"CN = a test's root"}},
		{name: "pinned", script: pinned, want: []string{"trusted over HTTP/2.0"}},
		{name: "clear", script: "curl -sS http://pinned.example/", want: []string{"trusted over HTTP/1.1"}},
	}
	// The control: what the gate reads can't be pinned, and is trusted.
	read := []clientCase{
		{name: "trusts", script: "curl -sS https://pinned.example/", want: []string{"trusted over"}},
		{name: "issuer", script: issuer, want: []string{"Verify return code: 0 (ok)", "issuer="}},
		{name: "pinned", script: pinned, want: []string{"curl: (90)"}, fails: true},
	}
	for _, wall := range wallNames {
		for _, mode := range []struct {
			name  string
			flags []string
			cases []clientCase
		}{
			{"on", []string{"--network", "on"}, through},
			{"tls-rule", []string{"--allow", "tls://pinned.example", "--allow", "http://pinned.example"}, through},
			{"on-with-a-rule", []string{"--network", "on", "--allow", "pinned.example"}, read},
		} {
			t.Run(wall+"/"+mode.name, func(t *testing.T) {
				name := h.create(append([]string{"--isolation", wall, "--mount", dir + ":/given:ro"}, mode.flags...)...)
				for _, c := range mode.cases {
					t.Run(c.name, func(t *testing.T) { c.in(t, w, h, name) })
				}
				h.ok("rm", "-f", name)
			})
		}
	}
}

// One line at a run's end says what was refused, and what would allow it.
func TestRefusedLine(t *testing.T) {
	t.Parallel()
	needs(t, "curl")
	w := newWorld(t)
	index, files := pythonSites()
	w.sites(worldA, map[string]http.Handler{pypiIndex: index, pypiFiles: files, "evil.example": webSite()})
	h := w.home()
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			run := func(script string, flags ...string) result {
				return h.run(nil, append(append([]string{"run", "--isolation", wall}, flags...), "--", "sh", "-c", script)...)
			}
			const line = "carboy: refused: evil.example; to allow: --allow evil.example\n"
			r := run("curl -s https://evil.example; exit 3", "--allow", "pypi")
			if lastLines(r.stderr, 1) != line || strings.Count(r.stderr, "refused") != 1 || !strings.Contains(r.stdout, `"code":"not_allowed"`) || r.code != 3 {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout, r.stderr)
			}
			r = run("for n in 1 2 3; do curl -s https://evil.example http://evil.example; done; curl -s https://other.example:8443; true", "--allow", "pypi")
			if strings.Count(r.stderr, "refused") != 1 || !strings.Contains(r.stderr, "--allow evil.example") || !strings.Contains(r.stderr, "other.example:8443") {
				t.Errorf("of two hosts: %q", r.stderr)
			}
			// The flag does what it says, and then there is nothing to say.
			r = run("curl -sS https://evil.example", "--allow", "pypi", "--allow", "evil.example")
			if r.code != 0 || strings.Contains(r.stderr, "refused") || !strings.Contains(r.stdout, "trusted over") {
				t.Errorf("allowed: exit code %d, %q, %q", r.code, r.stdout, r.stderr)
			}
			r = run("curl -sS https://"+pypiIndex+"/simple/carboy-first/", "--allow", "pypi")
			if r.code != 0 || strings.Contains(r.stderr, "refused") {
				t.Errorf("nothing was refused: exit code %d, %q", r.code, r.stderr)
			}
		})
	}
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Without a network no name leads anywhere, at once and in a way that clients don't
// try again; what was asked for is told at the end of a command and on the record,
// of a run that has ended too.
func TestAskedWithoutNetwork(t *testing.T) {
	t.Parallel()
	needs(t, "curl", "python3")
	w := newWorld(t)
	crossed(t, func(t *testing.T, wall, who string) {
		h := w.home()
		if who == "ordinary" {
			h = w.ordinaryHome(carboy)
		}
		r := h.run(nil, "run", "--isolation", wall, "--name", "once", "--", "curl", "-sS", "https://"+npmRegistry+"/x")
		if want := "carboy: " + npmRegistry + " was asked for; to allow: --allow npm\n"; r.code != 6 || lastLines(r.stderr, 1) != want {
			t.Errorf("exit code %d, %q", r.code, r.stderr)
		}
		if got := h.ok("net", "log", "once"); !strings.Contains(got, "dns A "+npmRegistry) || !strings.Contains(got, "no_network") {
			t.Errorf("the record of a run that has ended: %q", got)
		}
		name := h.create("--isolation", wall, "--env", "PIP_RETRIES=7")
		const failsForGood = `import socket, os
try: socket.getaddrinfo("a.example", 443)
except socket.gaierror as e: print(e.errno == socket.EAI_NONAME, os.environ["PIP_RETRIES"], os.environ["npm_config_fetch_retries"])`
		r = h.run(nil, "exec", name, "--", "python3", "-c", failsForGood)
		if r.stdout != "True 7 0\n" || !strings.HasPrefix(r.stderr, "carboy: a.example was asked for; to allow: ") {
			t.Errorf("exec: %q, %q", r.stdout, r.stderr)
		}
		if r = h.run(nil, "exec", name, "--", "true"); r.stderr != "" {
			t.Errorf("of an earlier command: %q", r.stderr)
		}
		// Names made up by the thousand, and what is no question, leave a record
		// that is bounded, a line that is one, and a resolver that answers once they
		// are through: what finds its queue full is dropped.
		const flood = `import socket, os
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.1", 53))
for i in range(3000):
    s.send(os.urandom(40))
    label = b"\x1b[2J%d" % i
    s.send(b"\0\1\1\0\0\1\0\0\0\0\0\0" + bytes([len(label)]) + label + b"\4evil\0\0\1\0\1")
while True:
    try: socket.getaddrinfo("late.example", 443)
    except socket.gaierror as e:
        if e.errno == socket.EAI_NONAME: break
print("answered")`
		r = h.run(nil, "exec", name, "--", "python3", "-c", flood)
		if r.stdout != "answered\n" || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.stderr, "\x1b") {
			t.Errorf("after a flood: %q, %q", r.stdout, r.stderr)
		}
		if got := h.ok("net", "log", name); strings.Count(got, "\n") > 140 || strings.Contains(got, "\x1b") || !strings.Contains(got, "questions for other names") {
			t.Errorf("the record has %d lines", strings.Count(got, "\n"))
		}
		h.ok("rm", "-f", name)
	})
}
