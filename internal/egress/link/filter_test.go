package link_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

// Addresses that are nobody's.
var (
	remote4 = netip.MustParseAddr("198.51.100.7")
	remote6 = netip.MustParseAddr("2001:db8::7")
)

// ethernet puts the guest's link header before a packet.
func ethernet(kind uint16, packet []byte) []byte {
	b := slices.Concat(link.GateMAC[:], link.GuestMAC[:], binary.BigEndian.AppendUint16(nil, kind))
	return append(b, packet...)
}

func tcpipAddr(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// packet is an IP packet that carries payload, whose checksum it sets.
func packet(from, to netip.Addr, protocol uint8, payload []byte) []byte {
	payload = bytes.Clone(payload)
	sum := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(protocol), tcpipAddr(from), tcpipAddr(to), uint16(len(payload)))
	at := -1
	switch protocol {
	case 6:
		at = 16
	case 17:
		at = 6
	case 1:
		at, sum = 2, 0
	case 58:
		at = 2
	}
	if at >= 0 && len(payload) >= at+2 {
		binary.BigEndian.PutUint16(payload[at:], ^checksum.Checksum(payload, sum))
	}
	if from.Is4() {
		b := make([]byte, header.IPv4MinimumSize)
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b) + len(payload)), TTL: 64, Protocol: protocol,
			SrcAddr: tcpipAddr(from), DstAddr: tcpipAddr(to),
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		return ethernet(0x0800, append(b, payload...))
	}
	b := make([]byte, header.IPv6MinimumSize)
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), TransportProtocol: tcpip.TransportProtocolNumber(protocol), HopLimit: 64,
		SrcAddr: tcpipAddr(from), DstAddr: tcpipAddr(to),
	})
	return ethernet(0x86dd, append(b, payload...))
}

func udpPayload(from, to uint16, data string) []byte {
	b := make([]byte, header.UDPMinimumSize)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: from, DstPort: to, Length: uint16(len(b) + len(data))})
	return append(b, data...)
}

func syn(from, to uint16) []byte {
	b := make([]byte, header.TCPMinimumSize)
	header.TCP(b).Encode(&header.TCPFields{
		SrcPort: from, DstPort: to, SeqNum: 1000, DataOffset: header.TCPMinimumSize,
		Flags: header.TCPFlagSyn, WindowSize: 65535,
	})
	return b
}

func echoRequest(six bool) []byte {
	b := make([]byte, 16)
	b[0] = 8
	if six {
		b[0] = 128
	}
	return b
}

func arpRequest(mac [6]byte, from netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, mac[:]...), from.AsSlice()...)
	b = append(append(b, make([]byte, 6)...), link.Gate4.AsSlice()...)
	f := ethernet(0x0806, b)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	return f
}

// change returns frame with one thing altered, and the IPv4 header's checksum
// right again.
func change(frame []byte, f func(b []byte)) []byte {
	b := bytes.Clone(frame)
	f(b)
	if len(b) >= 34 && b[12] == 8 && b[13] == 0 {
		if n := int(b[14]&15) * 4; n >= 20 && len(b) >= 14+n {
			ip := header.IPv4(b[14:])
			ip.SetChecksum(0)
			ip.SetChecksum(^checksum.Checksum(b[14:14+n], 0))
		}
	}
	return b
}

// withOptions lengthens an IPv4 header by one word of no-operations.
func withOptions(frame []byte) []byte {
	b := slices.Insert(bytes.Clone(frame), 34, 1, 1, 1, 1)
	return change(b, func(b []byte) { b[14]++; binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14)) })
}

// withExtension puts an IPv6 extension header of eight bytes before the rest.
func withExtension(frame []byte, kind uint8) []byte {
	b := slices.Insert(bytes.Clone(frame), 54, frame[20], 0, 1, 4, 0, 0, 0, 0)
	b[20] = kind
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	return b
}

func putMAC(at int, mac ...byte) func([]byte) { return func(b []byte) { copy(b[at:], mac) } }

// A hostile frame, and why it is to be dropped. The good ones have no reason,
// and those that need no record are marked.
type sample struct {
	name    string
	frame   []byte // without the TAP's header
	want    link.Reason
	chatter bool
}

