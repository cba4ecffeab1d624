package policy_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

func TestParseAllow(t *testing.T) {
	host := func(id, h string, proto policy.Protocol, ports ...string) policy.Rule {
		return policy.Rule{ID: id, Hosts: []string{h}, Protocol: proto, Ports: ports}
	}
	addr := func(id, a string, proto policy.Protocol, ports ...string) policy.Rule {
		return policy.Rule{ID: id, Addresses: []string{a}, Protocol: proto, Ports: ports}
	}
	tests := []struct {
		arg  string
		want policy.Rule
	}{
		{"api.example.com", host("api.example.com", "api.example.com", "")},
		{"API.example.com", host("api.example.com", "API.example.com", "")},
		{"*.example.com", host("", "*.example.com", "")},
		{"api.example.com:443", host("api.example.com:443", "api.example.com", "", "443")},
		{"api.example.com:80", host("api.example.com:80", "api.example.com", "", "80")},
		{"api.example.com:5432", host("api.example.com:5432", "api.example.com", "tcp", "5432")},
		{"api.example.com:8000-8099", host("api.example.com:8000-8099", "api.example.com", "tcp", "8000-8099")},
		{"https://api.example.com", host("https://api.example.com", "api.example.com", "http", "443")},
		{"https://api.example.com/", host("https://api.example.com/", "api.example.com", "http", "443")},
		{"https://api.example.com:8443", host("https://api.example.com:8443", "api.example.com", "http", "8443")},
		{"http://api.example.com", host("http://api.example.com", "api.example.com", "http", "80")},
		{"tls://api.example.com", host("tls://api.example.com", "api.example.com", "tls")},
		{"tcp://db.example.com:22", host("tcp://db.example.com:22", "db.example.com", "tcp", "22")},
		{"udp://ntp.example.com:123", host("udp://ntp.example.com:123", "ntp.example.com", "udp", "123")},
		{"db:5432", host("db:5432", "db", "tcp", "5432")},
		{"10.0.0.5", addr("10.0.0.5", "10.0.0.5", "")},
		{"10.0.0.5:8080", addr("10.0.0.5:8080", "10.0.0.5", "tcp", "8080")},
		{"http://10.0.0.5:8080", addr("http://10.0.0.5:8080", "10.0.0.5", "http", "8080")},
		{"10.1.0.0/16", addr("10.1.0.0/16", "10.1.0.0/16", "")},
		{"10.1.0.0/16:5432", addr("10.1.0.0/16:5432", "10.1.0.0/16", "tcp", "5432")},
		{"fd00::1", addr("fd00::1", "fd00::1", "")},
		{"[fd00::1]", addr("", "fd00::1", "")},
		{"[fd00::1]:8443", addr("", "fd00::1", "tcp", "8443")},
		{"tcp://[fd00::1]:22", addr("", "fd00::1", "tcp", "22")},
		{"fd00::/8", addr("fd00::/8", "fd00::/8", "")},
		{"[fd00::/8]:22", addr("", "fd00::/8", "tcp", "22")},
		{"[fd00::]/8:22", addr("", "fd00::/8", "tcp", "22")},
		{"пример.example", host("", "пример.example", "")},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			got, err := policy.ParseAllow(tt.arg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]policy.Rule{tt.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseAllowRefuses(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"", "no host is named"},
		{"*", "names every host"},
		{"*.com", "top-level domain"},
		{"a.*.example.com", "one \"*\""},
		{"https://api.example.com/v1", "a path is more than"},
		{"api.example.com/v1", "a path is more than"},
		{"api.example.com:443/v1", "a path is more than"},
		{"ftp://api.example.com", "is no scheme"},
		{"https://user:word@api.example.com", "a user is named"},
		{"api.example.com:0", "is no port"},
		{"api.example.com:", "is no port"},
		{"api.example.com:65536", "is no port"},
		{"api.example.com:443x", "is no port"},
		{"tcp://api.example.com", "no port of its own"},
		{"udp://10.0.0.1", "no port of its own"},
		{"pipy", "is no preset"},
		{"pypi:443", "is a preset"},
		{"PyPI", "is a preset"},
		{"0x7f.1", "no host name"},
		{"2130706433:80", "no host name"},
		{"10.0.0.5/8", "an address within"},
		{"[fd00::1", "no IPv6"},
		{"[fd00::1]x", "no IPv6"},
		{"fd00::1%eth0", "no address"},
		{"224.0.0.1", "no connection goes there"},
		{"0.0.0.0", "no connection goes there"},
		{"https://api.example.com:53", "is DNS's"},
		{"a b.example", "no host name"},
		{"a\x1b[31m.example", "no host name"},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			got, err := policy.ParseAllow(tt.arg)
			if err == nil {
				t.Fatalf("got %+v", got)
			}
			if _, ok := errors.AsType[*policy.Error](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %T %v, want %q", err, err, tt.want)
			}
			if strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("raw text in %q", err)
			}
		})
	}
}

