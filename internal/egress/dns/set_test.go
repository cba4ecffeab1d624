package dns_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

var _ dns.Policy = (*policy.Set)(nil)

// What a compiled policy says is what becomes of the questions.
func TestCompiledPolicy(t *testing.T) {
	z := newZone(t, "api.good.test. A 1.2.3.1", "a.cdn.test. A 1.2.3.2", "db.good.test. A 10.0.0.7", "in.good.test. A 10.0.0.8",
		"nat.good.test. AAAA 64:ff9b::a00:8", "translated.good.test. AAAA 2002:a00:8::1", "meta.good.test. A 169.254.169.254", "api.good.test. TXT x", "bad.cdn.test. A 1.2.3.3")
	p, err := policy.Compile(policy.Policy{
		Rules: []policy.Rule{
			{ID: "good", Hosts: []string{"api.good.test", "db.good.test", "in.good.test", "nat.good.test", "translated.good.test", "meta.good.test"}},
			{ID: "cdn", Hosts: []string{"*.cdn.test"}},
			{ID: "bad", Hosts: []string{"bad.cdn.test"}, Action: policy.ActionDeny},
			{ID: "db", Addresses: []string{"10.0.0.7"}},
		},
		DNS: policy.DNS{Types: []string{"txt"}, Upstreams: []string{z.addr.String()}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, allow(), nil, func(o *dns.Options) { o.Policy = func() dns.Policy { return p } })
	tests := []struct {
		name, host string
		qtype      uint16
		want       string // an address
		code       string
	}{
		{"allowed", "api.good.test.", wire.TypeA, "1.2.3.1", ""},
		{"wildcard", "a.cdn.test.", wire.TypeA, "1.2.3.2", ""},
		{"denied", "bad.cdn.test.", wire.TypeA, sink4.String(), "denied"},
		{"not-named", "evil.test.", wire.TypeA, sink4.String(), "not_allowed"},
		{"opened", "db.good.test.", wire.TypeA, "10.0.0.7", ""},
		{"private", "in.good.test.", wire.TypeA, sink4.String(), "closed_address"},
		{"nat64", "nat.good.test.", wire.TypeAAAA, sink6.String(), "closed_address"},
		{"6to4", "translated.good.test.", wire.TypeAAAA, sink6.String(), "closed_address"},
		{"metadata", "meta.good.test.", wire.TypeA, sink4.String(), "closed_address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := w.ask(t, tt.host, tt.qtype)
			if got := addrs(m); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("answer = %v, want %s", got, tt.want)
			}
			if _, text := ede(m); tt.code == "" && text != "" || !strings.HasPrefix(text, tt.code) {
				t.Errorf("extended error %q, want %q", text, tt.code)
			}
			if _, v, err := w.Resolve(t.Context(), tt.host); err != nil || string(v.Code) != tt.code {
				t.Errorf("Resolve = %+v, %v", v, err)
			}
		})
	}
	if got := w.Names(netip.MustParseAddr("10.0.0.7")); !slices.Equal(got, []string{"db.good.test"}) {
		t.Errorf("names = %q", got)
	}
	if m := w.ask(t, "api.good.test.", wire.TypeTXT); len(m.Answer) != 1 {
		t.Errorf("TXT: %v", m)
	}
}