var (
	good4    = packet(link.Guest4, remote4, 6, syn(40000, 443))
	good6    = packet(link.Guest6, remote6, 6, syn(40000, 443))
	goodUDP4 = packet(link.Guest4, remote4, 17, udpPayload(40000, 443, "hello"))
	goodUDP6 = packet(link.Guest6, remote6, 17, udpPayload(40000, 443, "hello"))
	ping4    = packet(link.Guest4, link.Gate4, 1, echoRequest(false))
	ping6    = packet(link.Guest6, link.Gate6, 58, echoRequest(true))
)

func samples() []sample {
	return slices.Concat([]sample{
		{name: "tcp4", frame: good4},
		{name: "tcp6", frame: good6},
		{name: "udp4", frame: goodUDP4},
		{name: "udp6", frame: goodUDP6},
		{name: "udp4-no-checksum", frame: change(goodUDP4, func(b []byte) { b[40], b[41] = 0, 0 })},
		{name: "ping4-gate", frame: ping4},
		{name: "ping6-gate", frame: ping6},
		{name: "padded", frame: append(bytes.Clone(good4), make([]byte, 6)...)},
	}, linkSamples(), networkSamples(), transportSamples(), chatterSamples())
}

func linkSamples() []sample {
	return []sample{
		{"empty", nil, link.DropMalformed, false},
		{"half-a-header", good4[:10], link.DropMalformed, false},
		{"header-alone", good4[:14], link.DropMalformed, false},
		{"another-sender", change(good4, putMAC(6, 2, 0, 0, 0, 0, 9)), link.DropSpoofed, false},
		{"the-gate-as-sender", change(good4, putMAC(6, link.GateMAC[:]...)), link.DropSpoofed, false},
		{"another-receiver", change(good4, putMAC(0, 2, 0, 0, 0, 0, 9)), link.DropDestination, false},
		{"broadcast", change(good4, putMAC(0, 255, 255, 255, 255, 255, 255)), link.DropDestination, false},
		{"vlan", change(good4, putMAC(12, 0x81, 0)), link.DropProtocol, false},
		{"length-for-a-type", change(good4, putMAC(12, 0, 60)), link.DropProtocol, false},
		{"arp-as-the-gate", arpRequest(link.GuestMAC, link.Gate4), link.DropSpoofed, false},
		{"arp-of-another", arpRequest(link.GateMAC, link.Guest4), link.DropSpoofed, false},
		{"arp-short", arpRequest(link.GuestMAC, link.Guest4)[:30], link.DropMalformed, false},
		{"mtu-ignored", packet(link.Guest4, remote4, 17, udpPayload(40000, 443, string(make([]byte, link.MTU)))), link.DropOversized, false},
	}
}

