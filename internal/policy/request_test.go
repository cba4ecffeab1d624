package policy_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// matching is a rule about a.example with one match.
func matching(id string, m policy.Match) policy.Rule {
	return policy.Rule{ID: id, Hosts: []string{"a.example"}, Matches: []policy.Match{m}}
}

func path(kind policy.MatchType, value string) policy.Match {
	return policy.Match{Paths: []policy.Value{{Type: kind, Value: value}}}
}

func denying(r policy.Rule) policy.Rule { r.Action = policy.ActionDeny; return r }

func TestRequest(t *testing.T) {
	field := func(name, kind, value string) []policy.Field {
		return []policy.Field{{Name: name, Type: policy.MatchType(kind), Value: value}}
	}
	read := rules(matching("read", policy.Match{Methods: []string{"GET", "head"}, Paths: []policy.Value{{Value: "/v1/"}}}))
	both := rules(
		matching("exact", path("Exact", "/v1/a")), matching("prefix", path("PathPrefix", "/v1")), matching("long", path("", "/v1/b")),
		matching("regex", path("RegularExpression", "/v[0-9]+/.*")), matching("get", policy.Match{Methods: []string{"GET"}}), policy.Rule{ID: "rest", Addresses: []string{server}})
	headed := rules(matching("h", policy.Match{Headers: field("X-Kind", "", "one")}), matching("r", policy.Match{Headers: field("X-Kind", "regex", "two|three")}))
	asked := rules(matching("q", policy.Match{Query: field("service", "", "git-upload-pack")}))
	noAdmin := rules(hosts("a.example"), denying(matching("no", path("", "/admin"))))
	noDelete := public(denying(matching("no", policy.Match{Methods: []string{"DELETE"}})))
	noQuery := public(denying(matching("no", policy.Match{Query: field("debug", "", "1")})))
	alternatives := rules(policy.Rule{ID: "or", Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"GET"}}, path("exact", "/post")}})
	tests := []struct {
		name        string
		policy      policy.Policy
		method, url string
		header      []string
		code        policy.Code
		rule        string
	}{
		{"below-prefix", read, "GET", "https://a.example/v1/x", nil, "", "read"},
		{"prefix-itself", read, "GET", "https://a.example/v1", nil, "", "read"},
		{"method-case-of-rule", read, "HEAD", "https://a.example/v1", nil, "", "read"},
		{"method-case-of-request", read, "get", "https://a.example/v1", nil, policy.CodeRequest, "read"},
		{"other-method", read, "POST", "https://a.example/v1/x", nil, policy.CodeRequest, "read"},
		{"half-segment", read, "GET", "https://a.example/v1evil", nil, policy.CodeRequest, "read"},
		{"other-path", read, "GET", "https://a.example/v2", nil, policy.CodeRequest, "read"},
		{"path-case", read, "GET", "https://a.example/V1/x", nil, policy.CodeRequest, "read"},
		{"dots", read, "GET", "https://a.example/v1/../v2", nil, policy.CodeRequest, "read"},
		{"escaped-dots", read, "GET", "https://a.example/v1/%2e%2e/v2", nil, policy.CodeRequest, "read"},
		{"escaped-slash", read, "GET", "https://a.example/v1/..%2fv2", nil, policy.CodeRequest, "read"},
		{"twice-escaped", read, "GET", "https://a.example/v1/%252e%252e/v2", nil, policy.CodeRequest, "read"},
		{"backslash", read, "GET", "https://a.example/v1/..%5cv2", nil, policy.CodeRequest, "read"},
		{"parameters", read, "GET", "https://a.example/v1/..;/v2", nil, policy.CodeRequest, "read"},
		{"escaped-parameters", read, "GET", "https://a.example/v1/..%3b/v2", nil, policy.CodeRequest, "read"},
		{"empty-segment", read, "GET", "https://a.example//v1/x", nil, policy.CodeRequest, "read"},
		{"nul", read, "GET", "https://a.example/v1/x%00", nil, policy.CodeRequest, "read"},
		{"overlong", read, "GET", "https://a.example/v1/%c0%ae%c0%ae/v2", nil, policy.CodeRequest, "read"},
		{"escaped-letter", read, "GET", "https://a.example/%761/x", nil, "", "read"},
		{"query-is-no-path", read, "GET", "https://a.example/v2?/v1/x", nil, policy.CodeRequest, "read"},
		{"port", read, "GET", "https://a.example:8443/v1/x", nil, policy.CodeNotAllowed, ""},
		{"host", read, "GET", "https://b.example/v1/x", nil, policy.CodeNotAllowed, ""},

		{"exact-first", both, "GET", "https://a.example/v1/a", nil, "", "exact"},
		{"longest-prefix", both, "GET", "https://a.example/v1/b/c", nil, "", "long"},
		{"prefix-before-regex", both, "GET", "https://a.example/v1/c", nil, "", "prefix"},
		{"regex-before-none", both, "GET", "https://a.example/v2/c", nil, "", "regex"},
		{"regex-is-anchored", both, "GET", "https://a.example/x/v2/c", nil, "", "get"},
		{"host-before-address", both, "GET", "https://a.example/x", nil, "", "get"},
		{"rules-add-up", both, "POST", "https://a.example/x", nil, "", "rest"},

		{"header", headed, "GET", "https://a.example/", []string{"x-kind", "one"}, "", "h"},
		{"header-regex", headed, "GET", "https://a.example/", []string{"X-Kind", "three"}, "", "r"},
		{"header-regex-anchored", headed, "GET", "https://a.example/", []string{"X-Kind", "threefold"}, policy.CodeRequest, "h"},
		{"header-missing", headed, "GET", "https://a.example/", nil, policy.CodeRequest, "h"},
		{"header-twice", headed, "GET", "https://a.example/", []string{"X-Kind", "one", "X-Kind", "evil"}, policy.CodeRequest, "h"},
		{"query", asked, "GET", "https://a.example/?service=git-upload-pack", nil, "", "q"},
		{"query-more", asked, "GET", "https://a.example/?a=1&service=git%2Dupload-pack", nil, "", "q"},
		{"query-twice", asked, "GET", "https://a.example/?service=git-upload-pack&service=git-receive-pack", nil, policy.CodeRequest, "q"},
		{"query-semicolon", asked, "GET", "https://a.example/?service=git-upload-pack;service=git-receive-pack", nil, policy.CodeRequest, "q"},
		{"or-first", alternatives, "GET", "https://a.example/x", nil, "", "or"},
		{"or-second", alternatives, "POST", "https://a.example/post", nil, "", "or"},
		{"or-none", alternatives, "POST", "https://a.example/x", nil, policy.CodeRequest, "or"},

		{"denied", noAdmin, "GET", "https://a.example/admin/x", nil, policy.CodeDenied, "no"},
		{"denied-case", noAdmin, "GET", "https://a.example/Admin", nil, policy.CodeDenied, "no"},
		{"denied-escaped", noAdmin, "GET", "https://a.example/%61dmin", nil, policy.CodeDenied, "no"},
		{"denied-doubt", noAdmin, "GET", "https://a.example/x/..%2fadmin", nil, policy.CodeRequest, "no"},
		{"denied-doubt-slashes", noAdmin, "GET", "https://a.example//admin", nil, policy.CodeRequest, "no"},
		{"not-denied", noAdmin, "GET", "https://a.example/administration", nil, "", "rule-1"},
		{"denied-method", noDelete, "DELETE", "https://a.example/", nil, policy.CodeDenied, "no"},
		{"denied-method-case", noDelete, "delete", "https://a.example/", nil, policy.CodeDenied, "no"},
		{"not-denied-method", noDelete, "GET", "https://a.example//", nil, "", "default"},
		{"denied-query", noQuery, "GET", "https://a.example/?debug=0&debug=1", nil, policy.CodeDenied, "no"},
		{"denied-query-doubt", noQuery, "GET", "https://a.example/?x=%zz", nil, policy.CodeRequest, "no"},
		{"public", public(), "GET", "https://a.example//x", nil, "", "default"},
		{"public-governed", public(matching("r", policy.Match{Methods: []string{"GET"}})), "POST", "https://a.example/", nil, policy.CodeRequest, "r"},
		{"overridden-method", read, "GET", "https://a.example/v1/x", []string{"X-HTTP-Method-Override", "DELETE"}, policy.CodeRequest, "read"},
		{"overridden-method-listed", read, "GET", "https://a.example/v1/x", []string{"X-HTTP-Method", "GET, PUT"}, policy.CodeRequest, "read"},
		{"overridden-by-one-allowed", read, "GET", "https://a.example/v1/x", []string{"X-Method-Override", "head"}, "", "read"},
		{"overridden-path", read, "GET", "https://a.example/v1/x", []string{"X-Original-URL", "/admin"}, policy.CodeRequest, "read"},
		{"override-where-none-is-named", rules(hosts("a.example")), "POST", "https://a.example/", []string{"X-Http-Method-Override", "PUT", "X-Rewrite-Url", "/x"}, "", "rule-1"},
		{"denied-overridden-method", noDelete, "POST", "https://a.example/", []string{"X-Http-Method-Override", "delete"}, policy.CodeDenied, "no"},
		{"not-denied-overridden-method", noDelete, "POST", "https://a.example/", []string{"X-Http-Method-Override", "PATCH"}, "", "default"},
		{"denied-overridden-path", noAdmin, "GET", "https://a.example/x", []string{"X-Rewrite-Url", "/admin"}, policy.CodeRequest, "no"},
		{"overridden-method-underscores", read, "GET", "https://a.example/v1/x", []string{"X_HTTP_Method_Override", "DELETE"}, policy.CodeRequest, "read"},
		{"overridden-method-dots", read, "GET", "https://a.example/v1/x", []string{"X.Http.Method.Override", "DELETE"}, policy.CodeRequest, "read"},
		{"overridden-method-mixed", read, "GET", "https://a.example/v1/x", []string{"x_HTTP-method_OVERRIDE", "DELETE"}, policy.CodeRequest, "read"},
		{"original-method", read, "GET", "https://a.example/v1/x", []string{"X-Original-Method", "DELETE"}, policy.CodeRequest, "read"},
		{"forwarded-method", read, "GET", "https://a.example/v1/x", []string{"X-Forwarded-Method", "DELETE"}, policy.CodeRequest, "read"},
		{"method-in-a-field", read, "GET", "https://a.example/v1/x", []string{"_Method", "DELETE"}, policy.CodeRequest, "read"},
		{"overridden-path-underscores", read, "GET", "https://a.example/v1/x", []string{"X_Original_URL", "/admin"}, policy.CodeRequest, "read"},
		{"rewritten-path-underscores", read, "GET", "https://a.example/v1/x", []string{"X_Rewrite_URL", "/admin"}, policy.CodeRequest, "read"},
		{"forwarded-path", read, "GET", "https://a.example/v1/x", []string{"X-Forwarded-Uri", "/admin"}, policy.CodeRequest, "read"},
		{"override-path", read, "GET", "https://a.example/v1/x", []string{"X-Override-URL", "/admin"}, policy.CodeRequest, "read"},
		{"path-in-the-query", read, "GET", "https://a.example/v1/x?_url=/admin", nil, policy.CodeRequest, "read"},
		{"method-in-the-query", read, "GET", "https://a.example/v1/x?a=1&_method=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-escaped", read, "GET", "https://a.example/v1/x?%5fm%65thod=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-blanks", read, "GET", "https://a.example/v1/x?+%00%09_method%00=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-list", read, "GET", "https://a.example/v1/x?_METHOD[]=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-dot", read, "GET", "https://a.example/v1/x?.method=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-semicolon", read, "GET", "https://a.example/v1/x?a=1;_method=DELETE", nil, policy.CodeRequest, "read"},
		{"method-in-the-query-header's-name", read, "GET", "https://a.example/v1/x?X-HTTP-Method-Override=DELETE", nil, policy.CodeRequest, "read"},
		{"method-as-a-word", read, "GET", "https://a.example/v1/x?method=delete", nil, policy.CodeRequest, "read"},
		{"word-that-is-no-method", read, "GET", "https://a.example/v1/x?method=photos.search&path=/x&url=y", nil, "", "read"},
		{"method-in-the-query-allowed", read, "GET", "https://a.example/v1/x?_method=head", nil, "", "read"},
		{"method-in-the-query-where-none-is-named", rules(hosts("a.example")), "POST", "https://a.example/?_method=PUT", nil, "", "rule-1"},
		{"denied-method-underscores", noDelete, "POST", "https://a.example/", []string{"X_Http_Method_Override", "delete"}, policy.CodeDenied, "no"},
		{"denied-method-in-the-query", noDelete, "POST", "https://a.example/?_method=delete", nil, policy.CodeDenied, "no"},
		{"denied-path-underscores", noAdmin, "GET", "https://a.example/x", []string{"X_Rewrite_Url", "/admin"}, policy.CodeRequest, "no"},
		{"header-spelt-otherwise-too", headed, "GET", "https://a.example/", []string{"X-Kind", "one", "X_Kind", "evil"}, policy.CodeRequest, "h"},
		{"header-spelt-otherwise-alone", headed, "GET", "https://a.example/", []string{"X_Kind", "one"}, policy.CodeRequest, "h"},
		{"header-spelt-otherwise-alike", headed, "GET", "https://a.example/", []string{"X-Kind", "one", "X_Kind", "one"}, "", "h"},
		{"query-as-a-list-too", asked, "GET", "https://a.example/?service=git-upload-pack&service[]=git-receive-pack", nil, policy.CodeRequest, "q"},
		{"query-in-capitals-too", asked, "GET", "https://a.example/?service=git-upload-pack&Service=git-receive-pack", nil, policy.CodeRequest, "q"},
		{"query-after-a-blank-too", asked, "GET", "https://a.example/?service=git-upload-pack&+service=git-receive-pack", nil, policy.CodeRequest, "q"},
		{"query-with-others", asked, "GET", "https://a.example/?service=git-upload-pack&services=x&_service[a]=y", nil, "", "q"},
		{"denied-query-list", noQuery, "GET", "https://a.example/?DEBUG[]=1", nil, policy.CodeDenied, "no"},
		{"not-denied-query", noQuery, "GET", "https://a.example/?debug=0&debugger=1", nil, "", "default"},
		{"odd-host", read, "GET", "https://0x7f.1/v1", nil, policy.CodeBadDestination, ""},
		{"odd-method", read, "G ET", "https://a.example/v1", nil, policy.CodeBadDestination, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := compile(t, tt.policy).Request(ask(t, tt.method, tt.url, server, tt.header...))
			mode := allow
			if tt.code != "" {
				mode = refuse
			}
			check(t, v, mode, tt.code, tt.rule)
		})
	}
}

