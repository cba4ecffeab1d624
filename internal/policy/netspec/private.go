package netspec

import (
	"net"
	"net/netip"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Private refuses a policy that opens what is closed by itself, for callers
// who are not entitled to that: addresses of the host's own networks, its
// loopback and its metadata service are not theirs to give away. p may be nil.
func Private(p *policy.Policy, secrets []string) error {
	if p == nil {
		return nil
	}
	set, err := policy.Compile(*p, secrets)
	if err != nil {
		return sandbox.PolicyError("policy", err)
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	if opened := set.Opened(func(a netip.Addr) bool { return own[a] }); len(opened) > 0 {
		return sandbox.Errorf(sandbox.Denied, "policy: this key may not open %s, which is not public", opened[0]).
			WithHint(`set "private_network": true in the key file`)
	}
	return nil
}

// ownAddresses are this machine's.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own, nil
}
