package policy_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

func askRequest(t *testing.T, s *policy.Set, method, target string) policy.Verdict {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatal(err)
	}
	return s.Request(policy.Request{Addr: netip.MustParseAddrPort(server + ":443"), Name: "api.example.com", TLS: true, Method: method, URL: u})
}

// A rule that asks has a person asked, of what no rule denies and none allows.
func TestAsk(t *testing.T) {
	s := compile(t, rules(
		policy.Rule{ID: "ask", Action: "ask", Hosts: []string{"api.example.com"}},
		policy.Rule{ID: "read", Hosts: []string{"api.example.com"}, Matches: []policy.Match{{Methods: []string{"GET"}}}},
		policy.Rule{ID: "no", Action: "deny", Hosts: []string{"api.example.com"}, Matches: []policy.Match{{Paths: []policy.Value{{Value: "/admin"}}}}},
		policy.Rule{ID: "db", Action: "ask", Hosts: []string{"db.example.com"}, Protocol: "tcp", Ports: []string{"5432"}},
		policy.Rule{ID: "pass", Action: "ask", Hosts: []string{"tls.example.com"}, Protocol: "tls"},
		policy.Rule{ID: "inner", Action: "ask", Addresses: []string{"10.0.0.5"}},
	))
	for _, tt := range []struct {
		method, target string
		allowed, ask   bool
		rule           string
	}{
		{"POST", "/v1", true, true, "ask"},
		{"GET", "/v1", true, false, "read"},
		{"POST", "/admin", false, false, "no"},
	} {
		if v := askRequest(t, s, tt.method, tt.target); v.Allowed() != tt.allowed || v.Ask != tt.ask || v.Rule != tt.rule {
			t.Errorf("%s %s: %+v", tt.method, tt.target, v)
		}
	}
	for _, name := range []string{"api.example.com", "db.example.com", "tls.example.com"} {
		if v := s.Name(name); !v.Allowed() || v.Ask {
			t.Errorf("%s does not resolve: %+v", name, v)
		}
	}
	db := policy.Conn{Addr: netip.MustParseAddrPort(server + ":5432"), Names: []string{"db.example.com"}}
	if v := s.Connect(db); v.Mode != relay || !v.Ask || v.Name != "db.example.com" {
		t.Errorf("tcp: %+v", v)
	}
	tls := policy.Conn{Addr: netip.MustParseAddrPort(server + ":443"), Names: []string{"tls.example.com"}}
	if v := s.Connect(tls); v.Mode != sniff || v.Ask {
		t.Errorf("tls, unread: %+v", v)
	}
	if v := s.Stream(policy.Stream{Conn: tls, Name: "tls.example.com", TLS: true}); v.Mode != passthrough || !v.Ask {
		t.Errorf("tls: %+v", v)
	}
	// What a rule asks about, it opens to itself alone.
	inner := policy.Request{Addr: netip.MustParseAddrPort("10.0.0.5:443"), Name: "api.example.com", TLS: true, Method: "GET", URL: &url.URL{Path: "/"}}
	if v := s.Request(inner); !v.Ask || v.Rule != "inner" {
		t.Errorf("a closed address: %+v", v)
	}
}

// What some server takes for another request than a person would be shown is not
// asked about.
func TestAskOverridden(t *testing.T) {
	s := compile(t, rules(policy.Rule{ID: "ask", Action: "ask", Addresses: []string{server}}, policy.Rule{ID: "name", Action: "ask", Hosts: []string{"api.example.com"}}))
	for _, tt := range []struct {
		field, target string
		asked         bool
	}{
		{"", "/items/1", true},
		{"X-Note", "/items/1?note=DELETE", true},
		{"X-Http-Method-Override", "/items/1", false},
		{"X_HTTP_Method_Override", "/items/1", false},
		{"X-Original-Url", "/items/1", false},
		{"", "/items/1?_method=DELETE", false},
	} {
		u, err := url.ParseRequestURI(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "api.example.com"} {
			r := policy.Request{Addr: netip.MustParseAddrPort(server + ":80"), Name: name, Method: "GET", URL: u, Header: map[string][]string{tt.field: {"DELETE"}}}
			v := s.Request(r)
			if v.Ask != tt.asked || v.Allowed() != tt.asked || tt.asked == (v.Code == policy.CodeRequest) {
				t.Errorf("%q %s: %+v", tt.field, tt.target, v)
			}
			if (r.Overridden() == "") != tt.asked {
				t.Errorf("%q %s: %q", tt.field, tt.target, r.Overridden())
			}
		}
	}
}

