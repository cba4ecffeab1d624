package probe

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

const socketFlags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK

// begin opens the socket and sends the attempt's bytes, if any. It waits for
// nothing.
func (a *attempt) begin() {
	a.began = time.Now()
	if a.Network == api.RAW {
		a.raw()
		return
	}
	var err error
	if a.fd, err = unix.Socket(a.kind()); err != nil {
		a.fd = -1
		a.fail(err)
		return
	}
	err = unix.Connect(a.fd, socketAddress(a.to))
	switch {
	case a.Network == api.TCP && errors.Is(err, unix.EINPROGRESS):
		a.events = unix.POLLOUT
	case err != nil:
		a.fail(err)
	default:
		a.opened()
	}
}

// kind is what socket(2) is asked for.
func (a *attempt) kind() (family, kind, protocol int) {
	family = unix.AF_INET
	if a.to.Addr().Is6() && !a.to.Addr().Is4In6() {
		family = unix.AF_INET6
	}
	switch a.Network {
	case api.TCP:
		return family, unix.SOCK_STREAM | socketFlags, unix.IPPROTO_TCP
	case api.UDP:
		return family, unix.SOCK_DGRAM | socketFlags, unix.IPPROTO_UDP
	}
	protocol = unix.IPPROTO_ICMP
	if family == unix.AF_INET6 {
		protocol = unix.IPPROTO_ICMPV6
	}
	return family, unix.SOCK_DGRAM | socketFlags, protocol
}

func socketAddress(to netip.AddrPort) unix.Sockaddr {
	if addr := to.Addr().Unmap(); addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

// opened goes on where the socket is connected.
func (a *attempt) opened() {
	a.connected = true
	if a.Network == api.TCP && (len(a.Send) == 0 || a.Want == api.WantRefused) {
		a.end(api.OutcomeConnected)
		return
	}
	data := a.Send
	if a.Network == api.ICMP {
		data = a.echo()
	}
	// A new socket takes this much at once.
	if _, err := unix.Write(a.fd, data); err != nil {
		a.fail(err)
		return
	}
	a.events = unix.POLLIN
}

// echo is an echo request; the kernel fills in its sum and its number.
func (a *attempt) echo() []byte {
	const request4, request6 = 8, 128
	kind := byte(request4)
	if family, _, _ := a.kind(); family == unix.AF_INET6 {
		kind = request6
	}
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 1}, "carboy probe"...)
}

// goOn is called when the socket is ready.
func (a *attempt) goOn() {
	if a.events == unix.POLLOUT {
		n, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && n != 0 {
			err = unix.Errno(n)
		}
		if err != nil {
			a.fail(err)
			return
		}
		a.opened()
		return
	}
	a.read()
}

// read takes of the answer as much as is expected, and a byte at least.
func (a *attempt) read() {
	buf := make([]byte, max(len(a.Expect)-len(a.got), 1))
	n, err := unix.Read(a.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil:
		a.fail(err)
		return
	case n == 0 && a.Network == api.TCP:
		a.late() // it was closed: there will be no more
		return
	}
	a.answered = true
	if len(a.Expect) > 0 {
		a.got = append(a.got, buf[:n]...)
	}
	if a.Network != api.TCP || len(a.got) >= len(a.Expect) {
		a.end(api.OutcomeAnswered)
	}
}

// raw tries every socket by which a program could write packets itself. One
// that is opened is as good as a connection.
func (a *attempt) raw() {
	for _, k := range [][3]int{
		{unix.AF_PACKET, unix.SOCK_RAW, 0},
		{unix.AF_PACKET, unix.SOCK_DGRAM, 0},
		{unix.AF_INET, unix.SOCK_PACKET, 0}, // its old name
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	} {
		if fd, err := unix.Socket(k[0], k[1]|socketFlags, k[2]); err == nil {
			unix.Close(fd)
			a.end(api.OutcomeConnected)
			return
		}
	}
	a.end(api.OutcomeDenied)
}
