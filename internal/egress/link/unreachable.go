package link

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An answer is what an ICMP message says of a packet.
type answer int

const (
	portUnreachable answer = iota
	prohibited
	// nowhere is said by the gate itself: what the packet was for is nobody's
	// address, and no kernel believes what comes from there.
	nowhere
)

// How much of a packet a message about it repeats, so that it stays within
// what every link carries.
const (
	maxMessage4 = 576
	maxMessage6 = 1280
)

// message is an IP packet to the guest that says a of packet, which came from
// the guest and has passed the filter's look at addresses and lengths. It
// comes from whom packet was for, but where that is nowhere.
func message(number tcpip.NetworkProtocolNumber, packet []byte, a answer) []byte {
	if number == header.IPv6ProtocolNumber {
		return message6(packet, a)
	}
	return message4(packet, a)
}

func message4(packet []byte, a answer) []byte {
	const start = header.IPv4MinimumSize + header.ICMPv4MinimumSize
	packet = packet[:min(len(packet), maxMessage4-start)]
	b := make([]byte, start+len(packet))
	copy(b[start:], packet)
	about := header.IPv4(packet)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)),
		TTL:         64,
		Protocol:    uint8(header.ICMPv4ProtocolNumber),
		SrcAddr:     sender(about.DestinationAddress(), a),
		DstAddr:     about.SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(b[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(header.ICMPv4PortUnreachable)
	if a != portUnreachable {
		icmp.SetCode(header.ICMPv4AdminProhibited)
	}
	icmp.SetChecksum(^checksum.Checksum(icmp, 0))
	return b
}

func message6(packet []byte, a answer) []byte {
	const start = header.IPv6MinimumSize + header.ICMPv6DstUnreachableMinimumSize
	packet = packet[:min(len(packet), maxMessage6-start)]
	b := make([]byte, start+len(packet))
	copy(b[start:], packet)
	about := header.IPv6(packet)
	from := sender(about.DestinationAddress(), a)
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(len(b) - header.IPv6MinimumSize),
		TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit:          64,
		SrcAddr:           from,
		DstAddr:           about.SourceAddress(),
	})
	icmp := header.ICMPv6(b[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(header.ICMPv6PortUnreachable)
	if a != portUnreachable {
		icmp.SetCode(header.ICMPv6Prohibited)
	}
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp, Src: from, Dst: about.SourceAddress(),
	}))
	return b
}

func sender(to tcpip.Address, a answer) tcpip.Address {
	switch {
	case a != nowhere:
		return to
	case to.Len() == header.IPv4AddressSize:
		return address(Gate4)
	}
	return address(Gate6)
}
