package link

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// A Reason is why a frame was dropped, or what it asked for refused.
type Reason string

// The reasons.
const (
	DropMalformed   Reason = "malformed"   // lengths or checksums don't agree
	DropOversized   Reason = "oversized"   // more than the MTU
	DropSpoofed     Reason = "spoofed"     // another sender than the guest
	DropFragment    Reason = "fragment"    // a part of a packet
	DropOptions     Reason = "options"     // IP options, extension headers
	DropProtocol    Reason = "protocol"    // not TCP, UDP or an ICMP echo request
	DropDestination Reason = "destination" // multicast, loopback, or the guest itself
	DropEcho        Reason = "echo"        // an echo request to another than the gate
	DropLimit       Reason = "limit"       // more connections or flows than may be

	passed  Reason = ""
	chatter Reason = "-" // what every kernel says; no record is made
)

// headLen is what stands before the packet: the TAP's header and Ethernet's.
const headLen = vnetHeaderLen + ethernetLen

// maxPacket is the longest packet that the TAP can give: one that stands for
// many.
const maxPacket = 1<<16 - 1

const ethernetLen = 14

// minPayload is what Ethernet pads short packets to.
const minPayload = 46

// A frame is what the filter read of one, whether or not it passed.
type frame struct {
	reason   Reason
	protocol string                      // tcp, udp, icmp, ip or frame, for the record
	number   tcpip.NetworkProtocolNumber // of what passed
	packet   []byte                      // the IP packet, without padding
	from, to netip.AddrPort

	vnet vnetHeader
	mtu  int
}

// read looks at a frame that the TAP gave: its headers, and what follows
// them. It keeps payload, and changes nothing in it.
func read(head, payload []byte, mtu int) frame {
	f := frame{protocol: "frame", mtu: mtu}
	f.reason = f.ethernet(head, payload)
	return f
}

func (f *frame) ethernet(head, payload []byte) Reason {
	if len(head) != headLen || len(payload) > maxPacket {
		return DropMalformed
	}
	f.vnet = parseVnet(head)
	eth := head[vnetHeaderLen:]
	if [6]byte(eth[6:12]) != guestMAC && !weak.On(weak.NetSourceAny) {
		return DropSpoofed
	}
	if f.vnet.kind == vnetWhole && len(payload) > f.mtu && !weak.On(weak.NetOversizeOpen) {
		return DropOversized
	}
	group := eth[0]&1 != 0
	if !group && [6]byte(eth[:6]) != gateMAC {
		return DropDestination
	}
	switch binary.BigEndian.Uint16(eth[12:]) {
	case uint16(header.IPv4ProtocolNumber):
		f.number, f.protocol = header.IPv4ProtocolNumber, "ip"
		return f.ipv4(payload, group)
	case uint16(header.IPv6ProtocolNumber):
		f.number, f.protocol = header.IPv6ProtocolNumber, "ip"
		return f.ipv6(payload, group)
	case uint16(header.ARPProtocolNumber):
		return arp(payload)
	}
	return DropProtocol
}

// arp tells a question, which nobody answers, from a lie. The guest has the
// gate as a permanent neighbour, and has no other.
func arp(b []byte) Reason {
	a := header.ARP(b)
	if !a.IsValid() {
		return DropMalformed
	}
	sender := netip.AddrFrom4([4]byte(a.ProtocolAddressSender()))
	if [6]byte(a.HardwareAddressSender()) != guestMAC || sender != Guest4 && !sender.IsUnspecified() {
		return DropSpoofed
	}
	return chatter
}

func (f *frame) ipv4(b []byte, group bool) Reason {
	if len(b) < header.IPv4MinimumSize {
		return DropMalformed
	}
	ip := header.IPv4(b)
	total, start := int(ip.TotalLength()), int(ip.HeaderLength())
	switch {
	case b[0]>>4 != 4 || start < header.IPv4MinimumSize || total < start || total > len(b):
		return DropMalformed
	case len(b) > max(total, minPayload):
		return DropMalformed // something is hidden behind the packet
	case checksum.Checksum(b[:start], 0) != 0xffff:
		return DropMalformed
	}
	f.packet = b[:total]
	from, to := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	f.from, f.to = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	switch {
	case from == Guest4 || weak.On(weak.NetSourceAny):
	case from.IsUnspecified() && isDHCP(b[start:total], ip.Protocol()):
		return chatter
	default:
		return DropSpoofed
	}
	switch {
	case start > header.IPv4MinimumSize && !weak.On(weak.NetOptionsOpen):
		if ip.Protocol() == protocolIGMP {
			return chatter // it always has an option
		}
		return DropOptions
	case ip.More() || ip.FragmentOffset() != 0:
		if weak.On(weak.NetFragmentsOpen) {
			return passed
		}
		return DropFragment
	case group || !reachable4(to):
		return f.unreachable(b[start:total], ip.Protocol())
	}
	return f.transport(b[start:total], start, ip.TransportProtocol())
}

