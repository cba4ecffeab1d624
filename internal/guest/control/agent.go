package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// proofLimit bounds how long a connection may take to hold an agent's proof:
// it is new and empty, and its sender waits.
const proofLimit = 10 * time.Second

// Socket is an agent's end. Its methods may be called from several goroutines.
type Socket struct {
	file  *os.File
	raw   syscall.RawConn
	key   Key
	conns chan net.Conn
	done  chan struct{} // closed when nothing more comes
	err   error         // why; read it once done is closed

	holds sync.Mutex // held while a connection is here that nobody has accepted

	mu     sync.Mutex
	asleep chan struct{} // closed while the agent sleeps
	awake  chan struct{} // closed by the wake that ends a sleep
}

// Open takes over the socket that an agent has inherited, and begins to take
// connections. It owns fd from then on.
func Open(fd int, key Key) (*Socket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("take the host's socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "host")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the host's socket: %w", err), file.Close())
	}
	s := &Socket{
		file: file, raw: raw, key: key,
		conns: make(chan net.Conn), done: make(chan struct{}), asleep: make(chan struct{}),
	}
	go s.run()
	return s, nil
}

// Close ends the taking of connections. Those that were accepted go on.
func (s *Socket) Close() error {
	err := s.file.Close()
	s.Sleep() // or what nobody accepts would be waited for
	<-s.done
	return err
}

// Sleep drops what comes from now on, unopened: once it returns, the agent
// holds nothing of the host's but what it has accepted. When the host says that
// the agent is wanted again, connections are taken as before, and awake is
// closed.
func (s *Socket) Sleep() (awake <-chan struct{}) {
	s.mu.Lock()
	if s.awake == nil {
		s.awake = make(chan struct{})
		close(s.asleep)
	}
	awake = s.awake
	s.mu.Unlock()
	s.holds.Lock() // what was on its way is dropped by then
	defer s.holds.Unlock()
	return awake
}

// sleeping is closed while the agent sleeps.
func (s *Socket) sleeping() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asleep
}

func (s *Socket) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awake != nil {
		close(s.awake)
		s.awake, s.asleep = nil, make(chan struct{})
	}
}

// run takes messages until the socket is closed.
func (s *Socket) run() {
	defer close(s.done)
	for {
		msg, conn, err := s.receive()
		if err != nil {
			s.err = err
			return
		}
		s.handle(msg, conn)
		s.holds.Unlock()
	}
}

// handle passes over what is not the host's.
func (s *Socket) handle(msg []byte, conn net.Conn) {
	kind, answer, err := s.key.read(msg)
	if err == nil && kind == wake {
		s.wake()
	}
	if conn == nil {
		return
	}
	if err == nil && kind == connect && prove(conn, answer) == nil {
		select {
		case s.conns <- conn:
			return
		case <-s.sleeping():
		}
	}
	conn.Close()
}

// prove says on a new connection who is at its other end.
func prove(conn net.Conn, answer []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(proofLimit)); err != nil {
		return err
	}
	if _, err := conn.Write(answer); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

// receive waits for a message, and returns with holds locked unless it fails.
// While the agent sleeps there is no room for what comes with a message, and
// the kernel drops that.
func (s *Socket) receive() (msg []byte, conn net.Conn, err error) {
	b := make([]byte, messageSize+1)
	oob := make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var rerr error
	err = s.raw.Read(func(fd uintptr) bool {
		s.holds.Lock()
		room := oob
		select {
		case <-s.sleeping():
			room = nil
		default:
		}
		for {
			n, oobn, _, _, rerr = unix.Recvmsg(int(fd), b, room, unix.MSG_CMSG_CLOEXEC)
			if !errors.Is(rerr, unix.EINTR) {
				break
			}
		}
		if rerr != nil {
			s.holds.Unlock()
		}
		return !errors.Is(rerr, unix.EAGAIN)
	})
	if err = errors.Join(err, rerr); err != nil {
		return nil, nil, fmt.Errorf("take a message of the host's: %w", err)
	}
	return b[:n], passed(oob[:oobn]), nil
}

// passed is the one connection that came with a message; nil where that is not
// what came.
func passed(oob []byte) net.Conn {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		more, perr := unix.ParseUnixRights(&messages[i])
		err, fds = errors.Join(err, perr), append(fds, more...)
	}
	var conn net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "host")
		if i == 0 && len(fds) == 1 && err == nil {
			conn, _ = net.FileConn(f) // or it is none
		}
		f.Close()
	}
	return conn
}

// Listener is a net.Listener of the connections that come until it is closed;
// the socket stays.
func (s *Socket) Listener() net.Listener {
	return &listener{socket: s, closed: make(chan struct{})}
}

type listener struct {
	socket *Socket
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.socket.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-l.socket.done:
		return nil, l.socket.err
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "host"} }
