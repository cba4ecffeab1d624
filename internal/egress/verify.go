package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// probeMS is how long all attempts together may take. What is refused is
// refused at once; only a promise that does not hold takes longer.
const probeMS = 2000

// verifyTries is how often they are made where the gate dies meanwhile.
const verifyTries = 3

// Verify implements sandbox.Gate.
func (g *Gates) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	one, err := g.known(sb.ID)
	if err != nil {
		return nil, err
	}
	canary, err := newCanary()
	if err != nil {
		return nil, err
	}
	defer canary.Close()
	attempts, err := attempts(sb.Spec, canary.addrs)
	if err != nil {
		return nil, err
	}
	for left := verifyTries; ; left-- {
		tried := one.process()
		err := one.verify(ctx, sb.Spec, attempts, dial)
		if err == nil {
			err = one.awaitJoin(ctx)
		}
		if err == nil {
			how := []sandbox.Enforcement{{
				Promise: "network", Enforced: true,
				Mechanism: fmt.Sprintf("%s; tried from inside: %d of %[2]d attempts ended as promised", mechanism(sb.Spec), len(attempts)),
			}}
			return append(how, g.distrust(ctx, one.id, dial)...), nil
		}
		if left == 1 || ctx.Err() != nil || procid.Alive(tried) {
			return nil, err
		}
		// What could not be had was the gate, which died meanwhile.
		g.opts.Log.Warn("a gate ended while its sandbox was looked at", "id", one.id, "err", err)
		if err := one.awaitNext(ctx, tried); err != nil {
			return nil, err
		}
	}
}

// distrust says what of the gate's name and certificates the agent could not
// install: nothing fails for that by itself, and nothing of it is silent.
func (g *Gates) distrust(ctx context.Context, id string, dial agent.Dial) []sandbox.Enforcement {
	ctx, cancel := context.WithTimeout(ctx, probeMS*time.Millisecond)
	defer cancel()
	lacks, err := agent.New(dial).Lacks(ctx, guest.LackNetwork)
	if err != nil {
		lacks = append(lacks, "the agent does not say what it could install")
		g.opts.Log.Warn("ask an agent what it lacks", "id", id, "err", err)
	}
	if len(lacks) == 0 {
		return nil
	}
	reason := "programs inside may not trust the gate: " + strings.Join(lacks, "; ")
	g.opts.Log.Warn("a gate's certificates", "id", id, "reason", reason)
	return []sandbox.Enforcement{{Promise: sandbox.PromiseTrust, Reason: reason}}
}

// verify tries once, with the present gate, which records from then on.
func (one *gate) verify(
	ctx context.Context, spec sandbox.Spec, attempts []guest.Attempt, dial func(context.Context) (net.Conn, error),
) error {
	if err := one.await(ctx); err != nil {
		return fmt.Errorf("wait for the gate: %w", err)
	}
	results, err := probe(ctx, dial, attempts)
	if err != nil {
		return fmt.Errorf("probe from inside: %w", err)
	}
	if err := broken(spec, attempts, results); err != nil {
		return err
	}
	one.mu.Lock()
	one.probed = false
	one.mu.Unlock()
	return one.put(ctx, pathRecord, nil)
}

// broken says which attempts did not end as promised.
func broken(spec sandbox.Spec, attempts []guest.Attempt, results []guest.ProbeResult) error {
	var names []string
	for _, r := range results {
		if !r.OK {
			names = append(names, r.Name+" "+r.Outcome)
		}
	}
	if len(names) == 0 && len(results) == len(attempts) {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported,
		"network %s: the promise does not hold inside: %s", spec.Network, strings.Join(names, ", ")).
		WithHint("nothing was started; carboy doctor looks for the cause")
}

func (one *gate) isProbed() bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.probed
}

func (one *gate) process() procid.ID {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.state.Process
}

// awaitNext waits until another process than that one is the gate's.
func (one *gate) awaitNext(ctx context.Context, than procid.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, errors.New("the gate ended, and was not started again"))
	defer cancel()
	for one.process() == than {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(restartDelay / 10):
		}
	}
	return nil
}

