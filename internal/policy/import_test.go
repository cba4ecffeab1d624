package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// last is the answer to what Test was asked last.
func last(t *testing.T, s *policy.Set, what string) policy.Verdict {
	t.Helper()
	steps, err := s.Test(what, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	return steps[len(steps)-1].Verdict
}

func TestFromSandboxRuntime(t *testing.T) {
	p, notes, err := policy.FromSandboxRuntime([]byte(`{
		"network": {
			"allowedDomains": ["github.com", "*.example.com", "git.example.org:22", "[2606:4700::1]:8443", "localhost", "pinned.example.net", "1.2.3.4:443"],
			"deniedDomains": ["evil.example.com", "*:25"],
			"allowUnixSockets": ["/var/run/docker.sock"],
			"allowLocalBinding": false,
			"tlsTerminate": {"excludeDomains": ["*.example.net"]}
		},
		"filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, p)
	for what, mode := range map[string]policy.Mode{
		"https://github.com/o/r": allow, "http://github.com/": allow, "https://a.example.com/": allow,
		"tcp://git.example.org:22": relay, "tcp://[2606:4700::1]:8443": relay,
		"https://pinned.example.net/": passthrough, "http://pinned.example.net/": allow, "https://1.2.3.4/": allow,
		"https://evil.example.com/": refuse, "https://example.com/": refuse, "tcp://git.example.org:25": refuse,
		"tcp://github.com:22": refuse, "dns:localhost": refuse, "https://www.example/": refuse,
	} {
		if v := last(t, s, what); v.Mode != mode {
			t.Errorf("%s: got %+v, want %s", what, v, mode)
		}
	}
	text := fmt.Sprint(notes)
	for _, want := range []string{"network.allowUnixSockets", "filesystem", "localhost", "ports 443 and 80"} {
		if !strings.Contains(text, want) {
			t.Errorf("no note of %s in %s", want, text)
		}
	}
	if strings.Contains(text, "allowLocalBinding") {
		t.Errorf("a note of what was not asked for: %s", text)
	}
}

func TestFromSandboxRuntimeRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"no-network", `{"filesystem": {}}`, "network: is not there"},
		{"list", `[]`, "settings are a mapping"},
		{"unknown", `{"network": {"allowedDomains": [], "deniedDomains": [], "allowedDomain": []}}`, `"allowedDomain" in network is not known`},
		{"unknown-top", `{"network": {"allowedDomains": []}, "netwrk": {}}`, `"netwrk" is not known`},
		{"twice", `{"network": {"allowedDomains": [], "allowedDomains": ["a.example"]}}`, "there twice"},
		{"proxy", `{"network": {"allowedDomains": [], "httpProxyPort": 8080}}`, "the gate is the proxy"},
		{"parent", `{"network": {"allowedDomains": [], "parentProxy": {"http": "http://p.example"}}}`, "no proxy"},
		{"type", `{"network": {"allowedDomains": "github.com"}}`, "a list of at most"},
		{"inner-type", `{"network": {"allowedDomains": [1]}}`, "network.allowedDomains[0]"},
		{"star", `{"network": {"allowedDomains": ["*"]}}`, "names every host"},
		{"port", `{"network": {"allowedDomains": ["a.example:x"]}}`, "is no port"},
		{"roots", `{"network": {"allowedDomains": [], "tlsTerminate": {"extraCaCertPaths": ["/x"]}}}`, "files are not read"},
		{"all", `{"network": {"allowAllDomains": "yes"}}`, "true or false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _, err := policy.FromSandboxRuntime([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v, want %q", p, err, tt.want)
			}
		})
	}
}

func TestFromSandboxRuntimeDenials(t *testing.T) {
	all, _, err := policy.FromSandboxRuntime([]byte(`{"network": {"allowAllDomains": true, "deniedDomains": ["*.evil.example"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, all)
	if v := last(t, s, "https://www.example.com/"); !v.Allowed() {
		t.Errorf("got %+v", v)
	}
	if v := last(t, s, "https://a.evil.example/"); v.Code != policy.CodeDenied {
		t.Errorf("got %+v", v)
	}
	none, _, err := policy.FromSandboxRuntime([]byte(`{"network": {"allowedDomains": ["a.example.com"], "deniedDomains": ["*"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if v := last(t, compile(t, none), "https://a.example.com/"); v.Allowed() {
		t.Errorf("got %+v", v)
	}
}

func TestIsSandboxRuntime(t *testing.T) {
	for text, want := range map[string]bool{
		`{"network": {"allowedDomains": []}}`: true, "network: {}\n": true, "rules: []\n": false, "[": false, `{"network": 1}`: false,
	} {
		if got := policy.IsSandboxRuntime([]byte(text)); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}
