package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Without root the daemon has no right over the namespace of a link. Who makes
// the link is the process that starts the instance, root of the instance's user
// namespace; the daemon is handed the TAP, and keeps a descriptor of it for
// the gates to come, for it can't attach to the interface again. A gate is the
// daemon's own user, in a user namespace where that is all there is: that
// gives it the right to an empty root, which it then gives up.

// rootless reports whether this daemon is not root.
func rootless() bool { return os.Geteuid() != 0 }

// weaker is what a network without root is worth less than root's.
const weaker = "; without root: the gate has the daemon's own user, the sandbox's user namespace has the link, " +
	"and a gate that ends while the daemon is away has no successor"

// MakeLink makes a link for a launcher without root (see instance.LinkMaker).
func MakeLink(ctx context.Context) (netns, tap *os.File, err error) {
	d, err := link.Create(ctx)
	if err != nil {
		return nil, nil, err
	}
	return d.NetNS, d.TAP, nil
}

// checkTUN fails where a link can't be made of /dev/net/tun. Without root it is
// made by a user of the instance's own, who is nobody special to the host.
func checkTUN(network string) error {
	const path = "/dev/net/tun"
	if rootless() {
		st, err := os.Stat(path)
		if err == nil && st.Mode().Perm()&0o006 != 0o006 {
			return sandbox.Errorf(sandbox.Unsupported, "network %s: %s is not open to all users, and without root links need that", network, path).
				WithHint("as root: chmod 0666 %s, or run the daemon as root", path)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return sandbox.Errorf(sandbox.Unsupported, "network %s: %s can't be opened", network, path).
			WithHint("load the kernel's tun module, or leave the network off")
	}
	return f.Close()
}

// startWith returns what starts a gate with the TAP of the link that an instance's
// launcher made.
func (g *Gates) startWith(ctx context.Context, one *gate) func(*os.File) error {
	return func(tap *os.File) error {
		defer tap.Close()
		held, err := holdTAP(tap)
		if err != nil {
			return err
		}
		one.mu.Lock()
		one.held = held
		one.mu.Unlock()
		return g.start(ctx, one, tap)
	}
}

// ownNamespace starts a gate in a user namespace with its own user alone, and
// with the right to change its root there.
func ownNamespace(a *syscall.SysProcAttr) {
	uid, gid := os.Geteuid(), os.Getegid()
	a.Cloneflags |= syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_CHROOT}
}

// heldTAP is a descriptor of a TAP that nothing is read from: the interface
// stays while it is open. It is no os.File, or the runtime would be woken for
// each frame.
type heldTAP struct{ fd int }

func holdTAP(tap *os.File) (*heldTAP, error) {
	conn, err := tap.SyscallConn()
	if err != nil {
		return nil, err
	}
	h := &heldTAP{}
	var inner error
	err = conn.Control(func(fd uintptr) { h.fd, inner = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, inner); err != nil {
		return nil, fmt.Errorf("hold the link: %w", err)
	}
	return h, nil
}

// tapOf holds the TAP of a gate that an earlier daemon started: it has it at
// the number that it was given it at. The daemon's user made the gate's user
// namespace, and so may.
func tapOf(id procid.ID) (*heldTAP, error) {
	pidfd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return nil, fmt.Errorf("find the gate: %w", err)
	}
	defer unix.Close(pidfd)
	if !procid.Alive(id) {
		return nil, errors.New("find the gate: it has ended")
	}
	fd, err := unix.PidfdGetfd(pidfd, fdTAP, 0)
	if err != nil {
		return nil, fmt.Errorf("get the gate's link: %w", err)
	}
	h := &heldTAP{fd: fd}
	ifr, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr)
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("get the gate's link: %w", err)
	}
	return h, nil
}

// heldAgain opens the link for one more gate. One that was released has none,
// nor has one that was taken over without it. Two gates at once would share
// what the sandbox sends.
func (one *gate) heldAgain() (*os.File, error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.held == nil {
		return nil, errReleased
	}
	if procid.Alive(one.state.Process) {
		return nil, errors.New("attach to the link: the gate that has it is alive")
	}
	return one.held.again()
}

// again is the TAP for one more gate.
func (h *heldTAP) again() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("attach to the link: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

func (h *heldTAP) close() {
	if h != nil {
		_ = unix.Close(h.fd)
	}
}

// errNoLink is why a gate has no successor.
var errNoLink = sandbox.Errorf(sandbox.Unsupported,
	"its network is gone: the gate ended while no daemon held the link, and without root it can't be opened again").
	WithHint("stop the sandbox and start it again")

// holdAdopted has this daemon hold the link of a gate that it takes over.
func (g *Gates) holdAdopted(one *gate) error {
	if !procid.Alive(one.state.Process) {
		return errNoLink
	}
	held, err := tapOf(one.state.Process)
	if err != nil { // it goes on, and has no successor
		g.opts.Log.Warn("hold the link of a gate", "id", one.id, "err", err)
		return nil
	}
	one.held = held
	return nil
}

// confineRootless gives a gate an empty root by the rights of its user
// namespace, and takes those rights away. It stays who it is: there is nobody
// else.
func confineRootless(root string) error {
	return errors.Join(syscall.Chroot(root), syscall.Chdir("/"), rights.Capabilities{}.SetAll())
}

func hardLimit(what int) uint64 {
	var l unix.Rlimit
	_ = unix.Getrlimit(what, &l) // 0 where it fails, which it does not
	return l.Max
}

// ownTAP is the TAP that a gate was given. Without root its number stays taken
// too: there the next daemon finds it.
func ownTAP(o order) (*os.File, error) {
	if o.Rootless {
		return (&heldTAP{fd: fdTAP}).again()
	}
	return os.NewFile(fdTAP, "tap"), nil
}
