package link

import (
	"context"
	"net/netip"
	"os"
	"sync"
)

// For tests: the guest's side of things, and bounds that are otherwise fixed.
var (
	Elsewhere = elsewhere
	Enter     = enter
	GuestMAC  = guestMAC
	GateMAC   = gateMAC
)

const (
	HeadLen   = headLen
	VnetLen   = vnetHeaderLen
	DropKinds = dropKinds
)

// Filter reports what the filter says of a frame with the TAP's header.
func Filter(b []byte, mtu int) (reason Reason, chat bool, packet []byte, from, to netip.AddrPort) {
	f := read(b[:min(len(b), headLen)], b[min(len(b), headLen):], mtu)
	if f.reason == chatter {
		return passed, true, f.packet, f.from, f.to
	}
	return f.reason, false, f.packet, f.from, f.to
}

var mtuMu sync.Mutex

// CreateMTU is Create with another MTU.
func CreateMTU(ctx context.Context, mtu int) (*Device, error) {
	mtuMu.Lock()
	defer mtuMu.Unlock()
	old := deviceMTU
	deviceMTU = mtu
	defer func() { deviceMTU = old }()
	return Create(ctx)
}

// NewStackMTU is NewStack with another MTU.
func NewStackMTU(tap *os.File, mtu uint32, opts Options) (*Stack, error) {
	return newStack(tap, mtu, opts)
}

// Open is how many connections count, and how many bytes are spare.
func (s *Stack) Open() (open int, spare int64) {
	s.tcp.mu.Lock()
	defer s.tcp.mu.Unlock()
	return s.tcp.open, s.tcp.spare
}

// Flows is how many flows count.
func (s *Stack) Flows() int {
	s.udp.mu.Lock()
	defer s.udp.mu.Unlock()
	return s.udp.open
}
