package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Gate is what is asked of what starts gates. sandbox.Gate has the contracts.
type Gate interface {
	Check(ctx context.Context, spec sandbox.Spec) (sandbox.Enforcement, error)
	Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (*sandbox.Link, error)
	Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error)
	Close(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	Gates(ctx context.Context) ([]string, error)
	Shut() error
}

const noNetwork = "no sandbox can have a network: --allow, --policy and --network on are refused"

const mendRoot = "as root: chmod 0666 /dev/net/tun, or run the daemon as root: sudo carboy serve"

// tap makes an interface as links are, in a namespace of its own.
func tap(ctx context.Context, m *machine) Line {
	flags := uintptr(syscall.CLONE_NEWNET)
	if !m.root {
		flags |= syscall.CLONE_NEWUSER
	}
	err := m.probe(ctx, flags, "tap")
	if err == nil {
		return outcome(OK, "made one, in a network namespace of its own")
	}
	l := outcome(Missing, err.Error()).because(noNetwork)
	switch name := container(); {
	case childless(err):
		return l.mendedBy("see other namespaces above")
	case !m.root && errors.Is(err, unix.EACCES):
		return l.mendedBy(mendRoot)
	case name != "":
		return l.mendedBy("this looks like a container of " + name + ": start it with --device /dev/net/tun")
	}
	return l.mendedBy("as root: modprobe tun")
}

// probeTAP makes an interface that goes with its descriptor.
func probeTAP(io.Reader, []string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("open /dev/net/tun", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("probe")
	if err != nil {
		return step("name a TAP", err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return step("make a TAP of /dev/net/tun", unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
}

// ipv6Somewhere is an address of the public internet. Nothing is sent to it.
const ipv6Somewhere = "[2001:4860:4860::8888]:53"

// ipv6Route asks for a route as gates do.
func ipv6Route(ctx context.Context, _ *machine) Line {
	c, err := new(net.Dialer).DialContext(ctx, "udp6", ipv6Somewhere)
	if err != nil {
		return outcome(Info, "no way to the world over IPv6, so gates answer with IPv4 addresses alone")
	}
	_ = c.Close() // nothing was sent
	return outcome(OK, "there is a way to the world")
}

// networkChecks start an instance with a network behind each wall. They need the
// verdicts on the walls.
func (m *machine) networkChecks(verdicts map[string]Verdict) (list []check) {
	if m.opts.Gate == nil {
		return nil
	}
	for _, w := range m.opts.Walls {
		list = append(list, check{
			id: "network-" + w.Name, area: "network", title: "a network behind " + w.Name, limit: instanceLimit,
			run: one(func(ctx context.Context, m *machine) Line {
				how, err := m.tryNetwork(ctx, w, verdicts[w.Name].Works())
				if errors.Is(err, errNoWall) {
					return outcome(Missing, err.Error()).because(noNetwork).mendedBy("see " + w.Name + " above")
				}
				if err != nil {
					return m.withoutNetwork(err)
				}
				return outcome(OK, "started a sandbox with one: "+how)
			}),
		})
	}
	return list
}

// withoutNetwork says what mends that there is none.
func (m *machine) withoutNetwork(err error) Line {
	l := outcome(Missing, err.Error()).because(noNetwork)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
		l = l.mendedBy(e.Hint)
	}
	switch {
	case l.Mend == "":
		return l.mendedBy("see the lines above; if they are well, report it, with: carboy doctor --report")
	}
	return l
}

var errNoWall = errors.New("not tried: no sandbox can be started behind it")

// tryNetwork starts an instance with a link and a gate, has its agent try from inside
// what must work and what must not, and removes all of it. It returns how the
// promise is kept.
func (m *machine) tryNetwork(ctx context.Context, w Wall, works bool) (how string, err error) {
	if m.scratchErr != nil {
		return "", m.scratchErr
	}
	g, err := m.opts.Gate(gatesOf(m.scratch.path, w))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, g.Shut()) }()
	sb := &sandbox.Sandbox{
		ID: "doctor_" + strings.ToLower(rand.Text()[:10]), Owner: fmt.Sprintf("uid:%d", m.uid), Backend: w.Name,
		Spec: sandbox.Spec{
			Name: "doctor", Isolation: w.Name, Network: sandbox.NetworkPolicy, Policy: &policy.Policy{Version: policy.Version},
		}.Normalize(sandbox.Offer{Gate: true}),
	}
	if _, err := g.Check(ctx, sb.Spec); err != nil {
		return "", err
	}
	if !works {
		return "", errNoWall
	}
	b, err := w.Open(ctx, m.scratch.path)
	if err != nil {
		return "", err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), instanceLimit)
		defer cancel()
		gerr := g.Close(clean, sb.ID)
		_, serr := b.Stop(clean, sb.ID)
		err = errors.Join(err, gerr, serr, b.Remove(clean, sb.ID), g.Remove(clean, sb.ID), b.Close())
	}()
	if sb.Link, err = g.Open(ctx, sb, b.Capabilities().Link, nil); err != nil {
		return "", err
	}
	_, err = b.Start(ctx, sb)
	if err = errors.Join(err, sb.Link.Close()); err != nil {
		return "", err
	}
	kept, err := g.Verify(ctx, sb, func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, sb.ID, sandbox.GuestPort) })
	var told []string
	for _, e := range kept {
		told = append(told, strings.TrimPrefix(e.Mechanism+e.Reason, sb.Spec.Network+": "))
	}
	return strings.Join(told, "; but "), err
}

// gatesOf is where the gates of a wall's instances are kept: in a directory of
// their own, for walls are tried at once.
func gatesOf(scratch string, w Wall) string { return filepath.Join(scratch, "gates-"+w.Name) }

// sweepGates ends the gates that a killed run left behind.
func sweepGates(ctx context.Context, o Options, path string, w Wall) {
	at := gatesOf(path, w)
	if _, err := os.Lstat(at); o.Gate == nil || err != nil {
		return
	}
	g, err := o.Gate(at)
	if err != nil {
		return
	}
	ids, _ := g.Gates(ctx) // what can't be listed, can't be ended
	for _, id := range ids {
		if g.Close(ctx, id) == nil {
			_ = g.Remove(ctx, id)
		}
	}
	_ = g.Shut()
}