// A rule that is about an address has that in what is asked and written, and no name
// that a sandbox has said there.
func TestAskByAddress(t *testing.T) {
	s := compile(t, rules(
		policy.Rule{ID: "ask", Action: "ask", Addresses: []string{"192.0.2.2", "2001:db8::2"}},
		policy.Rule{ID: "both", Action: "ask", Hosts: []string{"db.example.com"}, Addresses: []string{"10.0.0.0/8"}},
		policy.Rule{ID: "name", Action: "ask", Hosts: []string{"*.example.org"}},
	))
	for _, tt := range []struct {
		q    policy.Question
		want string // hosts and addresses
	}{
		{policy.Question{Rule: "ask", Host: "pypi.org", Address: "192.0.2.2"}, "[] [192.0.2.2]"},
		{policy.Question{Rule: "ask", Host: "2001:db8::2", Address: "2001:db8::2"}, "[] [2001:db8::2]"},
		{policy.Question{Rule: "ask", Host: "pypi.org", Address: "192.0.2.3"}, "about other addresses"},
		{policy.Question{Rule: "ask", Host: "pypi.org"}, "about other hosts"},
		{policy.Question{Rule: "both", Host: "db.example.com", Address: "10.0.0.5"}, "[db.example.com] [10.0.0.5]"},
		{policy.Question{Rule: "both", Host: "db.example.com"}, "[db.example.com] []"},
		{policy.Question{Rule: "both", Host: "pypi.org", Address: "10.0.0.5"}, "[] [10.0.0.5]"},
		{policy.Question{Rule: "name", Host: "a.example.org"}, "[a.example.org] []"},
		{policy.Question{Rule: "name", Host: "example.org"}, "about other hosts"},
	} {
		tt.q.Port, tt.q.Method, tt.q.Target = 443, "GET", "/"
		r, err := s.Always("approved-1", tt.q)
		if got := fmt.Sprint(r.Hosts, r.Addresses, err); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt.q, got)
		}
	}
	for to, by := range map[string]bool{"192.0.2.2:443": true, "45.0.0.1:443": false} {
		name := map[bool]string{true: "pypi.org", false: "a.example.org"}[by]
		v := s.Request(policy.Request{Addr: netip.MustParseAddrPort(to), Name: name, TLS: true, Method: "GET", URL: &url.URL{Path: "/"}})
		if !v.Ask || v.ByAddress != by {
			t.Errorf("%s: %+v", to, v)
		}
	}
}

func TestAskMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"rules":[{"hosts":["a.example"],"action":"maybe"}]}`: "allow, ask or deny",
		`{"ask":{"timeout":"0s"}}`:                             "from 1s to 1h0m0s",
		`{"ask":{"timeout":"61m"}}`:                            "ask.timeout",
		`{"ask":{"timeout":"soon"}}`:                           "no time to wait",
		`{"ask":{"time":"1s"}}`:                                "not of the schema",
		`{"rules":[{"hosts":["a.example"],"action":"ask","secrets":[{"name":"PAY_KEY","header":"X-Api-Key","ask":true}]}]}`: "asked for, and its secrets with it",
	} {
		p, err := policy.Parse([]byte(text))
		if err == nil {
			_, err = policy.Compile(p, []string{"PAY_KEY"})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRevision(t *testing.T) {
	base := policy.Policy{Rules: []policy.Rule{hosts("a.example")}}
	s := compile(t, base)
	if s.AskTimeout() != 300*time.Second || len(s.Revision()) != 32 {
		t.Errorf("%v, %q", s.AskTimeout(), s.Revision())
	}
	if again := compile(t, *policy.Clone(&base)); again.Revision() != s.Revision() {
		t.Error("the same policy has two revisions")
	}
	for name, p := range map[string]policy.Policy{
		"a rule":    {Rules: []policy.Rule{hosts("b.example")}},
		"a default": {Default: policy.DefaultPublic, Rules: base.Rules},
		"a time":    {Rules: base.Rules, Ask: policy.Asking{Timeout: "2m"}},
	} {
		if compile(t, p).Revision() == s.Revision() {
			t.Errorf("%s is another, and the revision is the same", name)
		}
	}
}

// What "always" writes lets through what was asked, and little else.
func TestAlways(t *testing.T) {
	asking := policy.Rule{
		ID: "ask", Action: "ask", Hosts: []string{"*.example.com"},
		Matches: []policy.Match{{Methods: []string{"POST"}, Headers: []policy.Field{{Name: "X-Kind", Value: "a"}}}, {Methods: []string{"DELETE"}}},
	}
	s := compile(t, rules(asking))
	r, err := s.Always("approved-1", policy.Question{Rule: "ask", Host: "api.example.com", Port: 443, Method: "DELETE", Target: "/v1/items?a=b"})
	if err != nil {
		t.Fatal(err)
	}
	with := compile(t, policy.With(rules(asking), r))
	for target, asks := range map[string]bool{"/v1/items?a=b": false, "/v1/items?a=c": true, "/v1/items": true, "/v1/items/7?a=b": true} {
		if v := askRequest(t, with, "DELETE", target); !v.Allowed() || v.Ask != asks {
			t.Errorf("%s: %+v, want asked %v", target, v, asks)
		}
	}
	if len(r.Matches) != 1 {
		t.Errorf("matches: %+v", r.Matches)
	}
	if r, err = s.Always("x", policy.Question{Rule: "ask", Host: "api.example.com", Port: 443, Method: "POST", Target: "/v1"}); err != nil || len(r.Matches) != 1 || len(r.Matches[0].Headers) != 1 {
		t.Errorf("the header is not asked for: %+v, %v", r, err)
	}
	for _, target := range []string{"/a/%2e%2e/b", "/a?b=1&b=2", "/a?b;c", "/a?" + strings.Repeat("x&", 20) + "=", "nothing"} {
		if r, err := s.Always("x", policy.Question{Rule: "ask", Host: "api.example.com", Port: 443, Method: "DELETE", Target: target}); err == nil {
			t.Errorf("%s: %+v", target, r)
		}
	}
}

// The secret that was asked for is not asked for any more.
func TestAlwaysOfASecret(t *testing.T) {
	p := rules(policy.Rule{
		ID: "api", Hosts: []string{"api.example.com"}, Matches: []policy.Match{{Methods: []string{"GET"}, Paths: []policy.Value{{Type: "exact", Value: "/v1"}}}},
		Secrets: []policy.Secret{{Name: "PAY_KEY", Header: "X-Api-Key", Ask: true}},
	})
	s := compile(t, p, "PAY_KEY")
	if v := askRequest(t, s, "GET", "/v1"); v.Ask || !v.Route.AsksForSecret() {
		t.Errorf("before: %+v", v)
	}
	r, err := s.Always("approved-1", policy.Question{Rule: "api", Host: "api.example.com", Port: 443, Method: "GET", Target: "/v1", Secret: "PAY_KEY"})
	if err != nil {
		t.Fatal(err)
	}
	v := askRequest(t, compile(t, policy.With(p, r), "PAY_KEY"), "GET", "/v1")
	if v.Rule != "approved-1" || v.Route.AsksForSecret() || len(v.Route.Given()) != 1 {
		t.Errorf("after: %+v", v)
	}
}

func FuzzAlways(f *testing.F) {
	f.Add("GET", "/v1/items?a=b", "api.example.com")
	f.Add("POST", "/%2e%2e/?=&&a", "10.0.0.1")
	s, err := policy.Compile(rules(policy.Rule{ID: "ask", Action: "ask", Hosts: []string{"*.example.com"}, Addresses: []string{"10.0.0.0/8"}}), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, host string) {
		r, err := s.Always("approved-1", policy.Question{Rule: "ask", Host: host, Port: 443, Method: method, Target: target})
		if err != nil || method == "" {
			return
		}
		set, err := policy.Compile(policy.With(s.Policy(), r), nil)
		if err != nil {
			return
		}
		for _, m := range r.Matches { // never wider than one path and method
			if len(m.Methods) != 1 || len(m.Paths) != 1 || m.Paths[0].Type != policy.MatchExact {
				t.Errorf("%q %q: %+v", method, target, m)
			}
		}
		if len(r.Hosts)+len(r.Addresses) == 0 || set.Revision() == s.Revision() {
			t.Errorf("%+v", r)
		}
	})
}