func TestRequestAtClosedAddresses(t *testing.T) {
	// What a rule about an address allows there, a rule about a name that
	// leads there does not widen.
	s := compile(t, rules(
		hosts("a.example"),
		policy.Rule{ID: "inner", Addresses: []string{"10.0.0.5"}, Matches: []policy.Match{path("prefix", "/public")}}))
	for target, want := range map[string]policy.Code{
		"https://a.example/public/x": "",
		"https://a.example/private":  policy.CodeClosedAddress,
	} {
		if v := s.Request(ask(t, "GET", target, "10.0.0.5")); v.Code != want {
			t.Errorf("%s: got %+v, want %q", target, v, want)
		}
	}
	if v := s.Request(ask(t, "GET", "https://a.example/private", server)); !v.Allowed() {
		t.Errorf("elsewhere: got %+v", v)
	}
}

func TestRouteOfSecrets(t *testing.T) {
	p := rules(policy.Rule{
		ID: "api", Hosts: []string{"a.example"}, Auth: policy.AuthGuest, Limits: policy.Limits{Bytes: 7},
		Secrets: []policy.Secret{{Name: "TOKEN", Header: "authorization"}, {Name: "OTHER", Query: "key", Optional: true}},
	}, hosts("b.example"))
	s := compile(t, p, "TOKEN")
	v := s.Request(ask(t, "GET", "https://a.example/", server))
	if v.Route == nil || v.Route.Rule != "api" || v.Route.Auth != policy.AuthGuest || v.Route.Limits.Bytes != 7 {
		t.Fatalf("got %+v", v)
	}
	if got := v.Route.Secrets; len(got) != 1 || got[0] != (policy.Secret{Name: "TOKEN", Header: "Authorization", Scheme: "Bearer"}) {
		t.Errorf("got %+v", got)
	}
	if v := s.Request(ask(t, "GET", "https://b.example/", server)); v.Route != nil {
		t.Errorf("got %+v", v.Route)
	}
	if v := s.Request(ask(t, "GET", "http://a.example/", server)); v.Code != policy.CodeRequest || !strings.Contains(v.Reason, "in the clear") {
		t.Errorf("got %+v", v)
	}
	// By number the rule is about nothing, though its host might be there.
	r := ask(t, "GET", "https://a.example/", server)
	r.Name = ""
	if v := s.Request(r); v.Allowed() {
		t.Errorf("got %+v", v)
	}
	if got := s.Secrets(); len(got) != 1 || got[0] != "TOKEN" {
		t.Errorf("got %v", got)
	}
}

