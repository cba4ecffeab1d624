package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// ErrNotSupported is why a guest can't be reached: the kernel has no AF_VSOCK, or no device
// for it, and the address has no unix socket.
var ErrNotSupported = errors.New("AF_VSOCK is not supported on this host")

// Address is where a guest serves actions.
type Address struct {
	CID  uint32 // of AF_VSOCK; 0: none
	Port uint32
	// Socket is the path of the unix socket that stands for AF_VSOCK; "": none.
	Socket string
}

// Conn is a connection to a guest.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// Dialer connects. ctx bounds the connecting alone.
type Dialer interface {
	// DialVsock connects by AF_VSOCK. Its error is ErrNotSupported where the kernel has no such
	// family, or no device; one that a connection failed with is another.
	DialVsock(ctx context.Context, cid, port uint32) (Conn, error)
	DialUnix(ctx context.Context, path string) (Conn, error)
}

// System is the Dialer of this machine's kernel.
type System struct{}

// DialVsock implements Dialer.
func (System) DialVsock(ctx context.Context, cid, port uint32) (Conn, error) {
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, "vsock", nil)
	if err != nil {
		return nil, vsockError(err)
	}
	if _, err := c.Connect(ctx, &unix.SockaddrVM{CID: cid, Port: port}); err != nil {
		_ = c.Close()
		return nil, vsockError(err)
	}
	return c, nil
}

// vsockError tells a family or a device that is not there from a connection that failed.
func vsockError(err error) error {
	for _, none := range []error{unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENODEV} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", ErrNotSupported, err)
		}
	}
	return fmt.Errorf("connect by AF_VSOCK: %w", err)
}

// DialUnix implements Dialer.
func (System) DialUnix(ctx context.Context, path string) (Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// dial connects to a guest: by AF_VSOCK where that is there, and else by the unix socket.
func (c *Client) dial(ctx context.Context, at Address) (Conn, error) {
	err := ErrNotSupported
	if at.CID != 0 {
		var conn Conn
		if conn, err = c.dialer.DialVsock(ctx, at.CID, at.Port); !errors.Is(err, ErrNotSupported) {
			return conn, err
		}
	}
	if at.Socket == "" {
		return nil, fmt.Errorf("%w, and the address has no unix socket", err)
	}
	conn, err := c.dialer.DialUnix(ctx, at.Socket)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if err == nil {
		err = handshake(conn, at.Port)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", at.Socket, err)
	}
	return conn, nil
}

// maxLine bounds the answer to a handshake, in bytes: Carboy says in it why there is no
// connection.
const maxLine = 512

// handshake asks a unix socket for a port of the guest. What follows its answer is the
// guest's, so that is read byte by byte.
func handshake(conn Conn, port uint32) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return err
	}
	var line []byte
	for b := make([]byte, 1); len(line) < maxLine; {
		if _, err := io.ReadFull(conn, b); err != nil {
			return fmt.Errorf("port %d: the connection ended before it was made: %w", port, err)
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		number, ok := strings.CutPrefix(string(line), "OK ")
		if _, err := strconv.ParseUint(number, 10, 32); !ok || err != nil {
			return fmt.Errorf("port %d: the answer to CONNECT is %q, not OK and a number", port, line)
		}
		return nil
	}
	return fmt.Errorf("port %d: the answer to CONNECT has no end: %q", port, line)
}