// awaitJoin waits until the gate counts as its instance's, where there are groups
// for that.
func (one *gate) awaitJoin(ctx context.Context) error {
	one.mu.Lock()
	groups := one.state.Groups
	one.mu.Unlock()
	if groups == nil {
		return nil
	}
	select {
	case err := <-one.joined:
		one.joined <- err // for who tries again
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe has the guest agent try.
func probe(ctx context.Context, dial agent.Dial, attempts []guest.Attempt) ([]guest.ProbeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeMS*time.Millisecond)
	defer cancel()
	return agent.New(dial).Probe(ctx, guest.Probe{Attempts: attempts, TimeoutMS: probeMS})
}

// attempts are what must work, and what must not unless the policy opens it.
func attempts(spec sandbox.Spec, host []netip.AddrPort) ([]guest.Attempt, error) {
	list := []guest.Attempt{
		{
			Name: "gate", Network: guest.TCP, Address: netip.AddrPortFrom(link.Gate4, link.PortInfo).String(), Want: guest.WantOpen,
			Send: []byte("GET /healthz HTTP/1.1\r\nHost: " + link.Hostname + "\r\nConnection: close\r\n\r\n"), Expect: []byte("HTTP/1.1 200"),
		},
	}
	question, err := ask(link.Hostname)
	if err != nil {
		return nil, err
	}
	resolvers := map[string]netip.Addr{"resolver": link.Gate4}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil { // else no link has IPv6
		resolvers["resolver-v6"] = link.Gate6
	}
	for name, at := range resolvers {
		list = append(list, guest.Attempt{
			Name: name, Network: guest.UDP, Address: netip.AddrPortFrom(at, link.PortDNS).String(),
			Want: guest.WantOpen, Send: question, Expect: question[:2],
		})
	}
	set, err := policy.Compile(*spec.Policy, spec.Secrets)
	if err != nil {
		return nil, err
	}
	for _, t := range mustNot(host) {
		if set.Connect(policy.Conn{UDP: t.udp, Addr: t.addr}).Allowed() {
			continue
		}
		a := guest.Attempt{Name: t.name, Network: guest.TCP, Address: t.addr.String(), Want: guest.WantRefused}
		if t.udp {
			a.Network, a.Send = guest.UDP, question
		}
		list = append(list, a)
	}
	return append(list, guest.Attempt{Name: "raw", Network: guest.RAW, Want: guest.WantRefused}), nil
}

type forbidden struct {
	name string
	udp  bool
	addr netip.AddrPort
}

// mustNot are addresses that nobody but a rule opens: one of nobody's, other
// resolvers, metadata services, and the host itself, which listens at host.
func mustNot(host []netip.AddrPort) []forbidden {
	at := netip.MustParseAddrPort
	list := []forbidden{
		{"direct-address", false, at("198.51.100.1:443")},
		{"direct-address-v6", false, at("[2001:db8::1]:443")},
		{"direct-datagram", true, at("198.51.100.1:443")},
		{"other-resolver", true, at("8.8.8.8:53")},
		{"other-resolver-tcp", false, at("8.8.8.8:53")},
		{"other-resolver-v6", true, at("[2001:4860:4860::8888]:53")},
		{"metadata", false, at("169.254.169.254:80")},
		{"metadata-v6", false, at("[fd00:ec2::254]:80")},
		{"gate-other-port", false, netip.AddrPortFrom(link.Gate4, 22)},
	}
	for i, a := range host {
		list = append(list, forbidden{fmt.Sprintf("host-%d", i), false, a})
	}
	return list
}

// ask is a question for a name's address, as a message.
func ask(name string) ([]byte, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Id = 0x6362
	return m.Pack()
}

// canary listens on the host while a sandbox tries to get there.
type canary struct {
	listeners []net.Listener
	addrs     []netip.AddrPort
}

// newCanary listens on both loopbacks and on an address of the host's own,
// where it has them.
func newCanary() (*canary, error) {
	c := &canary{}
	hosts := []string{"127.0.0.1", "::1"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			hosts = append(hosts, n.IP.String())
			break
		}
	}
	for _, h := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(h, "0"))
		if err != nil {
			continue // a host without IPv6
		}
		c.listeners = append(c.listeners, l)
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			c.addrs = append(c.addrs, a.AddrPort())
		}
	}
	return c, nil
}

func (c *canary) Close() error {
	var errs []error
	for _, l := range c.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
