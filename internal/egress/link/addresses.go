package link

import "net/netip"

// The addresses of every link. 192.0.0.0/29 is set aside for links that no
// router sees, and fd63:6172:626f:7900::/64 is a prefix of our own: neither is
// a destination that anyone has to reach.
var (
	Guest4 = netip.MustParseAddr("192.0.0.2")
	Guest6 = netip.MustParseAddr("fd63:6172:626f:7900::2")
	// Gate4 and Gate6 are the gate's own: it resolves, proxies and informs there.
	Gate4 = netip.MustParseAddr("192.0.0.1")
	Gate6 = netip.MustParseAddr("fd63:6172:626f:7900::1")
	// Sink4 and Sink6 are what a name has that no rule allows: a request to
	// them is answered with the reason, and leads nowhere.
	Sink4 = netip.MustParseAddr("192.0.0.3")
	Sink6 = netip.MustParseAddr("fd63:6172:626f:7900::3")
)

// The lengths of the prefixes that the guest's addresses are given with.
const (
	bits4 = 29
	bits6 = 64
)

// The gate's ports, and its name.
const (
	PortDNS   = 53   // the resolver, over UDP and TCP
	PortInfo  = 80   // a page that says what is allowed, and services
	PortTLS   = 443  // the same in TLS
	PortProxy = 3128 // the HTTP proxy
	Hostname  = "gate.carboy.internal"
)

// Interface is the name of the sandbox's interface.
const Interface = "eth0"

// MTU is that of the link, in bytes.
const MTU = 65000

// The link addresses: each frame of the guest's goes from guestMAC to
// gateMAC. Both are locally administered, and nobody has to ask for them: the
// guest has them as permanent neighbours.
var (
	guestMAC = [6]byte{0x02, 0xca, 0xb0, 0x00, 0x00, 0x02}
	gateMAC  = [6]byte{0x02, 0xca, 0xb0, 0x00, 0x00, 0x01}
)

// IsGate reports whether a is one of the gate's own addresses.
func IsGate(a netip.Addr) bool { return a == Gate4 || a == Gate6 }

// IsSink reports whether a is one of the addresses of names that are not
// allowed.
func IsSink(a netip.Addr) bool { return a == Sink4 || a == Sink6 }
