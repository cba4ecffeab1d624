package loopback

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PeerUser returns the user whose socket is at the other end of a connection
// within this machine. It is not known of one whose process has closed it, of
// one from another machine or network namespace, and of one whose state the
// kernel does not tell: such a one is nobody's.
func PeerUser(c net.Conn) (uid uint32, ok bool) {
	if in, wraps := c.(interface{ NetConn() net.Conn }); wraps {
		return PeerUser(in.NetConn())
	}
	ours, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return 0, false
	}
	theirs, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return 0, false
	}
	ours, theirs = unmapped(ours), unmapped(theirs)
	uid, err = askKernel(theirs, ours)
	if errors.Is(err, errNoSocket) {
		// A kernel without sock_diag for TCP says the same of one that is there.
		if _, own := askKernel(ours, theirs); errors.Is(own, errNoSocket) {
			err = errNoDiag
		}
	}
	if errors.Is(err, errNoDiag) {
		uid, err = readLists(theirs, ours)
	}
	// While our end is connected, the two addresses are of nobody else: one that
	// was reset may have had them before.
	return uid, err == nil && open(c)
}

// open reports whether this end of a connection is connected still.
func open(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	const closeWait = 8 // the other end has ended its direction
	is := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && (info.State == stateEstablished || info.State == closeWait)
	})
	return err == nil && is
}

// The states of TCP in which a socket is somebody's, and is connected: by their
// numbers in the kernel. Those of FIN are of one that has only ended its own
// direction.
const (
	stateEstablished = 1
	stateFinWait1    = 4
	stateFinWait2    = 5
)

var connected = []uint8{stateEstablished, stateFinWait1, stateFinWait2}

var (
	errNoDiag   = errors.New("sock_diag: not available")
	errNoSocket = errors.New("there is no such socket")
	errNobodys  = errors.New("the socket is nobody's")
)

// Sizes of sock_diag(7)'s messages, in bytes.
const (
	diagHead    = 16 // nlmsghdr
	diagRequest = 56 // inet_diag_req_v2
	diagAnswer  = 72 // inet_diag_msg
	diagWait    = 2 * time.Second
)

// askKernel looks for the very socket from here to there by sock_diag(7): one
// look-up, however many connections the machine has.
func askKernel(here, there netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, errNoDiag
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(diagWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	if err := unix.Sendto(fd, diagQuestion(here, there), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, errNoDiag
	}
	buf := make([]byte, 4096)
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	if k, isKernel := from.(*unix.SockaddrNetlink); !isKernel || k.Pid != 0 {
		return 0, errors.New("sock_diag: an answer that is not the kernel's")
	}
	return parseDiag(buf[:n], here, there)
}

// diagQuestion asks for one socket by its two addresses, of one family.
func diagQuestion(here, there netip.AddrPort) []byte {
	b := make([]byte, diagHead+diagRequest)
	native := binary.NativeEndian
	native.PutUint32(b, uint32(len(b)))
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[diagHead:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	if here.Addr().Is6() {
		r[0] = unix.AF_INET6
	}
	native.PutUint32(r[4:], 0xffffffff) // of any state
	binary.BigEndian.PutUint16(r[8:], here.Port())
	binary.BigEndian.PutUint16(r[10:], there.Port())
	copy(r[12:28], here.Addr().AsSlice())
	copy(r[28:44], there.Addr().AsSlice())
	native.PutUint64(r[48:], 1<<64-1) // by no cookie
	return b
}

// parseDiag reads the kernel's answer about the socket from here to there.
func parseDiag(b []byte, here, there netip.AddrPort) (uid uint32, err error) {
	native := binary.NativeEndian
	if len(b) < diagHead+4 {
		return 0, errors.New("sock_diag: a short answer")
	}
	m := b[diagHead:]
	switch native.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		switch e := unix.Errno(-int32(native.Uint32(m))); e {
		case unix.ENOENT:
			return 0, errNoSocket
		case unix.EOPNOTSUPP, unix.EINVAL, unix.EPROTONOSUPPORT:
			return 0, errNoDiag
		default:
			return 0, fmt.Errorf("sock_diag: %w", e)
		}
	case unix.SOCK_DIAG_BY_FAMILY:
	default:
		return 0, errors.New("sock_diag: an answer of another kind")
	}
	if len(m) < diagAnswer {
		return 0, errors.New("sock_diag: a short answer")
	}
	// A listener answers for a connection that is not there.
	if binary.BigEndian.Uint16(m[4:]) != here.Port() || binary.BigEndian.Uint16(m[6:]) != there.Port() {
		return 0, errNoSocket
	}
	inode := native.Uint32(m[68:])
	if inode == 0 || !slices.Contains(connected, m[1]) {
		return 0, errNobodys
	}
	return native.Uint32(m[64:]), nil
}

// readLists looks for the socket from here to there in the kernel's lists.
func readLists(here, there netip.AddrPort) (uint32, error) {
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // there may be no IPv6
		}
		uid, ok := findUser(f, here, there)
		_ = f.Close()
		if ok {
			return uid, nil
		}
	}
	return 0, errNoSocket
}

// findUser looks for the socket from here to there in one of the kernel's lists.
// One that its process has closed already is nobody's, and said to be root's: it
// does not count.
func findUser(list io.Reader, here, there netip.AddrPort) (uid uint32, ok bool) {
	want := [2]netip.AddrPort{unmapped(here), unmapped(there)}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[9] == "0" {
			continue
		}
		state, err := strconv.ParseUint(f[3], 16, 8)
		if err != nil || !slices.Contains(connected, uint8(state)) {
			continue
		}
		if (parseKernelAddr(f[1]) != want[0]) || parseKernelAddr(f[2]) != want[1] {
			continue
		}
		n, err := strconv.ParseUint(f[7], 10, 32)
		return uint32(n), err == nil
	}
	return 0, false
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// parseKernelAddr reads "0100007F:1F90", of which each four bytes are in this
// machine's order; the zero value is no address.
func parseKernelAddr(s string) (a netip.AddrPort) {
	addr, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(addr)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(b)%4 != 0 {
		return a
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, ok := netip.AddrFromSlice(b)
	if !ok {
		return a
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n))
}
