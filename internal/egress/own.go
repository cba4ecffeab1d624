package egress

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// machine knows which addresses are the machine's own. A gate dials from the
// host's network: what listens there on a public address, behind a firewall
// that looks at what comes from outside, would be open to everybody with a name
// lead to it.
//
// Addresses of a loopback interface that are no loopback addresses are not
// among them: somebody put them there for a service.
type machine struct {
	own, service map[netip.Addr]bool // when the gate started

	mu    sync.Mutex
	since map[netip.Addr]seen // what was looked up of late
}

type seen struct {
	own bool
	at  time.Time
}

const (
	maxSeen  = 1024
	seenGood = 5 * time.Second
)

// thisMachine reads the interfaces, which a confined gate can't.
func thisMachine() (*machine, error) {
	m := &machine{own: map[netip.Addr]bool{}, service: map[netip.Addr]bool{}, since: map[netip.Addr]seen{}}
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's interfaces: %w", err)
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list the addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // of another kind
			}
			if i.Flags&net.FlagLoopback != 0 {
				m.service[p.Addr().Unmap()] = true
			} else {
				m.own[p.Addr().Unmap()] = true
			}
		}
	}
	return m, nil
}

// has reports whether a is the machine's: one that it had, or one that it
// would speak to itself from.
func (m *machine) has(a netip.Addr) bool {
	a = a.Unmap()
	switch {
	case m.own[a]:
		return true
	case m.service[a]:
		return false
	}
	now := time.Now()
	m.mu.Lock()
	s, known := m.since[a]
	m.mu.Unlock()
	if known && now.Sub(s.at) < seenGood {
		return s.own
	}
	s = seen{speaksToItself(a), now}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.since) >= maxSeen {
		clear(m.since)
	}
	m.since[a] = s
	return s.own
}

// speaksToItself connects a socket, which sends nothing, and looks from where.
func speaksToItself(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false // there is no way to it at all
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == a
}
