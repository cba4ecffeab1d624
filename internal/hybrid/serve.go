package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	// handshakeLimit is for the first line, dialLimit until the port was reached.
	handshakeLimit = 10 * time.Second
	dialLimit      = 30 * time.Second
	// acceptRest is how long accepting rests when this process has no more files.
	acceptRest = 50 * time.Millisecond
	// maxLine bounds the first line, in bytes without its end: CONNECT and the largest
	// number that a port of vsock can be.
	maxLine = len("CONNECT 4294967295")
	// maxReason bounds what is told of a failure, in bytes.
	maxReason = 400
	// firstNumber is the first that OK is followed by: vsock's host ports, which it stands
	// for, are counted from there on.
	firstNumber = 1 << 30
)

// serve passes the connections of one socket on until it is closed.
func (s *Sockets) serve(one *socket) {
	for {
		c, err := one.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of this one connection, or there are no files: both pass
			select {
			case <-time.After(acceptRest):
				continue
			case <-one.ctx.Done():
				return
			}
		}
		s.conns.Go(func() { s.pass(one, c) })
	}
}

// pass joins one connection with the port inside that it asks for.
func (s *Sockets) pass(one *socket, c *net.UnixConn) {
	defer c.Close()
	log := s.o.Log.With("sandbox", one.id)
	uid, err := userOf(c)
	if err != nil || !slices.Contains(one.users, uid) {
		log.Warn("connection of another user to a sandbox's socket refused", "uid", uid, "error", err)
		refuse(c, sandbox.Errorf(sandbox.Denied, "this socket is another user's"))
		return
	}
	leave, ok := take(one.slots, s.all)
	if !ok {
		refuse(c, sandbox.Errorf(sandbox.Exhausted, "too many connections at once"))
		return
	}
	defer leave()
	defer context.AfterFunc(one.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	inside, err := s.connect(one, c)
	if err != nil {
		log.Debug("connection to a sandbox's socket refused", "error", err)
		refuse(c, err)
		return
	}
	number := firstNumber + (one.number.Add(1)-firstNumber)%firstNumber
	if _, err := fmt.Fprintf(c, "OK %d\n", number); err != nil {
		_ = inside.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	loopback.Join(one.ctx, c, inside)
}

// connect reads the first line and reaches the port that it names.
func (s *Sockets) connect(one *socket, c *net.UnixConn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return nil, err
	}
	port, err := readConnect(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(one.ctx, dialLimit)
	defer cancel()
	inside, err := s.o.Dial(ctx, one.id, port)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(handshakeLimit))
	}
	return inside, err
}

// userOf is who is at the other end.
func userOf(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, cerr
	}
	return cred.Uid, nil
}

func take(slots ...loopback.Slots) (leave func(), ok bool) {
	taken := 0
	leave = func() {
		for _, s := range slots[:taken] {
			<-s
		}
	}
	for _, s := range slots {
		select {
		case s <- struct{}{}:
			taken++
		default:
			leave()
			return nil, false
		}
	}
	return leave, true
}

// readConnect reads the first line, byte by byte: what follows it is the port's.
func readConnect(r io.Reader) (port int, err error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			return 0, invalid("the first line did not come")
		}
		if b[0] == '\n' {
			return parseConnect(string(line))
		}
		if line = append(line, b[0]); len(line) > maxLine {
			return 0, invalid("the first line is longer than %d bytes", maxLine)
		}
	}
}

// parseConnect reads CONNECT and a port, in decimal, without a sign or a zero before it.
func parseConnect(line string) (port int, err error) {
	number, ok := strings.CutPrefix(line, "CONNECT ")
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || strconv.FormatUint(n, 10) != number {
		return 0, invalid("the first line is %q", line)
	}
	if n == 0 || n > 65535 {
		return 0, sandbox.Errorf(sandbox.Invalid, "port %d: there is no such port inside: from 1 to 65535", n)
	}
	if err := sandbox.CheckPort(int(n)); err != nil {
		return 0, err
	}
	return int(n), nil
}

func invalid(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, format+": say CONNECT, a space, a port and a newline", args...)
}

// refuse says why a connection is not passed on, as far as that is for users.
func refuse(c net.Conn, err error) {
	text := "the port can't be reached"
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		text = e.Msg
	}
	text = term.Escape(strings.ToValidUTF8(text[:min(len(text), maxReason)], "?"))
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "ERR %s\n", text) // nobody is left to tell
}
