package link

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

const udpChecksumOffset = 6

// transport checks what the packet carries. start is where that begins in it.
func (f *frame) transport(b []byte, start int, protocol tcpip.TransportProtocolNumber) Reason {
	switch protocol {
	case header.TCPProtocolNumber:
		return f.tcp(b, start)
	case header.UDPProtocolNumber:
		return f.udp(b, start)
	case header.ICMPv4ProtocolNumber:
		if f.number == header.IPv4ProtocolNumber {
			return f.icmp4(b)
		}
	case header.ICMPv6ProtocolNumber:
		if f.number == header.IPv6ProtocolNumber {
			return f.icmp6(b)
		}
	}
	return DropProtocol
}

func (f *frame) tcp(b []byte, start int) Reason {
	f.protocol = "tcp"
	if len(b) < header.TCPMinimumSize {
		return DropMalformed
	}
	tcp := header.TCP(b)
	f.ports(tcp.SourcePort(), tcp.DestinationPort())
	offset := int(tcp.DataOffset())
	if offset < header.TCPMinimumSize || offset > len(b) || tcp.SourcePort() == 0 || tcp.DestinationPort() == 0 {
		return DropMalformed
	}
	switch f.vnet.kind &^ vnetECN {
	case vnetWhole:
		if f.vnet.kind != vnetWhole {
			return DropMalformed
		}
	case vnetTCP4, vnetTCP6:
		want := uint8(vnetTCP4)
		if f.number == header.IPv6ProtocolNumber {
			want = vnetTCP6
		}
		if f.vnet.kind&^vnetECN != want || f.vnet.size == 0 || int(f.vnet.size)+start+offset > f.mtu ||
			f.vnet.flags&vnetNeedsChecksum == 0 {
			return DropMalformed
		}
	default:
		return DropMalformed
	}
	return f.checksum(b, start, header.TCPProtocolNumber, header.TCPChecksumOffset)
}

func (f *frame) udp(b []byte, start int) Reason {
	f.protocol = "udp"
	if len(b) < header.UDPMinimumSize {
		return DropMalformed
	}
	udp := header.UDP(b)
	f.ports(udp.SourcePort(), udp.DestinationPort())
	if int(udp.Length()) != len(b) || f.vnet.kind != vnetWhole || udp.SourcePort() == 0 || udp.DestinationPort() == 0 {
		return DropMalformed
	}
	if udp.Checksum() == 0 && f.vnet.flags&vnetNeedsChecksum == 0 {
		if f.number == header.IPv4ProtocolNumber {
			return passed // it has none
		}
		return DropMalformed
	}
	return f.checksum(b, start, header.UDPProtocolNumber, udpChecksumOffset)
}

// checksum verifies that of a TCP or UDP packet, unless the kernel says that
// it is yet to be computed: then what it said has to fit the packet.
func (f *frame) checksum(b []byte, start int, protocol tcpip.TransportProtocolNumber, offset int) Reason {
	if f.vnet.flags&vnetNeedsChecksum != 0 {
		if int(f.vnet.checksumFrom) != ethernetLen+start || int(f.vnet.checksumOff) != offset {
			return DropMalformed
		}
		return passed
	}
	from, to := tcpip.AddrFromSlice(f.from.Addr().AsSlice()), tcpip.AddrFromSlice(f.to.Addr().AsSlice())
	sum := header.PseudoHeaderChecksum(protocol, from, to, uint16(len(b)))
	if checksum.Checksum(b, sum) != 0xffff {
		return DropMalformed
	}
	return passed
}

func (f *frame) icmp4(b []byte) Reason {
	f.protocol = "icmp"
	if len(b) < header.ICMPv4MinimumSize || f.vnet.kind != vnetWhole || checksum.Checksum(b, 0) != 0xffff {
		return DropMalformed
	}
	switch icmp := header.ICMPv4(b); {
	case icmp.Type() == header.ICMPv4Echo && icmp.Code() == 0:
		return f.echo()
	case icmp.Type() == header.ICMPv4DstUnreachable, icmp.Type() == header.ICMPv4TimeExceeded:
		return chatter // a reply of ours came too late: the stack need not hear of it
	}
	return DropProtocol
}

func (f *frame) icmp6(b []byte) Reason {
	f.protocol = "icmp"
	if len(b) < header.ICMPv6MinimumSize || f.vnet.kind != vnetWhole {
		return DropMalformed
	}
	if r := f.checksum(b, header.IPv6MinimumSize, header.ICMPv6ProtocolNumber, header.ICMPv6ChecksumOffset); r != passed {
		return r
	}
	switch icmp := header.ICMPv6(b); {
	case icmp.Type() == header.ICMPv6EchoRequest && icmp.Code() == 0:
		return f.echo()
	case icmp.Type() == header.ICMPv6DstUnreachable, icmp.Type() == header.ICMPv6TimeExceeded,
		icmp.Type() == header.ICMPv6NeighborSolicit:
		return chatter
	}
	return DropProtocol
}

func (f *frame) echo() Reason {
	if !IsGate(f.to.Addr()) && !weak.On(weak.NetEchoOpen) {
		return DropEcho
	}
	return passed
}

func (f *frame) ports(from, to uint16) {
	f.from = netip.AddrPortFrom(f.from.Addr(), from)
	f.to = netip.AddrPortFrom(f.to.Addr(), to)
}