func TestReasonsTellNoSecrets(t *testing.T) {
	s := compile(t, rules(matching("read", policy.Match{Methods: []string{"GET"}, Headers: []policy.Field{{Name: "X-Kind", Value: "one"}}}), denying(matching("no", path("", "/hush")))))
	for _, target := range []string{"https://a.example/hush/s3cret?key=s3cret", "https://a.example/s3cret//?key=s3cret", "https://b.example/s3cret?s3cret"} {
		v := s.Request(ask(t, "POST", target, server, "X-Kind", "s3cret", "Authorization", "Bearer s3cret"))
		if v.Allowed() || strings.Contains(fmt.Sprint(v), "s3cret") {
			t.Errorf("got %+v", v)
		}
	}
	v := s.Request(policy.Request{
		Addr: netip.MustParseAddrPort(server + ":443"), Name: "a.example", TLS: true, Method: "EVIL!", URL: &url.URL{Path: "/"},
	})
	if v.Code != policy.CodeRequest || strings.ContainsAny(v.Reason, "\x1b\n") {
		t.Errorf("got %+v", v)
	}
	if v := s.Name("evil\x1b[31m.example"); v.Code != policy.CodeBadDestination || strings.Contains(v.Reason, "\x1b") {
		t.Errorf("got %+v", v)
	}
}

