package link

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type sysctl struct{ name, value string }

// Of a new namespace, before it has an interface. What the guest sends without
// being asked is noise at best: no link-local address, no solicitations.
var (
	sysctls = []sysctl{
		{"ipv4/ip_unprivileged_port_start", "0"}, // the ports are the sandbox's alone
		{"ipv4/conf/all/accept_redirects", "0"},
		{"ipv4/conf/default/accept_redirects", "0"},
	}
	sysctls6 = []sysctl{
		{"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv6/conf/default/disable_ipv6", "0"},
		{"ipv6/conf/default/addr_gen_mode", "1"}, // none
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv6/conf/default/autoconf", "0"},
		{"ipv6/conf/default/accept_redirects", "0"},
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/dad_transmits", "0"},
		{"ipv6/conf/default/router_solicitations", "0"},
	}
)

// writeSysctls sets those of the calling thread's network namespace, and
// reports whether there is IPv6.
func writeSysctls() (ipv6 bool, err error) {
	groups, err := pingGroups()
	if err != nil {
		return false, err
	}
	list := append(slices.Clone(sysctls), sysctl{"ipv4/ping_group_range", groups})
	if ipv6 = hasIPv6(); ipv6 {
		list = append(list, sysctls6...)
	}
	for _, s := range list {
		err := os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0)
		if err != nil {
			return false, fmt.Errorf("set up network namespace: %w", err)
		}
	}
	return ipv6, nil
}

// guestGroup is that of a guest's user.
const guestGroup = 1000

// pingGroups is the range of those that may send echo requests: all that this
// user namespace knows, or the range with the guest's user, or the largest. The
// kernel wants none else to be named.
func pingGroups() (string, error) {
	b, err := os.ReadFile("/proc/thread-self/gid_map")
	if err != nil {
		return "", fmt.Errorf("set up network namespace: %w", err)
	}
	var first, most int64
	for l := range strings.Lines(string(b)) {
		var inside, outside, size int64
		if _, err := fmt.Sscan(l, &inside, &outside, &size); err != nil {
			return "", fmt.Errorf("set up network namespace: read groups %q: %w", l, err)
		}
		if inside <= guestGroup && guestGroup < inside+size {
			first, most = inside, size
			break
		}
		if size > most {
			first, most = inside, size
		}
	}
	last := min(first+most-1, math.MaxInt32)
	return fmt.Sprint(min(first, last), " ", last), nil
}

func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/default")
	return err == nil
}

func hasInterface() (bool, error) {
	_, err := os.Stat("/proc/sys/net/ipv4/conf/" + Interface)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// configure sets up the interfaces of the calling thread's network namespace,
// as far as they are not.
func configure(ipv6 bool) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("speak to the kernel's network: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	eth, err := h.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	if err := setUp(h, eth); err != nil {
		return err
	}
	if ipv6 { // first: the kernel takes its time
		if err := giveAddress(h, eth, Guest6, bits6, Gate6); err != nil {
			return fmt.Errorf("set up IPv6: %w", err)
		}
	}
	if err := giveAddress(h, eth, Guest4, bits4, Gate4); err != nil {
		return fmt.Errorf("set up IPv4: %w", err)
	}
	if ipv6 {
		return awaitLocal(h, Guest6)
	}
	return nil
}

// awaitLocal waits until the kernel takes packets for a. It lets packets be
// sent from a new IPv6 address at once, and readies it for replies in a worker
// of its own; what comes before that is lost.
func awaitLocal(h *netlink.Handle, a netip.Addr) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Microsecond) { //nolint:forbidigo // for the kernel's worker
		routes, err := h.RouteGet(a.AsSlice())
		if err != nil {
			return fmt.Errorf("look up %s: %w", a, err)
		}
		if len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the kernel does not make %s its own", a)
		}
	}
}

// deviceMTU is MTU, but where tests try others.
var deviceMTU = MTU

// setUp makes a new interface ready. It never touches one that is up: who has
// a socket bound to it would see it go.
func setUp(h *netlink.Handle, eth netlink.Link) error {
	if eth.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := h.LinkSetHardwareAddr(eth, guestMAC[:]); err != nil {
		return fmt.Errorf("address %s: %w", Interface, err)
	}
	if err := h.LinkSetMTU(eth, deviceMTU); err != nil {
		return fmt.Errorf("set MTU of %s: %w", Interface, err)
	}
	if err := h.LinkSetUp(eth); err != nil {
		return fmt.Errorf("set %s up: %w", Interface, err)
	}
	return nil
}

// giveAddress gives the interface an address, and leads everything to the gate:
// its neighbours too, for there are none, and asking for them would take
// seconds.
func giveAddress(h *netlink.Handle, eth netlink.Link, guest netip.Addr, bits int, gate netip.Addr) error {
	index := eth.Attrs().Index
	addr := &netlink.Addr{
		IPNet: &net.IPNet{IP: guest.AsSlice(), Mask: net.CIDRMask(bits, guest.BitLen())},
		Flags: unix.IFA_F_NOPREFIXROUTE,
	}
	if guest.Is6() {
		addr.Flags |= unix.IFA_F_NODAD // nobody else is there to ask
	}
	if err := h.AddrReplace(eth, addr); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	neighbour := &netlink.Neigh{
		LinkIndex: index, State: netlink.NUD_PERMANENT,
		IP: gate.AsSlice(), HardwareAddr: gateMAC[:],
	}
	if err := h.NeighSet(neighbour); err != nil {
		return fmt.Errorf("neighbour: %w", err)
	}
	scope := netlink.SCOPE_LINK
	if guest.Is6() {
		scope = netlink.SCOPE_UNIVERSE
	}
	toGate := &netlink.Route{
		LinkIndex: index, Scope: scope,
		Dst: &net.IPNet{IP: gate.AsSlice(), Mask: net.CIDRMask(gate.BitLen(), gate.BitLen())},
		Src: guest.AsSlice(),
	}
	if err := h.RouteReplace(toGate); err != nil {
		return fmt.Errorf("route to the gate: %w", err)
	}
	everywhere := &netlink.Route{LinkIndex: index, Gw: gate.AsSlice(), Src: guest.AsSlice()}
	if err := h.RouteReplace(everywhere); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}
