package policy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

func TestCompileRefuses(t *testing.T) {
	host := func(change func(*policy.Rule)) policy.Policy {
		r := policy.Rule{Hosts: []string{"a.example"}}
		change(&r)
		return rules(r)
	}
	secret := func(s policy.Secret) policy.Policy {
		return host(func(r *policy.Rule) { r.Secrets = []policy.Secret{s} })
	}
	tests := []struct {
		name   string
		policy policy.Policy
		want   string
	}{
		{"version", policy.Policy{Version: 2}, "version: 2 is no version"},
		{"default", policy.Policy{Default: "allow"}, `default: "allow" is no default`},
		{"preset", policy.Policy{Presets: []string{"pipy"}}, `presets[0]: "pipy" is no preset (anthropic`},
		{"nothing", rules(policy.Rule{}), "rules[0]: neither hosts nor addresses"},
		{"action", host(func(r *policy.Rule) { r.Action = "block" }), `rules[0].action: "block"`},
		{"id", host(func(r *policy.Rule) { r.ID = "An Id" }), `rules[0].id: "An Id" is no id`},
		{"id-default", host(func(r *policy.Rule) { r.ID = "default" }), "is no id"},
		{"id-twice", rules(policy.Rule{ID: "a", Hosts: []string{"a.example"}}, policy.Rule{ID: "a", Hosts: []string{"b.example"}}), "rules[1].id: \"a\" is the id of rules[0] too"},
		{"id-of-place", rules(policy.Rule{ID: "rule-2", Hosts: []string{"a.example"}}, hosts("b.example")), "is the id of rules[0] too"},
		{"host-star", rules(hosts("*")), "names every host"},
		{"host-tld", rules(hosts("*.com")), "top-level domain"},
		{"host-middle-star", rules(hosts("a.*.example")), "one \"*\""},
		{"host-glob", rules(hosts("a*.example.com")), "one \"*\""},
		{"host-url", rules(hosts("https://a.example")), "is a URL"},
		{"host-port", rules(hosts("a.example:443")), "a port belongs in ports"},
		{"host-address", rules(hosts("1.2.3.4")), "write it in addresses"},
		{"host-octal", rules(hosts("0177.0.0.1")), "no address as four decimal numbers"},
		{"host-empty", rules(hosts("")), "no host is named"},
		{"host-long", rules(hosts(strings.Repeat("a", 64) + ".example")), "a label of 64 bytes"},
		{"host-range", rules(hosts("10.0.0.0/8")), "is no host name"},
		{"host-idn", rules(hosts("xn--a.example")), "not IDNA's"},
		{"address-name", rules(policy.Rule{Addresses: []string{"a.example"}}), "a name belongs in hosts"},
		{"address-bits", rules(policy.Rule{Addresses: []string{"10.0.0.1/8"}}), "an address within 10.0.0.0/8"},
		{"address-multicast", rules(policy.Rule{Addresses: []string{"224.0.0.0/8"}}), "no connection goes there"},
		{"address-zone", rules(policy.Rule{Addresses: []string{"fe80::1%eth0"}}), "is no address"},
		{"port-0", host(func(r *policy.Rule) { r.Ports = []string{"0"} }), `rules[0].ports[0]: "0" is no port`},
		{"port-large", host(func(r *policy.Rule) { r.Ports = []string{"65536"} }), "is no port"},
		{"port-backwards", host(func(r *policy.Rule) { r.Ports = []string{"443", "90-80"} }), `rules[0].ports[1]: "90-80"`},
		{"port-name", host(func(r *policy.Rule) { r.Ports = []string{"https"} }), "is no port"},
		{"port-dns", host(func(r *policy.Rule) { r.Ports = []string{"853"} }), "is DNS's"},
		{"protocol", host(func(r *policy.Rule) { r.Protocol = "ftp" }), `rules[0].protocol: "ftp" is no protocol`},
		{"tcp-without-port", host(func(r *policy.Rule) { r.Protocol = "tcp" }), "tcp has no port of its own"},
		{"tls-matches", host(func(r *policy.Rule) { r.Protocol = "tls"; r.Matches = []policy.Match{{Methods: []string{"GET"}}} }), "tls is passed through unread, so matches"},
		{"tls-secrets", host(func(r *policy.Rule) {
			r.Protocol = "tls"
			r.Secrets = []policy.Secret{{Name: "TOKEN", Header: "X-Key"}}
		}), "tls is passed through unread, so secrets"},
		{"tcp-auth", host(func(r *policy.Rule) { r.Protocol, r.Auth, r.Ports = "tcp", "guest", []string{"1"} }), "tcp is passed through unread, so auth"},
		{"udp-roots", host(func(r *policy.Rule) { r.Protocol, r.Roots, r.Ports = "udp", "x", []string{"1"} }), "udp is passed through unread, so roots"},
		{"deny-http", host(func(r *policy.Rule) { r.Action, r.Protocol = "deny", "http" }), "leave protocol out"},
		{"deny-matches-tcp", host(func(r *policy.Rule) {
			r.Action, r.Protocol, r.Matches = "deny", "tcp", []policy.Match{{Methods: []string{"GET"}}}
		}), "matches are of requests"},
		{"deny-secrets", host(func(r *policy.Rule) {
			r.Action, r.Secrets = "deny", []policy.Secret{{Name: "TOKEN", Header: "X-Key"}}
		}), "lets nothing through"},
		{"deny-limits", host(func(r *policy.Rule) { r.Action, r.Limits.Bytes = "deny", 1 }), "lets nothing through"},
		{"match-empty", host(func(r *policy.Rule) { r.Matches = []policy.Match{{}} }), "rules[0].matches[0]: an empty match"},
		{"method", host(func(r *policy.Rule) { r.Matches = []policy.Match{{Methods: []string{"G T"}}} }), "is no method"},
		{"path-relative", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("prefix", "v1")} }), "does not begin with a slash"},
		{"path-dots", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("exact", "/a/../b")} }), "has a segment of dots"},
		{"path-escaped", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("exact", "/a%20b")} }), "is escaped twice"},
		{"path-type", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("glob", "/a")} }), `"glob" is no way to compare`},
		{"regex", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("regex", "/(")} }), "is no regular expression"},
		{"regex-unbalanced", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("regex", "/a)|(.*")} }), "is no regular expression"},
		{"regex-bomb", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("regex", "((a{100}){100}){100}")} }), "is no regular expression"},
		{"regex-long", host(func(r *policy.Rule) { r.Matches = []policy.Match{path("regex", strings.Repeat("a", 1025))} }), "1024 are the most"},
		{"header-prefix", host(func(r *policy.Rule) {
			r.Matches = []policy.Match{{Headers: []policy.Field{{Name: "X-A", Type: "prefix", Value: "a"}}}}
		}), `"prefix" is for paths`},
		{"header-host", host(func(r *policy.Rule) {
			r.Matches = []policy.Match{{Headers: []policy.Field{{Name: "host", Value: "a"}}}}
		}), "hosts are what it is compared with"},
		{"header-credential", host(func(r *policy.Rule) {
			r.Matches = []policy.Match{{Headers: []policy.Field{{Name: "authorization", Value: "a"}}}}
		}), "put a credential into the policy"},
		{"query-name", host(func(r *policy.Rule) { r.Matches = []policy.Match{{Query: []policy.Field{{Value: "a"}}}} }), "no parameter is named"},
		{"secret-not-given", secret(policy.Secret{Name: "GITHUB_TOKEN", Header: "Authorization"}), "rules[0].secrets[0].name: the sandbox was not given the secret GITHUB_TOKEN (--secret GITHUB_TOKEN)"},
		{"secret-name", secret(policy.Secret{Name: "a b", Header: "X"}), "is no name of a secret"},
		{"secret-nowhere", secret(policy.Secret{Name: "TOKEN"}), "exactly one of header, query and body"},
		{"secret-twice", secret(policy.Secret{Name: "TOKEN", Header: "X", Query: "q"}), "exactly one of header, query and body"},
		{"secret-scheme", secret(policy.Secret{Name: "TOKEN", Header: "Authorization", Scheme: "Digest"}), `"Digest" is no scheme`},
		{"secret-user", secret(policy.Secret{Name: "TOKEN", Header: "Authorization", Username: "me"}), "only Basic has a username"},
		{"secret-query-scheme", secret(policy.Secret{Name: "TOKEN", Query: "q", Scheme: "Bearer"}), "are of headers"},
		{"secret-host", secret(policy.Secret{Name: "TOKEN", Header: "host"}), "no header that a secret can go to"},
		{"secret-same-place", host(func(r *policy.Rule) {
			r.Secrets = []policy.Secret{{Name: "TOKEN", Header: "X-Key"}, {Name: "TOKEN", Header: "x-key"}}
		}), "two secrets for header X-Key"},
		{"secret-by-number", rules(policy.Rule{Addresses: []string{"10.0.0.5"}, Secrets: []policy.Secret{{Name: "TOKEN", Header: "X-Key"}}}), "to a host by name"},
		{"auth", host(func(r *policy.Rule) {
			r.Auth, r.Secrets = "both", []policy.Secret{{Name: "TOKEN", Header: "X-Key"}}
		}), `"both" is no stand`},
		{"auth-alone", host(func(r *policy.Rule) { r.Auth = "guest" }), "pass anyway"},
		{"roots", host(func(r *policy.Rule) { r.Roots = "hello" }), "not PEM certificates"},
		{"roots-key", host(func(r *policy.Rule) { r.Roots = string(pemKey(t)) }), "which is no certificate"},
		{"limit", host(func(r *policy.Rule) { r.Limits.Bytes = -1 }), "rules[0].limits.bytes: -1 is no limit"},
		{"limit-rate", host(func(r *policy.Rule) { r.Limits.RequestsPerMinute = 1 << 30 }), "requests_per_minute"},
		{"dns-type", policy.Policy{DNS: policy.DNS{Types: []string{"HTTPS"}}}, `dns.types[0]: "HTTPS" is no type`},
		{"dns-type-a", policy.Policy{DNS: policy.DNS{Types: []string{"a"}}}, "A is always asked for"},
		{"dns-upstream", policy.Policy{DNS: policy.DNS{Upstreams: []string{"resolver.example"}}}, "no address of a resolver"},
		{"dns-rate", policy.Policy{DNS: policy.DNS{QueriesPerMinute: -1}}, "is no rate"},
		{"many-rules", rules(slices.Repeat([]policy.Rule{hosts("a.example")}, 1001)...), "1001 of them: 1000 are the most"},
		{"many-values", rules(slices.Repeat([]policy.Rule{hosts(slices.Repeat([]string{"a.example"}, 100)...)}, 300)...), "20000 are the most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := policy.Compile(tt.policy, []string{"TOKEN"})
			if err == nil {
				t.Fatalf("got %+v", s.Policy())
			}
			if _, ok := errors.AsType[*policy.Error](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCompileTellsAll(t *testing.T) {
	p := policy.Policy{Version: 3, Rules: []policy.Rule{
		{Hosts: []string{"*", "a.example"}, Ports: []string{"0"}},
		{Addresses: []string{"nowhere"}, Protocol: "ftp"},
	}}
	_, err := policy.Compile(p, nil)
	var got []string
	for _, e := range policy.Problems(err) {
		got = append(got, e.Where)
	}
	want := []string{"version", "rules[0].hosts[0]", "rules[0].ports[0]", "rules[1].addresses[0]", "rules[1].protocol"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = policy.Compile(rules(hosts(slices.Repeat([]string{"*"}, 500)...)), nil)
	if n := len(policy.Problems(err)); n != 51 {
		t.Errorf("got %d problems", n)
	}
	if len(policy.Problems(nil)) != 0 || len(policy.Problems(errors.New("other"))) != 0 {
		t.Error("problems of none")
	}
}

func TestCompileKeepsItsInput(t *testing.T) {
	p := rules(policy.Rule{Hosts: []string{"A.Example"}, Matches: []policy.Match{{Methods: []string{"get"}}}})
	want := *policy.Clone(&p)
	s := compile(t, p)
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("the input was changed: %s", diff)
	}
	got := s.Policy()
	got.Rules[0].Hosts[0] = "evil.example"
	if s.Policy().Rules[0].Hosts[0] != "a.example" {
		t.Error("the set was changed")
	}
}

// certificate is one in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCompileRoots(t *testing.T) {
	roots := certificate(t)
	s := compile(t, rules(policy.Rule{Hosts: []string{"a.example"}, Roots: roots + roots}))
	if v := s.Request(ask(t, "GET", "https://a.example/", server)); v.Route == nil || v.Route.Roots != roots+roots {
		t.Errorf("got %+v", v)
	}
}

func pemKey(t *testing.T) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func TestRuleString(t *testing.T) {
	tests := []struct {
		rule policy.Rule
		want string
	}{
		{hosts("a.example", "*.b.example"), "allow a.example *.b.example over http, port 80, 443"},
		{policy.Rule{Hosts: []string{"a.example"}, Ports: []string{"443"}}, "allow a.example over https"},
		{policy.Rule{Hosts: []string{"a.example"}, Protocol: "tls"}, "allow a.example over tls, unread, port 443"},
		{policy.Rule{Addresses: []string{"10.0.0.0/8"}, Protocol: "tcp", Ports: []string{"22", "5432"}}, "allow 10.0.0.0/8 over tcp, port 22, 5432"},
		{denying(hosts("a.example")), "deny a.example"},
		{policy.Rule{Action: "deny", Hosts: []string{"a.example"}, Ports: []string{"25"}}, "deny a.example on port 25"},
		{denying(matching("", policy.Match{Methods: []string{"DELETE", "PUT"}})), "deny a.example over http for DELETE PUT"},
		{policy.Rule{
			Hosts: []string{"a.example"}, Ports: []string{"443"}, Auth: "guest", Roots: "x",
			Matches: []policy.Match{
				{Methods: []string{"GET"}, Paths: []policy.Value{{Value: "/v1/"}, {Type: "exact", Value: "/x"}, {Type: "regex", Value: "/y.*"}}},
				{Headers: []policy.Field{{Name: "X-A", Value: "b\x1b"}}, Query: []policy.Field{{Name: "q", Type: "regex", Value: "[a-z]"}}},
			},
			Secrets: []policy.Secret{{Name: "T", Header: "Authorization", Scheme: "Bearer"}, {Name: "U", Body: "/k", Optional: true}},
			Limits:  policy.Limits{Bytes: 10, RequestsPerMinute: 2},
		}, `allow a.example over https for GET /v1/... /x ~/y.*, or header X-A = "b\x1b" query q ~ [a-z]` +
			` with T in header Authorization (Bearer) with U in body field "/k", if given and the guest's own credentials` +
			` under certificates of its own at most 2 requests a minute, 10 bytes in all`},
	}
	for _, tt := range tests {
		if got := policy.Describe(&tt.rule); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