func (f *frame) ipv6(b []byte, group bool) Reason {
	if len(b) < header.IPv6MinimumSize {
		return DropMalformed
	}
	ip := header.IPv6(b)
	total := header.IPv6MinimumSize + int(ip.PayloadLength())
	if b[0]>>4 != 6 || total > len(b) || len(b) > max(total, minPayload) {
		return DropMalformed
	}
	f.packet = b[:total]
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	f.from, f.to = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	payload := b[header.IPv6MinimumSize:total]
	next := ip.NextHeader()
	if from != Guest6 && !weak.On(weak.NetSourceAny) {
		// Before it has an address, and of its link-local one, a kernel speaks
		// to groups only: of neighbours, listeners, routers and leases.
		if (from.IsUnspecified() || from.IsLinkLocalUnicast()) && to.IsMulticast() {
			return chatter
		}
		return DropSpoofed
	}
	switch next {
	case uint8(header.TCPProtocolNumber), uint8(header.UDPProtocolNumber), uint8(header.ICMPv6ProtocolNumber):
	case uint8(header.IPv6FragmentExtHdrIdentifier):
		return DropFragment
	case uint8(header.IPv6HopByHopOptionsExtHdrIdentifier), uint8(header.IPv6RoutingExtHdrIdentifier),
		uint8(header.IPv6DestinationOptionsExtHdrIdentifier), protocolESP, protocolAH, protocolMobility, protocolHIP, protocolShim6:
		return DropOptions
	default:
		return DropProtocol
	}
	if group || !reachable6(to) {
		return f.unreachable(payload, next)
	}
	return f.transport(payload, header.IPv6MinimumSize, tcpip.TransportProtocolNumber(next))
}

// Protocols that have no name elsewhere.
const (
	protocolIGMP     = 2
	protocolESP      = 50
	protocolAH       = 51
	protocolMobility = 135
	protocolHIP      = 139
	protocolShim6    = 140
)

// reachable4 reports whether a stands for one host elsewhere: whether that is
// allowed is for others to say.
func reachable4(a netip.Addr) bool {
	b := a.As4()
	return a != Guest4 && b[0] != 0 && b[0] != 127 && b[0] < 224 && a != broadcast4
}

var broadcast4 = netip.AddrFrom4([4]byte{192, 0, 0, 7})

func reachable6(a netip.Addr) bool {
	return a != Guest6 && !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback()
}

// unreachable tells the announcements that kernels and resolvers send to
// groups from other things that go to no host, among them connections, which
// would be tried for minutes if nobody said no.
func (f *frame) unreachable(payload []byte, protocol uint8) Reason {
	switch protocol {
	case protocolIGMP, uint8(header.ICMPv6ProtocolNumber):
		return chatter
	case uint8(header.TCPProtocolNumber):
		if len(payload) < header.TCPMinimumSize {
			return DropMalformed
		}
		f.protocol, f.to = "tcp", netip.AddrPortFrom(f.to.Addr(), header.TCP(payload).DestinationPort())
	case uint8(header.UDPProtocolNumber):
		if len(payload) < header.UDPMinimumSize {
			return DropMalformed
		}
		udp := header.UDP(payload)
		f.protocol, f.to = "udp", netip.AddrPortFrom(f.to.Addr(), udp.DestinationPort())
		switch udp.DestinationPort() {
		case 67, 547, 1900, 5353, 5355: // DHCP, SSDP, mDNS, LLMNR
			return chatter
		}
	}
	return DropDestination
}

func isDHCP(payload []byte, protocol uint8) bool {
	return protocol == uint8(header.UDPProtocolNumber) && len(payload) >= header.UDPMinimumSize &&
		header.UDP(payload).DestinationPort() == 67
}
