package main

import (
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var socketProbes = []probe{
	{name: "agent-socket", run: agentSocket},
	{name: "host-sockets", run: hostSockets},
	{name: "shared-socket", run: sharedSocket},
	{name: "abstract-sockets", run: abstractSockets},
	{name: "host-loopback", run: hostLoopback},
	{name: "metadata", run: metadata},
	{name: "interfaces", run: interfaces},
	{name: "raw-sockets", run: rawSockets},
	{name: "socket-families", native: true, run: socketFamilies},
	{name: "routes", run: routes},
}

// unixSockets lists the names that /proc/net/unix shows.
func unixSockets() (names []string) {
	b, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 {
			names = append(names, f[7])
		}
	}
	return names
}

// agentSocket dials the guest agent by every name that could be its.
func agentSocket(t *trial) {
	names := []string{facts.Control + "/agent.sock", "/proc/1/root" + facts.Control + "/agent.sock", "/proc/1/cwd" + facts.Control + "/agent.sock", "@carboy", "@carboy-guest"}
	for _, n := range append(names, unixSockets()...) {
		if dials("unix", n) || dials("unixgram", n) {
			t.find("%s answers", n)
		}
	}
	// In case it listens on a port as well: E2B's is 49983.
	for _, port := range []int{49983, 49982, 1024, 5005, 8080} {
		for _, host := range []string{"127.0.0.1", "::1"} {
			if dials("tcp", net.JoinHostPort(host, strconv.Itoa(port))) {
				t.find("port %d answers", port)
			}
		}
	}
	t.note("no socket answers")
}

// hostSockets dials the host's socket below whatever is mounted.
func hostSockets(t *trial) {
	roots := []string{"", "/mnt", "/mnt/run", "/run/host", "/proc/1/root"}
	for _, m := range mounts() {
		roots = append(roots, m.target)
	}
	for _, r := range roots {
		for _, name := range []string{t.Socket, strings.TrimPrefix(t.Socket, "/run")} {
			if _, err := os.Lstat(r + name); err == nil {
				t.find("%s is there", r+name)
			}
			if dials("unix", r+name) {
				t.find("%s answers", r+name)
			}
		}
	}
	t.note("it is nowhere")
}

// sharedSocket dials a socket of the host's in a directory that its owner
// shares: a wall with a kernel of its own keeps even that apart.
func sharedSocket(t *trial) {
	for _, dir := range []string{facts.Writable, facts.ReadOnly} {
		name := dir + "/host.sock"
		if dials("unix", name) && !t.Native() {
			t.find("%s answers", name)
		}
	}
	t.note("no socket in a shared directory answers")
}

func abstractSockets(t *trial) {
	if dials("unix", "@"+t.Abstract) {
		t.find("the host's abstract socket answers")
	}
	for _, n := range unixSockets() {
		if strings.Contains(n, t.Marker) {
			t.find("%s is listed", n)
		} else if strings.HasPrefix(n, "@") && dials("unix", n) {
			t.find("%s answers", n)
		}
	}
	t.note("none answers")
}

func hostLoopback(t *trial) {
	for _, host := range append([]string{"127.0.0.1", "::1", "localhost", "host.docker.internal", "0.0.0.0"}, t.Addresses...) {
		if dials("tcp", net.JoinHostPort(host, strconv.Itoa(t.Port))) {
			t.find("the host's listener answers at %s", host)
		}
	}
	t.note("the host's listener is not reached")
}

func metadata(t *trial) {
	for _, addr := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "169.254.170.2:80", "1.1.1.1:53", "[2606:4700:4700::1111]:53"} {
		if dials("tcp", addr) {
			t.find("%s answers", addr)
		}
	}
	t.note("no address outside answers")
}

func interfaces(t *trial) {
	list, err := net.Interfaces()
	for _, i := range list {
		if i.Name != "lo" {
			t.find("interface %s", i.Name)
		}
	}
	for _, name := range []string{"/proc/net/dev", "/proc/net/arp", "/proc/net/route"} {
		b, _ := os.ReadFile(name)
		for line := range strings.Lines(string(b)) {
			if n, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == "/proc/net/dev" && n != "lo" && !strings.Contains(n, "|") {
				t.find("%s has %s", name, n)
			}
		}
	}
	t.note("nothing but a loopback, %v", err)
}

// rawSockets are those that read others' packets or forge them.
func rawSockets(t *trial) {
	kinds := []struct {
		name                string
		domain, kind, proto int
	}{
		{"raw IPv4", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0x300},
		{"packet datagram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x300},
	}
	for _, k := range kinds {
		if fd, err := unix.Socket(k.domain, k.kind|unix.SOCK_CLOEXEC, k.proto); err == nil {
			unix.Close(fd)
			t.find("a %s socket was made", k.name)
		}
	}
	t.note("none can be made")
}

// socketFamilies are doors into parts of the kernel that ordinary programs do
// not use; some of them lead out of the machine.
func socketFamilies(t *trial) {
	kinds := []struct {
		name                string
		domain, kind, proto int
	}{
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"kernel crypto", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"generic netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
		{"uevent netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"audit netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"netfilter netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"xfrm netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		{"diag netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		{"key", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"can", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"tipc", unix.AF_TIPC, unix.SOCK_SEQPACKET, 0},
		{"rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"smc", unix.AF_SMC, unix.SOCK_STREAM, 0},
		{"llc", unix.AF_LLC, unix.SOCK_STREAM, 0},
		{"nfc", unix.AF_NFC, unix.SOCK_SEQPACKET, 0},
		{"phonet", unix.AF_PHONET, unix.SOCK_DGRAM, 0},
	}
	for _, k := range kinds {
		if fd, err := unix.Socket(k.domain, k.kind|unix.SOCK_CLOEXEC, k.proto); err == nil {
			unix.Close(fd)
			t.find("a %s socket was made", k.name)
		}
	}
	t.note("%d families and protocols, all refused", len(kinds))
}

// routes gives the loopback one more address, as whoever may change the
// network can.
func routes(t *trial) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.note("netlink: %v", err)
		return
	}
	defer unix.Close(fd)
	req := []byte{
		32, 0, 0, 0, unix.RTM_NEWADDR, 0, unix.NLM_F_REQUEST | unix.NLM_F_ACK, 4, 1, 0, 0, 0, 0, 0, 0, 0, // header
		unix.AF_INET, 32, 0, 0, 1, 0, 0, 0, // address family, prefix length, flags, scope, index of lo
		8, 0, unix.IFA_LOCAL, 0, 127, 66, 66, 66,
	}
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.note("netlink: %v", err)
		return
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err == nil && n >= 20 && answer[4] == unix.NLMSG_ERROR && answer[16] == 0 && answer[17] == 0 {
		t.find("an address was added to the loopback")
	}
	t.note("refused")
}
