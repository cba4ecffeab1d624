package policy_test

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Under public-read the same is let through and refused as under public, and what is
// the web's is read.
func TestPublicRead(t *testing.T) {
	read := compile(t, policy.Policy{Default: policy.DefaultRead})
	pub := compile(t, policy.Policy{Default: policy.DefaultPublic})
	name := []string{"a.example.net"}
	for _, tt := range []struct {
		at         string
		udp, named bool
		inspected  bool
	}{
		{at: server + ":443", named: true, inspected: true},
		{at: server + ":8443", named: true, inspected: true},
		{at: server + ":22", named: true},
		{at: server + ":53", named: true},
		{at: server + ":443", named: true, udp: true},
		{at: server + ":443"},
		{at: "10.0.0.5:443", named: true},
		{at: "169.254.169.254:80", named: true},
	} {
		c := policy.Conn{UDP: tt.udp, Addr: netip.MustParseAddrPort(tt.at)}
		if tt.named {
			c.Names = name
		}
		got, want := read.Connect(c), pub.Connect(c)
		if got.Allowed() != want.Allowed() || got.Code != want.Code {
			t.Errorf("%+v: %+v, and under public %+v", tt, got, want)
		}
		if !got.Allowed() || tt.udp {
			continue
		}
		s := policy.Stream{Conn: c, Name: name[0], TLS: true}
		if v := read.Stream(s); tt.inspected && (got.Mode != policy.ModeSniff || v.Mode != policy.ModeInspect) {
			t.Errorf("%+v: %s, and then %s", tt, got.Mode, v.Mode)
		}
		if v := pub.Stream(s); v.Mode != policy.ModePassthrough {
			t.Errorf("%+v under public: %s", tt, v.Mode)
		}
		if v := read.Request(policy.Request{Addr: c.Addr, Name: name[0], TLS: true, Method: "POST", URL: &url.URL{Path: "/x"}}); !v.Allowed() {
			t.Errorf("%+v: its request: %+v", tt, v)
		}
	}
	// A host that a rule is about is governed by it alone.
	ruled := compile(t, policy.Policy{Default: policy.DefaultRead, Rules: []policy.Rule{{Hosts: []string{"pinned.example"}, Protocol: policy.ProtocolTLS}}})
	c := policy.Conn{Addr: netip.MustParseAddrPort(server + ":443"), Names: []string{"pinned.example"}}
	if v := ruled.Stream(policy.Stream{Conn: c, Name: "pinned.example", TLS: true}); v.Mode != policy.ModePassthrough {
		t.Errorf("a rule for TLS: %s", v.Mode)
	}
}
