package policy

import (
	"net/netip"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// block is a range of addresses that are closed, for what they are.
type block struct {
	prefix netip.Prefix
	what   string
	never  bool // no rule opens it: no connection goes to such an address
}

// blocks are the special-purpose registries of IANA, as far as what is in
// them is not part of the public internet, and the addresses at which clouds
// hand credentials to every process within.
var blocks = []block{
	{pfx("0.0.0.0/8"), "this host", true},
	{pfx("10.0.0.0/8"), "private", false},
	{pfx("100.64.0.0/10"), "a carrier's", false},
	{pfx("127.0.0.0/8"), "loopback", false},
	{pfx("169.254.0.0/16"), "link-local", false},
	{pfx("172.16.0.0/12"), "private", false},
	{pfx("192.0.0.0/24"), "of protocols", false},
	{pfx("192.0.2.0/24"), "for documentation", false},
	{pfx("192.88.99.0/24"), "6to4", false},
	{pfx("192.168.0.0/16"), "private", false},
	{pfx("198.18.0.0/15"), "for benchmarks", false},
	{pfx("198.51.100.0/24"), "for documentation", false},
	{pfx("203.0.113.0/24"), "for documentation", false},
	{pfx("224.0.0.0/4"), "multicast", true},
	{pfx("240.0.0.0/4"), "reserved", false},
	{pfx("255.255.255.255/32"), "broadcast", true},

	{pfx("::/128"), "unspecified", true},
	{pfx("::1/128"), "loopback", false},
	{pfx("::/96"), "IPv4-compatible", false},
	{pfx("::ffff:0:0:0/96"), "IPv4-translated", false},
	{pfx("64:ff9b:1::/48"), "local NAT64", false},
	{pfx("100::/64"), "discard-only", false},
	{pfx("100:0:0:1::/64"), "a dummy", false},
	{pfx("2001::/23"), "of protocols", false},
	{pfx("2001::/32"), "Teredo", false},
	{pfx("2001:db8::/32"), "for documentation", false},
	{pfx("2002::/16"), "6to4", false},
	{pfx("3fff::/20"), "for documentation", false},
	{pfx("5f00::/16"), "segment routing", false},
	{pfx("fc00::/7"), "private", false},
	{pfx("fe80::/10"), "link-local", false},
	{pfx("fec0::/10"), "site-local", false},
	{pfx("ff00::/8"), "multicast", true},

	// Of clouds: a range around them opens none of them.
	{pfx("169.254.169.254/32"), "metadata", false},     // AWS, Azure, Google, Oracle, others
	{pfx("169.254.170.2/32"), "metadata", false},       // AWS, of containers
	{pfx("169.254.170.23/32"), "metadata", false},      // AWS, of pods
	{pfx("169.254.0.23/32"), "metadata", false},        // Tencent
	{pfx("100.100.100.200/32"), "metadata", false},     // Alibaba
	{pfx("168.63.129.16/32"), "metadata", false},       // Azure; in no registry
	{pfx("192.0.0.192/32"), "metadata", false},         // Oracle, older
	{pfx("fd00:ec2::254/128"), "metadata", false},      // AWS
	{pfx("fd00:ec2::23/128"), "metadata", false},       // AWS, of pods
	{pfx("fd20:ce::254/128"), "metadata", false},       // Google
	{pfx("fd00:c1::a9fe:a9fe/128"), "metadata", false}, // Oracle
}

var (
	nat64     = pfx("64:ff9b::/96") // RFC 6052: the IPv4 internet, seen from IPv6
	mapped    = pfx("::ffff:0:0/96")
	global6   = pfx("2000::/3")
	local64   = pfx("64:ff9b:1::/48")
	teredo    = pfx("2001::/32")
	sixToFour = pfx("2002::/16")
	compat    = pfx("::/96")
	siit      = pfx("::ffff:0:0:0/96")
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// canonical is the address that packets for a end at: what IPv6 only wraps is
// taken out. Whatever compares addresses compares these.
func canonical(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() && nat64.Contains(a.WithZone("")) {
		return v4at(a, 12, 13, 14, 15)
	}
	return a
}

// canonicalPrefix does the same for a range.
func canonicalPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is6() && p.Bits() >= 96 && (nat64.Contains(p.Addr()) || mapped.Contains(p.Addr())) {
		return netip.PrefixFrom(v4at(p.Addr(), 12, 13, 14, 15), p.Bits()-96).Masked()
	}
	return p.Masked()
}

func v4at(a netip.Addr, i, j, k, l int) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]})
}

// embedded lists the IPv4 addresses that a router along the way may take out
// of a canonical IPv6 address.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	switch {
	case local64.Contains(a):
		// RFC 6052 has a place for each length of prefix, and only the
		// operator knows the length: all of them count.
		return []netip.Addr{v4at(a, 6, 7, 9, 10), v4at(a, 7, 9, 10, 11), v4at(a, 9, 10, 11, 12), v4at(a, 12, 13, 14, 15)}
	case teredo.Contains(a):
		b := a.As16()
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return []netip.Addr{v4at(a, 4, 5, 6, 7), client}
	case sixToFour.Contains(a):
		return []netip.Addr{v4at(a, 2, 3, 4, 5)}
	case compat.Contains(a), siit.Contains(a):
		return []netip.Addr{v4at(a, 12, 13, 14, 15)}
	}
	return nil
}

// closedBlock is the smallest block that holds a canonical address.
func closedBlock(a netip.Addr) (b block, closed bool) {
	if weak.On(weak.NetAddressesOpen) {
		return block{}, false
	}
	for _, c := range blocks {
		if c.prefix.Contains(a) && (!closed || c.prefix.Bits() > b.prefix.Bits()) {
			b, closed = c, true
		}
	}
	if !closed && a.Is6() && !global6.Contains(a) {
		return block{prefix: netip.PrefixFrom(a, 8).Masked(), what: "not a global one"}, true
	}
	return b, closed
}

// opens reports whether a range that a rule names opens a canonical address
// that is in b. A range opens what it lies within: 10.1.0.0/16 is private on
// purpose, while 0.0.0.0/0 is written by people who mean the internet.
func opens(p netip.Prefix, a netip.Addr, b block) bool {
	return !b.never && p.Contains(a) && p.Bits() >= b.prefix.Bits()
}

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
