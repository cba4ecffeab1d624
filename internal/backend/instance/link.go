package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A LinkMaker makes a network namespace with the sandbox's end of a link, in
// the calling process's user namespace, and the TAP that is its other end.
type LinkMaker func(context.Context) (netns, tap *os.File, err error)

// A launcher's descriptors.
const (
	// LinkFD is the network namespace that its instance is to be in, and closed where
	// there is none. Without root it is, until MakeLink, the socket that wants
	// the TAP.
	LinkFD = 3
	// handoverFD is the first of those that the instance's agent inherits.
	handoverFD = 4
)

// Handed is what a launcher's agent inherits.
func Handed() *Handover {
	file := func(n uintptr, name string) *os.File { return os.NewFile(handoverFD+n, name) }
	return &Handover{Program: file(0, "guest agent"), Socket: file(1, "agent's socket"), Config: file(2, "agent's configuration")}
}

// linkMessage comes with a TAP.
const linkMessage = "tap"

// Launch has a launcher read an order and answer. Its agent inherits what is handed over,
// and its instance has that link, or none where it is nil. Root made the link.
// Without root the launcher makes it, with MakeLink, and its TAP is handed to
// link.Attach while the instance is being started.
func (b *Backend) Launch(ctx context.Context, name string, order, answer any, agent *Handover, link *sandbox.Link) error {
	tell := sandbox.CopiedOf(ctx)
	copied := func(raw json.RawMessage) {
		var c sandbox.Copied
		if json.Unmarshal(raw, &c) == nil {
			tell(c)
		}
	}
	run := func(linked *os.File) error {
		err := b.roles.AskNews(ctx, name, order, answer, nil, copied, append([]*os.File{linked}, agent.Files()...)...)
		if err != nil {
			return fmt.Errorf("launch instance: %w", err)
		}
		return nil
	}
	switch {
	case link == nil:
		return run(nil)
	case !b.Rootless():
		return run(link.NetNS)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	made := make(chan error, 1)
	go func() {
		defer ours.Close()
		tap, err := receiveTAP(ours)
		if err == nil {
			err = link.Attach(tap)
		}
		made <- err
	}()
	err = run(theirs)
	theirs.Close() // or where nothing was sent, it would be waited for
	if merr := <-made; merr != nil && (err == nil || !errors.Is(merr, errNoTAP)) {
		err = errors.Join(err, merr)
	}
	return err
}

func socketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket for the link: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "link"), os.NewFile(uintptr(pair[1]), "link"), nil
}

var errNoTAP = errors.New("the launcher made no link")

// receiveTAP reads the one message that comes over a socket.
func receiveTAP(socket *os.File) (*os.File, error) {
	conn, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	b, oob := make([]byte, len(linkMessage)), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var inner error
	err = conn.Control(func(fd uintptr) {
		n, oobn, _, _, inner = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
	})
	if err := errors.Join(err, inner); err != nil {
		return nil, fmt.Errorf("receive the link: %w", err)
	}
	fds, err := descriptors(oob[:oobn])
	if err == nil && string(b[:n]) == linkMessage && len(fds) == 1 {
		return os.NewFile(uintptr(fds[0]), "tap"), nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return nil, errors.Join(errNoTAP, err)
}

// descriptors are those that came with a message.
func descriptors(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// MakeLink has a launcher without root, which is root of its user namespace,
// make the link of an instance that is to have one, and give away the TAP.
// Afterwards LinkFD is the namespace, as it is for root's launchers.
func MakeLink(p *Layout, maker LinkMaker) error {
	if !p.Linked || !p.Rootless {
		return nil
	}
	if maker == nil {
		return errors.New("make a link: this program has no means")
	}
	netns, tap, err := maker(context.Background())
	if err != nil {
		return err
	}
	defer netns.Close()
	defer tap.Close()
	if err := withFD(tap, func(fd int) error {
		return unix.Sendmsg(LinkFD, []byte(linkMessage), unix.UnixRights(fd), nil, 0)
	}); err != nil {
		return fmt.Errorf("give the TAP away: %w", err)
	}
	return withFD(netns, func(fd int) error { return unix.Dup3(fd, LinkFD, unix.O_CLOEXEC) })
}

// withFD calls f with a file's descriptor, whose mode it does not change.
func withFD(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = conn.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}
