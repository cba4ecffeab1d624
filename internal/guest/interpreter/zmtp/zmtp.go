// Package zmtp speaks as much of ZeroMQ's transport, ZMTP 3.0, as a client of
// one kernel needs: a DEALER or a SUB socket over one connection, without
// authentication, without reconnecting and without queues.
//
// Kernels run what they are told to, so what they send is bounded before it is
// kept: a message beyond the limit is read to its end and handed on short.
package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The kinds of socket there are.
const (
	Dealer = "DEALER"
	Sub    = "SUB"
)

// ErrTooLarge says that a message was beyond the limit. The parts that fitted
// were returned with it, and the connection can go on.
var ErrTooLarge = errors.New("message too large")

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxParts    = 64
	maxCommand  = 4 << 10
	maxGreeting = 10 * time.Second
)

// Conn is one socket. Send may be called by several at once, Receive by one.
type Conn struct {
	c     net.Conn
	r     *bufio.Reader
	limit int64

	mu sync.Mutex // for writing
}

// Dial opens a socket of a kind (Dealer, Sub) at an address of net.Dial. A Sub
// is subscribed to everything. limit bounds a message's bytes.
func Dial(ctx context.Context, network, address, kind string, limit int64) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	z := &Conn{c: c, r: bufio.NewReaderSize(c, 64<<10), limit: limit}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := z.shake(kind); err != nil {
		c.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("greet: %w", err)
	}
	return z, nil
}

// shake exchanges greetings and names the kind of socket.
func (z *Conn) shake(kind string) error {
	if err := z.c.SetDeadline(time.Now().Add(maxGreeting)); err != nil {
		return err
	}
	var hello [64]byte
	hello[0], hello[8], hello[9], hello[10] = 0xff, 1, 0x7f, 3
	copy(hello[12:], "NULL")
	if _, err := z.c.Write(hello[:]); err != nil {
		return err
	}
	var peer [64]byte
	if _, err := io.ReadFull(z.r, peer[:]); err != nil {
		return err
	}
	if peer[0] != 0xff || peer[9] != 0x7f || peer[10] < 3 || string(peer[12:17]) != "NULL\x00" {
		return errors.New("the peer does not speak ZMTP 3 without authentication")
	}
	if _, err := z.c.Write(frame(flagCommand, ready(kind))); err != nil {
		return err
	}
	if kind == Sub {
		if _, err := z.c.Write(frame(0, []byte{1})); err != nil {
			return err
		}
	}
	flags, size, err := z.head()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || size > maxCommand {
		return errors.New("the peer is not ready")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(z.r, body); err != nil {
		return err
	}
	if len(body) < 6 || string(body[:6]) != "\x05READY" {
		return fmt.Errorf("the peer refused: %.80q", body)
	}
	return z.c.SetDeadline(time.Time{})
}

// ready is the command that ends the greeting.
func ready(kind string) []byte {
	b := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(kind)))
	return append(b, kind...)
}

// frame is one frame on the wire.
func frame(flags byte, body []byte) []byte {
	if len(body) < 256 {
		return append([]byte{flags, byte(len(body))}, body...)
	}
	b := binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	return append(b, body...)
}

// Send sends one message.
func (z *Conn) Send(parts ...[]byte) error {
	var b []byte
	for i, p := range parts {
		flags := byte(flagMore)
		if i == len(parts)-1 {
			flags = 0
		}
		b = append(b, frame(flags, p)...)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	_, err := z.c.Write(b)
	return err
}

// Receive waits for one message. With ErrTooLarge come the parts that fitted.
func (z *Conn) Receive() (parts [][]byte, err error) {
	var total int64
	short := false
	for {
		flags, size, err := z.head()
		if err != nil {
			return nil, err
		}
		total += size
		switch {
		case short || total > z.limit || len(parts) >= maxParts:
			short = true
			if _, err := io.CopyN(io.Discard, z.r, size); err != nil {
				return nil, err
			}
		default:
			body := make([]byte, size)
			if _, err := io.ReadFull(z.r, body); err != nil {
				return nil, err
			}
			if flags&flagCommand == 0 {
				parts = append(parts, body)
			}
		}
		if flags&(flagMore|flagCommand) != 0 {
			continue
		}
		if short {
			return parts, ErrTooLarge
		}
		return parts, nil
	}
}

// head reads a frame's flags and size.
func (z *Conn) head() (flags byte, size int64, err error) {
	if flags, err = z.r.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, 0, fmt.Errorf("frame with flags %#x", flags)
	}
	if flags&flagLong == 0 {
		n, err := z.r.ReadByte()
		return flags, int64(n), err
	}
	var b [8]byte
	if _, err := io.ReadFull(z.r, b[:]); err != nil {
		return 0, 0, err
	}
	if size = int64(binary.BigEndian.Uint64(b[:])); size < 0 {
		return 0, 0, errors.New("frame of impossible size")
	}
	return flags, size, nil
}

// Close ends the connection. What waits in Receive returns with an error.
func (z *Conn) Close() error { return z.c.Close() }
