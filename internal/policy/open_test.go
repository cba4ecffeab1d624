package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

func TestOpened(t *testing.T) {
	own := netip.MustParseAddr("93.184.216.34")
	allow := func(addrs ...string) policy.Policy {
		return policy.Policy{Rules: []policy.Rule{{Addresses: addrs}}}
	}
	tests := []struct {
		name string
		p    policy.Policy
		want string
	}{
		{"nothing", policy.Policy{}, "[]"},
		{"names", policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}}}}, "[]"},
		{"public", allow("93.184.216.35", "8.8.0.0/16"), "[]"},
		{"all", allow("0.0.0.0/0", "::/0"), "[]"},
		{"loopback", allow("127.0.0.1"), "[127.0.0.1/32]"},
		{"private", allow("10.1.0.0/16", "1.1.1.1", "fd00::1"), "[10.1.0.0/16 fd00::1/128]"},
		{"metadata", allow("169.254.169.254"), "[169.254.169.254/32]"},
		{"mapped", allow("::ffff:10.0.0.1"), "[10.0.0.1/32]"},
		{"own", allow("93.184.216.34"), "[93.184.216.34/32]"},
		{"range-around-own", allow("93.184.216.0/24"), "[]"},
		{"beside-names", policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}, Addresses: []string{"192.168.1.1"}}}}, "[192.168.1.1/32]"},
		{"denied", policy.Policy{Rules: []policy.Rule{{Action: policy.ActionDeny, Addresses: []string{"10.0.0.0/8"}}}}, "[]"},
		{"resolver", policy.Policy{DNS: policy.DNS{Upstreams: []string{"10.0.0.53", "8.8.8.8"}}}, "[10.0.0.53/32]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set, err := policy.Compile(tt.p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(set.Opened(func(a netip.Addr) bool { return a == own })); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
