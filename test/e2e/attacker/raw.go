package main

import (
	"fmt"
	"syscall"
)

func init() { attempts["raw-sockets"] = rawSockets }

// rawSockets wants to write packets of its own: frames, and every kind of IP
// packet.
func rawSockets(r *result) error {
	const every = 0x0300 // ETH_P_ALL, as it goes over the wire
	for _, s := range []struct {
		name                   string
		domain, kind, protocol int
	}{
		{"frames", syscall.AF_PACKET, syscall.SOCK_RAW, every},
		{"packets", syscall.AF_PACKET, syscall.SOCK_DGRAM, every},
		{"TCP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP},
		{"ICMP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP},
		{"IP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW},
		{"IPv6", syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_RAW},
		{"ICMPv6", syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_ICMPV6},
	} {
		if fd, err := syscall.Socket(s.domain, s.kind, s.protocol); err == nil {
			syscall.Close(fd)
			r.Found = fmt.Sprintf("a raw socket for %s", s.name)
		}
	}
	return nil
}
