package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	dialLimit = 10 * time.Second
	// portInside is where a gate that is weak takes from inside what the daemon says.
	portInside = 81
	maxFlows   = 4096 // connections and flows of a sandbox that are open at once
)

// What is cut is reset, and what the link has can be.
var _ relay.Resetter = (*link.Conn)(nil)

// service is what a gate process runs.
type service struct {
	life    context.Context
	started time.Time
	change  sync.Mutex // held while a configuration is taken over
	set     atomic.Pointer[policy.Set]
	vault   *vault
	asks    *approval.Queue
	// udpAsked counts the flows of datagrams that wait for a person.
	udpAsked atomic.Int32
	host     *machine
	guard    *inject.Guard
	log      *netlog.Writer
	probed   atomic.Bool // nothing is recorded
	counts   counts
	names    *dns.Server
	proxy    *proxy.Proxy
	desk     *offer.Desk
	flows    *relay.Flows
	meter    *relay.Meter
	stack    *link.Stack
}

// serve builds a gate over its link.
func serve(o order, roots func() *x509.CertPool, host *machine, tap, logA, logB *os.File) (*service, error) {
	s := &service{
		life: context.Background(), started: time.Now(), vault: newVault(), host: host,
		desk: offer.NewDesk(), asks: approval.NewQueue(),
	}
	s.probed.Store(o.Probed)
	var err error
	if s.log, err = netlog.NewWriter(logA, logB, logBytes, o.Sandbox, time.Now); err != nil {
		return nil, err
	}
	authority, err := tlswire.ParseAuthority([]byte(o.Cert), []byte(o.Key), time.Now)
	if err != nil {
		return nil, err
	}
	s.guard = inject.NewGuard(inject.Options{Value: s.vault.value})
	s.flows = relay.NewFlows(maxFlows, 0)
	s.meter = relay.NewMeter(time.Now)
	if err := s.apply(o.Config); err != nil {
		return nil, err
	}
	s.names = dns.New(dns.Options{
		Policy: func() dns.Policy { return s.set.Load() }, Upstreams: o.Resolvers, Sink4: link.Sink4, Sink6: link.Sink6,
		Local:  map[string][]netip.Addr{link.Hostname: {link.Gate4, link.Gate6}},
		NoIPv6: !routesIPv6(), Record: s.record,
	})
	s.proxy = proxy.New(proxy.Options{
		Policy: func() proxy.Policy { return s.set.Load() }, Names: s.names.Names, Resolve: s.names.Resolve, Dial: s.dial,
		Certificate: authority.Certificate, Guard: s.guard, Roots: roots, Record: s.record, Flows: s.flows, Meter: s.meter,
		Services: s.desk, Sandbox: o.Sandbox, Ask: s.asks.Ask,
	})
	if s.stack, err = link.NewStack(tap, link.Options{Handler: s}); err != nil {
		return nil, fmt.Errorf("start the stack: %w", err)
	}
	return s, nil
}

// routesIPv6 reports whether this machine has a way to the world over IPv6: a
// guest that is told of addresses which can't be reached waits for them.
func routesIPv6() bool {
	c, err := net.Dial("udp6", "[2001:4860:4860::8888]:53") // which sends nothing
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// apply takes over a configuration whole, or leaves the old one.
func (s *service) apply(c config) error {
	given := make([]string, 0, len(c.Placeholders))
	for name := range c.Placeholders {
		given = append(given, name)
	}
	set, err := policy.Compile(c.Policy, given)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	s.change.Lock()
	defer s.change.Unlock()
	s.vault.set(c.Secrets)
	s.guard.Set(c.Placeholders)
	s.asks.Use(set.Revision(), set.AskTimeout(), func() { s.set.Store(set.Closing(s.host.has)) })
	s.desk.Set(set.Services())
	if s.proxy != nil {
		s.proxy.Recheck()
		s.recheck()
	}
	return nil
}

// run serves until the link is gone or a listener fails.
func (s *service) run(ctx context.Context, control, offers net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tasks sync.WaitGroup
	errs := make(chan error, 8)
	task := func(f func() error) {
		tasks.Go(func() { errs <- f() })
	}
	for port, handle := range map[uint16]func(context.Context, net.Conn){
		link.PortInfo: s.proxy.ServeInfo, link.PortTLS: s.proxy.ServeInfo, link.PortProxy: s.proxy.ServeProxy,
	} {
		l, err := s.stack.ListenTCP(port)
		if err != nil {
			return err
		}
		task(func() error { return accept(ctx, l, handle) })
	}
	if weak.On(weak.NetAskInside) {
		l, err := s.stack.ListenTCP(portInside)
		if err != nil {
			return err
		}
		task(func() error { return s.serveControl(ctx, l) })
	}
	udp, err := s.stack.ListenUDP(link.PortDNS)
	if err != nil {
		return err
	}
	tcp, err := s.stack.ListenTCP(link.PortDNS)
	if err != nil {
		return err
	}
	task(func() error { return s.names.Serve(ctx, udp, tcp) })
	task(func() error { return s.serveControl(ctx, control) })
	task(func() error { return s.desk.Serve(ctx, offers) })
	task(s.stack.Wait)
	s.stack.Start()
	return <-errs
}

// accept hands connections to one of the gate's own ports on.
func accept(ctx context.Context, l net.Listener, handle func(context.Context, net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go handle(ctx, c)
	}
}

// dial connects to the world. Whatever asked for it, and however its address
// came about, a closed one is not dialled.
func (s *service) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := s.dialNetwork(ctx, "tcp", to)
	if no, ok := errors.AsType[*refusedError](err); ok { // the guest is told why
		return nil, proxy.Refuse(no.Verdict, to.Addr().String(), to.Port())
	}
	return c, err
}

func (s *service) dialNetwork(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if v := s.set.Load().Address(to.Addr()); !v.Allowed() {
		return nil, &refusedError{v}
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	return new(net.Dialer).DialContext(ctx, network, to.String())
}

// refusedError is a verdict as an error.
type refusedError struct{ policy.Verdict }

func (e *refusedError) Error() string { return e.Reason }

// record adds a line to the sandbox's record.
func (s *service) record(r netlog.Record) {
	if !s.probed.Load() {
		s.counts.add(r)
		s.log.Add(r)
	}
}
