package control

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Bind makes a socket for an agent to inherit and gives it a name in dir,
// which nobody but the caller may write to. What had the name before is
// removed.
func Bind(dir *beneath.Dir, name string) (*os.File, error) {
	if err := unix.Unlinkat(dir.Fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("replace the agent's socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make the agent's socket: %w", err)
	}
	// Through the handle, whose length is no matter of the directory's.
	addr := &unix.SockaddrUnix{Name: dir.Path() + "/" + name}
	if err := unix.Bind(fd, addr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("name the agent's socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "agent"), nil
}

// Dial connects to the agent whose socket has a name in dir. It does not wait
// for the agent: the connection's first write or read does, until the agent has
// proved itself, so that nothing is said to anybody else, or believed. Where the
// socket is full, Dial waits until ctx ends.
func Dial(ctx context.Context, dir *beneath.Dir, name string, key Key) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a connection: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "agent")
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		unix.Close(pair[1])
		return nil, fmt.Errorf("make a connection: %w", err)
	}
	msg, answer := key.message(connect)
	err = send(ctx, dir, name, msg, unix.UnixRights(pair[1]))
	unix.Close(pair[1])
	if err != nil {
		c.Close()
		return nil, err
	}
	return &conn{Conn: c, answer: answer}, nil
}

// conn is the host's end of a connection, which begins with the agent's proof.
type conn struct {
	net.Conn
	answer []byte

	mu  sync.Mutex
	got int   // bytes of the proof that have come
	err error // that they are wrong
}

// Read implements net.Conn. Nothing is returned before the proof.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.prove(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn. Nothing is sent before the proof.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.prove(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// prove reads the agent's proof, unless it has been read. What a deadline cuts
// short goes on with the next call.
func (c *conn) prove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.got < proofSize {
		b := make([]byte, proofSize-c.got)
		n, err := c.Conn.Read(b)
		// In place, so that in the end only zeros are left.
		for i := range n {
			c.answer[c.got+i] ^= b[i]
		}
		c.got += n
		if err != nil {
			return err
		}
	}
	if c.err == nil && subtle.ConstantTimeCompare(c.answer, make([]byte, proofSize)) != 1 && !weak.On(weak.PeerUnproved) {
		c.err = errUnproved
	}
	return c.err
}

// CloseWrite ends the direction to the agent, as *net.UnixConn does.
func (c *conn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }

// Wake tells an agent that is about to go on after a suspension that it is
// wanted.
func Wake(ctx context.Context, dir *beneath.Dir, name string, key Key) error {
	msg, _ := key.message(wake)
	return send(ctx, dir, name, msg, nil)
}

// send puts one message into the socket of that name. It waits while the
// socket is full.
func send(ctx context.Context, dir *beneath.Dir, name string, msg, rights []byte) error {
	at, err := dir.Open(name, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open the agent's socket: %w", err)
	}
	defer at.Close()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixgram", beneath.Path(at))
	if err != nil {
		return fmt.Errorf("reach the agent's socket: %w", errors.Join(context.Cause(ctx), cause(err)))
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	if err := sendmsg(c.(*net.UnixConn), msg, rights); err != nil {
		return fmt.Errorf("call the agent: %w", errors.Join(context.Cause(ctx), cause(err)))
	}
	return nil
}

// sendmsg is WriteMsgUnix, which does not write to connected datagram sockets.
func sendmsg(c *net.UnixConn, msg, rights []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Write(func(fd uintptr) bool {
		for {
			if serr = unix.Sendmsg(int(fd), msg, rights, nil, 0); !errors.Is(serr, unix.EINTR) {
				return !errors.Is(serr, unix.EAGAIN)
			}
		}
	})
	return errors.Join(err, serr)
}

// interrupt has what waits for c end with ctx, until its result is called.
func interrupt(ctx context.Context, c net.Conn) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { cancel() }
}

// cause drops the handle's number, which tells nobody anything.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