func TestPresets(t *testing.T) {
	var names []string
	for _, p := range policy.Presets() {
		names = append(names, p.Name)
		t.Run(p.Name, func(t *testing.T) {
			got, err := policy.ParseAllow(p.Name)
			if err != nil {
				t.Fatal(err)
			}
			compile(t, rules(got...))
			compile(t, policy.Policy{Presets: []string{p.Name, p.Name}})
			if p.Summary == "" || strings.ContainsAny(p.Summary, "\n") {
				t.Errorf("summary %q", p.Summary)
			}
			for _, r := range p.Rules {
				if r.ID != p.Name && !strings.HasPrefix(r.ID, p.Name+"/") {
					t.Errorf("id %q", r.ID)
				}
				if len(r.Matches) == 0 || len(r.Addresses) > 0 || len(r.Ports) == 0 {
					t.Errorf("%s: opens more than it must: %s", r.ID, policy.Describe(&r))
				}
				for _, h := range r.Hosts {
					if strings.Contains(h, "*") {
						t.Errorf("%s: a wildcard", r.ID)
					}
				}
				for _, m := range r.Matches {
					writes := slices.ContainsFunc(m.Methods, func(s string) bool { return s != "GET" && s != "HEAD" })
					if len(m.Methods) == 0 || writes && len(m.Paths) == 0 {
						t.Errorf("%s: a bare host: %s", r.ID, m)
					}
				}
				for _, s := range r.Secrets {
					if !s.Optional {
						t.Errorf("%s: a preset that can't do without %s", r.ID, s.Name)
					}
				}
			}
		})
	}
	want := []string{"anthropic", "crates", "debian", "gemini", "github", "go", "npm", "openai", "pypi"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

// TestPresetsOpen asks of each preset what its tool asks, and what it must
// not let through.
func TestPresetsOpen(t *testing.T) {
	hostOf := func(preset, id string) string {
		for _, p := range policy.Presets() {
			for _, r := range p.Rules {
				if p.Name == preset && r.ID == id {
					return r.Hosts[0]
				}
			}
		}
		t.Fatalf("no rule %s", id)
		return ""
	}
	npm, gomod, debian := hostOf("npm", "npm"), hostOf("go", "go/modules"), hostOf("debian", "debian")
	tests := []struct {
		preset, method, url string
		want                policy.Code
	}{
		{"npm", "GET", "https://" + npm + "/left-pad", ""},
		{"npm", "GET", "https://" + npm + "/@types%2fnode", ""},
		{"npm", "GET", "https://" + npm + "/left-pad/-/left-pad-1.3.0.tgz", ""},
		{"npm", "POST", "https://" + npm + "/-/npm/v1/security/advisories/bulk", ""},
		{"npm", "PUT", "https://" + npm + "/left-pad", policy.CodeRequest},
		{"npm", "PUT", "https://" + npm + "/-/user/org.couchdb.user:me", policy.CodeRequest},
		{"npm", "POST", "https://" + npm + "/-/npm/v1/tokens", policy.CodeRequest},
		{"npm", "DELETE", "https://" + npm + "/left-pad/-rev/1", policy.CodeRequest},
		{"npm", "GET", "http://" + npm + "/left-pad", policy.CodeNotAllowed},
		{"pypi", "GET", "https://pypi.org/simple/requests/", ""},
		{"pypi", "GET", "https://pypi.org/pypi/requests/json", ""},
		{"pypi", "GET", "https://files.pythonhosted.org/packages/ab/cd/requests-2.32.3-py3-none-any.whl.metadata", ""},
		{"pypi", "POST", "https://pypi.org/legacy/", policy.CodeRequest},
		{"pypi", "GET", "https://pypi.org/manage/account/", policy.CodeRequest},
		{"pypi", "GET", "https://pypi.org/simple/../manage/", policy.CodeRequest},
		{"pypi", "POST", "https://upload.pypi.org/legacy/", policy.CodeNotAllowed},
		{"go", "GET", "https://" + gomod + "/github.com/!burnt!sushi/toml/@v/list", ""},
		{"go", "GET", "https://" + gomod + "/sumdb/sum.example/tile/8/0/x000/000", ""},
		{"go", "GET", "https://storage.googleapis.com/proxy-golang-org-prod/0123-example.org:x-v1.0.0.zip?Signature=x", ""},
		{"go", "GET", "https://storage.googleapis.com/other-bucket/x", policy.CodeRequest},
		{"go", "PUT", "https://storage.googleapis.com/proxy-golang-org-prod/x", policy.CodeRequest},
		{"debian", "GET", "http://" + debian + "/debian/pool/main/g/g%2b%2b/x_1.0~rc1_amd64.deb", ""},
		{"debian", "GET", "https://" + debian + "/debian-security/dists/trixie-security/InRelease", ""},
		{"debian", "GET", "http://" + debian + "/elsewhere", policy.CodeRequest},
		{"crates", "GET", "https://index.crates.io/se/rd/serde", ""},
		{"crates", "GET", "https://static.crates.io/crates/serde/serde-1.0.0.crate", ""},
		{"crates", "GET", "https://crates.io/api/v1/crates/serde/1.0.0/download", ""},
		{"crates", "PUT", "https://crates.io/api/v1/crates/new", policy.CodeRequest},
		{"crates", "GET", "https://crates.io/api/v1/me", policy.CodeRequest},
		{"github", "GET", "https://github.com/carboy-sandbox/carboy.git/info/refs?service=git-upload-pack", ""},
		{"github", "POST", "https://github.com/carboy-sandbox/carboy.git/git-upload-pack", ""},
		{"github", "GET", "https://github.com/carboy-sandbox/carboy.git/info/refs?service=git-receive-pack", policy.CodeRequest},
		{"github", "GET", "https://github.com/o/r/info/refs?service=git-upload-pack&service=git-receive-pack", policy.CodeRequest},
		{"github", "POST", "https://github.com/carboy-sandbox/carboy.git/git-receive-pack", policy.CodeRequest},
		{"github", "GET", "https://github.com/o/r/archive/refs/heads/main.tar.gz", ""},
		{"github", "GET", "https://github.com/o/r/releases/download/v1.0/x.tar.gz", ""},
		{"github", "GET", "https://github.com/o/r/issues/new?body=data", policy.CodeRequest},
		{"github", "GET", "https://api.github.com/repos/o/r/contents/a%2Fb", ""},
		{"github", "POST", "https://api.github.com/gists", policy.CodeRequest},
		{"github", "POST", "https://api.github.com/graphql", policy.CodeRequest},
		{"github", "GET", "https://raw.githubusercontent.com/o/r/main/README.md", ""},
		{"github", "GET", "https://gist.github.com/o", policy.CodeNotAllowed},
		{"anthropic", "POST", "https://api.anthropic.com/v1/messages?beta=true", ""},
		{"anthropic", "POST", "https://api.anthropic.com/v1/files", policy.CodeRequest},
		{"anthropic", "GET", "https://api.anthropic.com/v1/organizations/api_keys", policy.CodeRequest},
		{"openai", "POST", "https://api.openai.com/v1/chat/completions", ""},
		{"openai", "GET", "https://api.openai.com/v1/models/gpt-4.1", ""},
		{"openai", "GET", "https://api.openai.com/v1/responses", policy.CodeRequest}, // a list; see TestOpenAISocket
		{"openai", "POST", "https://api.openai.com/v1/files", policy.CodeRequest},
		{"openai", "POST", "https://api.openai.com/v1/fine_tuning/jobs", policy.CodeRequest},
		{"gemini", "POST", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", ""},
		{"gemini", "POST", "https://generativelanguage.googleapis.com/upload/v1beta/files", policy.CodeRequest},
		{"gemini", "POST", "https://generativelanguage.googleapis.com/v1beta/cachedContents", policy.CodeRequest},
	}
	for _, tt := range tests {
		t.Run(tt.preset+"/"+tt.method+"/"+tt.url, func(t *testing.T) {
			s := compile(t, policy.Policy{Presets: []string{tt.preset}})
			v := s.Request(ask(t, tt.method, tt.url, server))
			if v.Code != tt.want || v.Allowed() != (tt.want == "") {
				t.Errorf("got %+v, want %q", v, tt.want)
			}
		})
	}
}

// Codex upgrades a GET to a WebSocket, and no other upgrade is allowed.
func TestOpenAISocket(t *testing.T) {
	s := compile(t, policy.Policy{Presets: []string{"openai"}})
	for to, want := range map[string]policy.Code{"websocket": "", "WebSocket": "", "h2c": policy.CodeRequest, "websocket, h2c": policy.CodeRequest} {
		r := ask(t, "GET", "https://api.openai.com/v1/responses", server)
		r.Header = map[string][]string{"Connection": {"Upgrade"}, "Upgrade": {to}}
		if v := s.Request(r); v.Code != want || v.Allowed() != (want == "") {
			t.Errorf("Upgrade: %s: got %+v, want %q", to, v, want)
		}
	}
}

func TestWithSkipsTheSame(t *testing.T) {
	a, _ := policy.ParseAllow("api.example.com")
	b, _ := policy.ParseAllow("pypi")
	p := policy.With(policy.With(policy.With(policy.Policy{Presets: []string{"pypi"}}, a...), b...), a...)
	got := compile(t, p).Policy()
	if len(got.Rules) != 3 || got.Presets != nil {
		t.Errorf("got %+v", got)
	}
	if got.Rules[0].ID != "api.example.com" || got.DNS.QueriesPerMinute == 0 || got.Version != 1 {
		t.Errorf("got %+v", got)
	}
	if v := compile(t, got).Address(netip.MustParseAddr("10.0.0.1")); v.Allowed() {
		t.Errorf("got %+v", v)
	}
}
