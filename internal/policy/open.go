package policy

import "net/netip"

// Opened returns the ranges that rules open although they are closed, in the
// order of the rules: what lies within a closed block, and single addresses
// that own reports, of the machine itself. The resolvers that the policy names
// count too: the gate asks them. own may be nil.
func (s *Set) Opened(own func(netip.Addr) bool) (list []netip.Prefix) {
	for _, r := range s.rules {
		if r.deny {
			continue
		}
		for _, p := range r.prefixes {
			b, closed := closedBlock(p.Addr())
			if closed && opens(p, p.Addr(), b) || own != nil && p.IsSingleIP() && own(p.Addr()) {
				list = append(list, p)
			}
		}
	}
	for _, u := range s.policy.DNS.Upstreams {
		a, err := netip.ParseAddrPort(u)
		if err != nil {
			continue // Compile has made it one
		}
		addr := a.Addr().Unmap()
		if _, closed := closedBlock(addr); closed || own != nil && own(addr) {
			list = append(list, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return list
}