func networkSamples() []sample {
	to4 := func(a string) []byte { return packet(link.Guest4, netip.MustParseAddr(a), 6, syn(40000, 443)) }
	to6 := func(a string) []byte { return packet(link.Guest6, netip.MustParseAddr(a), 6, syn(40000, 443)) }
	return []sample{
		{"source-4", packet(netip.MustParseAddr("192.0.0.4"), remote4, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-of-the-gate-4", packet(link.Gate4, remote4, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-loopback-4", packet(netip.MustParseAddr("127.0.0.1"), remote4, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-none-4", packet(netip.MustParseAddr("0.0.0.0"), remote4, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-6", packet(netip.MustParseAddr("fd63:6172:626f:7900::4"), remote6, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-of-the-gate-6", packet(link.Gate6, remote6, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"source-link-local-6", packet(netip.MustParseAddr("fe80::1"), remote6, 6, syn(40000, 443)), link.DropSpoofed, false},
		{"to-loopback-4", to4("127.0.0.1"), link.DropDestination, false},
		{"to-none-4", to4("0.0.0.0"), link.DropDestination, false},
		{"to-itself-4", to4("192.0.0.2"), link.DropDestination, false},
		{"to-multicast-4", to4("224.0.0.9"), link.DropDestination, false},
		{"to-broadcast-4", to4("255.255.255.255"), link.DropDestination, false},
		{"to-subnet-broadcast-4", to4("192.0.0.7"), link.DropDestination, false},
		{"to-loopback-6", to6("::1"), link.DropDestination, false},
		{"to-none-6", to6("::"), link.DropDestination, false},
		{"to-itself-6", to6(link.Guest6.String()), link.DropDestination, false},
		{"to-multicast-6", to6("ff02::9"), link.DropDestination, false},
		{"fragment-first-4", change(good4, func(b []byte) { b[20] |= 0x20 }), link.DropFragment, false},
		{"fragment-later-4", change(good4, func(b []byte) { b[21] = 8 }), link.DropFragment, false},
		{"fragment-6", withExtension(good6, 44), link.DropFragment, false},
		{"options-4", withOptions(good4), link.DropOptions, false},
		{"hop-by-hop-6", withExtension(good6, 0), link.DropOptions, false},
		{"routing-6", withExtension(good6, 43), link.DropOptions, false},
		{"destination-options-6", withExtension(good6, 60), link.DropOptions, false},
		{"authentication-6", withExtension(good6, 51), link.DropOptions, false},
		{"no-next-header-6", change(good6, func(b []byte) { b[20] = 59 }), link.DropProtocol, false},
		{"version-4-of-6", change(good4, func(b []byte) { b[14] = 0x65 }), link.DropMalformed, false},
		{"version-6-of-4", change(good6, func(b []byte) { b[14] = 0x45 }), link.DropMalformed, false},
		{"header-too-short-4", change(good4, func(b []byte) { b[14] = 0x44 }), link.DropMalformed, false},
		{"header-too-long-4", change(good4, func(b []byte) { b[14] = 0x4f }), link.DropMalformed, false},
		{"longer-than-the-frame-4", change(good4, func(b []byte) { b[17]++ }), link.DropMalformed, false},
		{"shorter-than-its-header-4", change(good4, func(b []byte) { b[16], b[17] = 0, 19 }), link.DropMalformed, false},
		{"longer-than-the-frame-6", change(good6, func(b []byte) { b[19]++ }), link.DropMalformed, false},
		{"jumbo-6", change(good6, func(b []byte) { b[18], b[19] = 0, 0 }), link.DropMalformed, false},
		{"something-behind-4", append(bytes.Clone(good4), make([]byte, 40)...), link.DropMalformed, false},
		{"something-behind-6", append(bytes.Clone(good6), make([]byte, 40)...), link.DropMalformed, false},
		{"header-checksum-4", func() []byte { b := bytes.Clone(good4); b[24]++; return b }(), link.DropMalformed, false},
		{"sctp", packet(link.Guest4, remote4, 132, make([]byte, 20)), link.DropProtocol, false},
		{"gre", packet(link.Guest4, remote4, 47, make([]byte, 20)), link.DropProtocol, false},
		{"ipip", packet(link.Guest4, remote4, 4, good4[14:]), link.DropProtocol, false},
		{"6in4", packet(link.Guest4, remote4, 41, good6[14:]), link.DropProtocol, false},
		{"icmp4-in-6", packet(link.Guest6, link.Gate6, 1, echoRequest(false)), link.DropProtocol, false},
		{"icmp6-in-4", packet(link.Guest4, link.Gate4, 58, echoRequest(true)), link.DropProtocol, false},
	}
}

func transportSamples() []sample {
	icmp := func(kind byte) []byte { b := make([]byte, 16); b[0] = kind; return b }
	return []sample{
		{"tcp-checksum", change(good4, func(b []byte) { b[50]++ }), link.DropMalformed, false},
		{"tcp-checksum-6", change(good6, func(b []byte) { b[70]++ }), link.DropMalformed, false},
		{"tcp-short", packet(link.Guest4, remote4, 6, syn(40000, 443)[:19]), link.DropMalformed, false},
		{"tcp-offset-short", packet(link.Guest4, remote4, 6, change(syn(40000, 443), func(b []byte) { b[12] = 0x40 })), link.DropMalformed, false},
		{"tcp-offset-long", packet(link.Guest4, remote4, 6, change(syn(40000, 443), func(b []byte) { b[12] = 0x60 })), link.DropMalformed, false},
		{"tcp-port-0", packet(link.Guest4, remote4, 6, syn(40000, 0)), link.DropMalformed, false},
		{"tcp-from-port-0", packet(link.Guest4, remote4, 6, syn(0, 443)), link.DropMalformed, false},
		{"udp-checksum", change(goodUDP4, func(b []byte) { b[44]++ }), link.DropMalformed, false},
		{"udp-no-checksum-6", change(goodUDP6, func(b []byte) { b[60], b[61] = 0, 0 }), link.DropMalformed, false},
		{"udp-short", packet(link.Guest4, remote4, 17, udpPayload(40000, 443, "")[:7]), link.DropMalformed, false},
		{"udp-length-short", packet(link.Guest4, remote4, 17, append(udpPayload(40000, 443, ""), 1, 2)), link.DropMalformed, false},
		{"udp-length-long", packet(link.Guest4, remote4, 17, udpPayload(40000, 443, "hello")[:10]), link.DropMalformed, false},
		{"udp-port-0", packet(link.Guest4, remote4, 17, udpPayload(40000, 0, "hello")), link.DropMalformed, false},
		{"ping4-sink", packet(link.Guest4, link.Sink4, 1, echoRequest(false)), link.DropEcho, false},
		{"ping4-elsewhere", packet(link.Guest4, remote4, 1, echoRequest(false)), link.DropEcho, false},
		{"ping6-elsewhere", packet(link.Guest6, remote6, 58, echoRequest(true)), link.DropEcho, false},
		{"ping4-checksum", change(ping4, func(b []byte) { b[40]++ }), link.DropMalformed, false},
		{"ping6-checksum", change(ping6, func(b []byte) { b[60]++ }), link.DropMalformed, false},
		{"icmp-short", packet(link.Guest4, link.Gate4, 1, make([]byte, 7)), link.DropMalformed, false},
		{"icmp-redirect", packet(link.Guest4, link.Gate4, 1, icmp(5)), link.DropProtocol, false},
		{"icmp-timestamp", packet(link.Guest4, link.Gate4, 1, icmp(13)), link.DropProtocol, false},
		{"icmp-echo-reply", packet(link.Guest4, link.Gate4, 1, icmp(0)), link.DropProtocol, false},
		{"neighbour-advertisement", packet(link.Guest6, link.Gate6, 58, icmp(136)), link.DropProtocol, false},
		{"router-advertisement", packet(link.Guest6, link.Gate6, 58, icmp(134)), link.DropProtocol, false},
		{"packet-too-big", packet(link.Guest6, link.Gate6, 58, icmp(2)), link.DropProtocol, false},
	}
}

// chatterSamples are what any kernel says, and deserve no record.
func chatterSamples() []sample {
	none4, none6 := netip.MustParseAddr("0.0.0.0"), netip.IPv6Unspecified()
	group4, group6 := putMAC(0, 255, 255, 255, 255, 255, 255), putMAC(0, 0x33, 0x33, 0, 0, 0, 1)
	multi := func(a string) netip.Addr { return netip.MustParseAddr(a) }
	return []sample{
		{"arp", arpRequest(link.GuestMAC, link.Guest4), "", true},
		{"dhcp", change(packet(none4, multi("255.255.255.255"), 17, udpPayload(68, 67, "x")), group4), "", true},
		{"mdns", change(packet(link.Guest4, multi("224.0.0.251"), 17, udpPayload(5353, 5353, "x")), group4), "", true},
		{"igmp", change(withOptions(packet(link.Guest4, multi("224.0.0.22"), 2, make([]byte, 8))), group4), "", true},
		{"router-solicitation", change(packet(none6, multi("ff02::2"), 58, make([]byte, 8)), group6), "", true},
		{"listener-report", change(packet(multi("fe80::1"), multi("ff02::16"), 58, make([]byte, 8)), group6), "", true},
		{"neighbour-solicitation", change(packet(link.Guest6, multi("ff02::1:ff00:1"), 58, make([]byte, 24)), group6), "", true},
		{"unreachable", packet(link.Guest4, link.Gate4, 1, append([]byte{3, 3}, make([]byte, 30)...)), "", true},
	}
}

// plain is the TAP's header of a frame like any other.
var plain = make([]byte, link.VnetLen)

func TestFilter(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			got, chat, packet, _, _ := link.Filter(slices.Concat(plain, s.frame), link.MTU)
			if got != s.want || chat != s.chatter {
				t.Errorf("got %q (chatter: %v), want %q (%v)", got, chat, s.want, s.chatter)
			}
			if got == "" && !chat && !bytes.HasPrefix(s.frame[14:], packet) {
				t.Error("passed another packet than it was given")
			}
		})
	}
}

func vnet(flags, kind byte, size, from, offset uint16) []byte {
	b := []byte{flags, kind, 0, 0}
	for _, v := range []uint16{size, from, offset} {
		b = binary.NativeEndian.AppendUint16(b, v)
	}
	return b
}

// What the kernel says of a frame is believed where it fits the frame.
func TestFilterOffloads(t *testing.T) {
	partial := change(good4, func(b []byte) { b[50], b[51] = 1, 2 })
	big := packet(link.Guest4, remote4, 6, append(syn(40000, 443), make([]byte, 60000)...))
	big6 := packet(link.Guest6, remote6, 6, append(syn(40000, 443), make([]byte, 60000)...))
	for _, c := range []struct {
		name  string
		vnet  []byte
		frame []byte
		want  link.Reason
	}{
		{"checksum-to-come", vnet(1, 0, 0, 34, 16), partial, ""},
		{"checksum-elsewhere", vnet(1, 0, 0, 34, 18), partial, link.DropMalformed},
		{"checksum-from-elsewhere", vnet(1, 0, 0, 30, 16), partial, link.DropMalformed},
		{"checksum-verified", vnet(2, 0, 0, 0, 0), partial, link.DropMalformed},
		{"many-in-one", vnet(1, 1, 1460, 34, 16), big, ""},
		{"many-in-one-ecn", vnet(1, 0x81, 1460, 34, 16), big, ""},
		{"many-in-one-6", vnet(1, 4, 1440, 54, 16), big6, ""},
		{"many-of-the-other-kind", vnet(1, 4, 1460, 34, 16), big, link.DropMalformed},
		{"many-of-no-size", vnet(1, 1, 0, 34, 16), big, link.DropMalformed},
		{"many-beyond-the-mtu", vnet(1, 1, 1461, 34, 16), big, link.DropMalformed},
		{"many-without-checksum", vnet(0, 1, 1460, 0, 0), big, link.DropMalformed},
		{"many-of-udp", vnet(1, 3, 1460, 34, 6), goodUDP4, link.DropMalformed},
		{"one-beyond-the-mtu", vnet(1, 0, 0, 34, 16), big, link.DropOversized},
		{"ecn-alone", vnet(1, 0x80, 0, 34, 16), partial, link.DropMalformed},
		{"unknown-kind", vnet(1, 9, 1460, 34, 16), big, link.DropMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _, _, _, _ := link.Filter(slices.Concat(c.vnet, c.frame), 1500); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// FuzzFilter holds what the stack relies on: what passes is from the guest,
// whole, and for somebody else.
func FuzzFilter(f *testing.F) {
	for _, s := range samples() {
		f.Add(slices.Concat(plain, s.frame))
	}
	f.Add(slices.Concat(vnet(1, 1, 1460, 34, 16), good4))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		reason, chat, p, from, to := link.Filter(b, 1500)
		if !bytes.Equal(before, b) {
			t.Fatal("it changed the frame")
		}
		if reason != "" || chat {
			return
		}
		if err := wellFormed(p, from, to); err != nil {
			t.Fatal(err)
		}
	})
}

func wellFormed(p []byte, from, to netip.AddrPort) error {
	var protocol byte
	var payload []byte
	switch {
	case len(p) >= 20 && p[0] == 0x45:
		if int(binary.BigEndian.Uint16(p[2:])) != len(p) || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
			return fmt.Errorf("length or fragment: % x", p[:20])
		}
		protocol, payload = p[9], p[20:]
	case len(p) >= 40 && p[0]>>4 == 6:
		if int(binary.BigEndian.Uint16(p[4:]))+40 != len(p) {
			return fmt.Errorf("length: % x", p[:40])
		}
		protocol, payload = p[6], p[40:]
	default:
		return fmt.Errorf("neither IPv4 nor IPv6: % x", p)
	}
	if from.Addr() != link.Guest4 && from.Addr() != link.Guest6 {
		return fmt.Errorf("from %s", from)
	}
	if a := to.Addr(); a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() || a == link.Guest4 || a == link.Guest6 {
		return fmt.Errorf("to %s", to)
	}
	switch protocol {
	case 6, 17:
		if len(payload) < 8 || to.Port() != binary.BigEndian.Uint16(payload[2:]) || to.Port() == 0 {
			return fmt.Errorf("ports: %s, % x", to, payload)
		}
	case 1, 58:
		if !link.IsGate(to.Addr()) {
			return fmt.Errorf("ICMP to %s", to)
		}
	default:
		return fmt.Errorf("protocol %d", protocol)
	}
	return nil
}
