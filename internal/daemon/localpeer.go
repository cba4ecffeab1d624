package daemon

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type connKey struct{}

// withConn has requests know their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ownUsers refuses requests over loopback that are of another user of this
// machine than root and the daemon's: whoever may connect is served as the
// daemon's own user, and a port is open to all.
func ownUsers(r *http.Request) error {
	no := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Denied, format, args...).WithHint("set a control token, which other users need")
	}
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return no("who connects is not known")
	}
	uid, ok := peerUser(c)
	switch {
	case !ok:
		return no("which user connects is not known")
	case uid != 0 && uid != uint32(os.Geteuid()):
		return no("user %d is another one than the daemon's", uid)
	}
	return nil
}

// peerUser returns the user whose socket is at the other end of a connection
// within this machine.
func peerUser(c net.Conn) (uid uint32, ok bool) {
	ours, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return 0, false
	}
	theirs, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return 0, false
	}
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // there may be no IPv6
		}
		uid, ok = findUser(f, theirs, ours)
		_ = f.Close()
		if ok {
			return uid, true
		}
	}
	return 0, false
}

// findUser looks for the socket from here to there in one of the kernel's lists.
// One that its process has closed already is nobody's, and said to be root's: it
// does not count.
func findUser(list io.Reader, here, there netip.AddrPort) (uid uint32, ok bool) {
	const established = "01"
	want := [2]netip.AddrPort{unmapped(here), unmapped(there)}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != established || f[9] == "0" {
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
