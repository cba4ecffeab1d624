package egress

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// apart runs f in a network of its own, on a thread that ends with it.
func apart(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// addTo gives an interface an address, and has it be up.
func addTo(t *testing.T, link netlink.Link, address string) {
	t.Helper()
	addr, err := netlink.ParseAddr(address)
	if err == nil {
		err = errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestThisMachine: what the machine has is known from its interfaces, and what
// it came to have since from where it would speak to it.
func TestThisMachine(t *testing.T) {
	apart(t, func() {
		lo, err := netlink.LinkByName("lo")
		wire := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, Mode: netlink.TUNTAP_MODE_TAP}
		if err = errors.Join(err, netlink.LinkAdd(wire)); err != nil {
			t.Error(err)
			return
		}
		addTo(t, lo, "45.0.1.1/32")
		addTo(t, wire, "45.0.0.1/24")
		addTo(t, wire, "45.0.0.2/24") // a second one: it speaks to it from the first
		m, err := thisMachine()
		if err != nil {
			t.Error(err)
			return
		}
		addTo(t, wire, "45.0.2.1/24")
		for a, own := range map[string]bool{
			"45.0.0.1": true, "45.0.0.2": true, "::ffff:45.0.0.1": true, "45.0.2.1": true,
			"45.0.0.3": false, "45.0.1.1": false, "45.0.9.9": false, "2606:2800:220:1::34": false,
		} {
			for range 2 { // looked up, and remembered
				if got := m.has(netip.MustParseAddr(a)); got != own {
					t.Errorf("%s: own %t, want %t", a, got, own)
				}
			}
		}
	})
}
