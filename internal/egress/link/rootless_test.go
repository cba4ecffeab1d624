package link_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

// beCreator makes a link as root of a user namespace, and hands its
// descriptors over the socket at descriptor 3.
func beCreator() error {
	d, err := link.Create(context.Background())
	if err != nil {
		return err
	}
	defer d.Close()
	netns, err := descriptor(d.NetNS)
	if err != nil {
		return err
	}
	tap, err := descriptor(d.TAP)
	if err != nil {
		return err
	}
	return unix.Sendmsg(3, []byte("link"), unix.UnixRights(netns, tap), nil, 0)
}

func descriptor(f *os.File) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = conn.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// Root of a user namespace makes links of its own there, and who gets the
// descriptors serves them without its rights. They work on when their maker
// is gone.
func TestCreateInUserNamespace(t *testing.T) {
	needRoot(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer unix.Close(pair[0])
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), gateVariable+"=create")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	err = cmd.Run()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := received(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	defer dev.NetNS.Close()
	s, err := link.NewStack(dev.TAP, link.Options{Handler: echo()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Start()
	w := &world{t, dev, s}
	for _, to := range []string{elsewhere4, elsewhere6} {
		ping(t, w.mustDial("tcp", to), "hello")
	}
}

func received(socket int) (*link.Device, error) {
	b, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		return nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	return &link.Device{NetNS: os.NewFile(uintptr(fds[0]), "netns"), TAP: os.NewFile(uintptr(fds[1]), "tap")}, nil
}

// Whoever keeps a second descriptor of the TAP can give it to the next gate,
// and needs no right for that.
func TestKeptDescriptor(t *testing.T) {
	needRoot(t)
	dev, err := link.Create(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.NetNS.Close()
	fd, err := descriptor(dev.TAP)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dev: dev}
	g := startGate(t, dev.TAP)
	ping(t, w.mustDial("tcp", elsewhere4), "hello")
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	startGate(t, os.NewFile(uintptr(kept), "tap"))
	ping(t, w.mustDial("tcp", elsewhere6), "again")
}