func TestHints(t *testing.T) {
	s := compile(t, rules(hosts("a.example")))
	tests := []struct {
		got  policy.Verdict
		want string
	}{
		{s.Name("evil.example"), "ask for: --allow evil.example"},
		{s.Request(ask(t, "GET", "https://evil.example/", server)), "ask for: --allow evil.example"},
		{last(t, s, "tcp://a.example:22"), "ask for: --allow a.example:22"},
		{last(t, s, "udp://a.example:22"), "ask for: --allow udp://a.example:22"},
		{s.Connect(policy.Conn{Addr: netip.MustParseAddrPort("10.0.0.5:443"), Names: []string{"a.example"}}), "ask for: --allow 10.0.0.5"},
		{s.Connect(policy.Conn{Addr: netip.MustParseAddrPort("[2606:4700::1]:22")}), "ask for: --allow [2606:4700::1]:22"},
	}
	for _, tt := range tests {
		if tt.got.Hint != tt.want {
			t.Errorf("got %q, want %q (%s)", tt.got.Hint, tt.want, tt.got.Reason)
		}
		arg := strings.TrimPrefix(tt.got.Hint, "ask for: --allow ")
		if _, err := policy.ParseAllow(arg); err != nil {
			t.Errorf("the hint does not work: %v", err)
		}
	}
}

func TestTest(t *testing.T) {
	s := compile(t, rules(matching("read", policy.Match{Methods: []string{"GET"}})))
	steps, err := s.Test("POST https://a.example/x", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range steps {
		got = append(got, fmt.Sprintf("%s: %s", step.Question, step.Verdict.Mode))
	}
	want := "resolve a.example: allow, connect to a.example:443: sniff, open TLS to a.example:443: inspect, POST a.example:443: refuse"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s", text)
	}
	if steps, _ := s.Test("https://a.example/", netip.MustParseAddr("10.0.0.1")); steps[len(steps)-1].Verdict.Code != policy.CodeClosedAddress {
		t.Errorf("got %+v", steps)
	}
	if steps, _ := s.Test("a.example", netip.MustParseAddr(server)); !steps[len(steps)-1].Verdict.Allowed() {
		t.Errorf("got %+v", steps)
	}
	for _, bad := range []string{"", "ftp://a.example", "tcp://a.example", "https://user@a.example/", "https://", "G\x01T https://a.example", "https://0x7f.1/", "tcp://a.example:0"} {
		if steps, err := s.Test(bad, netip.Addr{}); len(policy.Problems(err)) != 1 {
			t.Errorf("%q: got %+v, %v", bad, steps, err)
		}
	}
}
