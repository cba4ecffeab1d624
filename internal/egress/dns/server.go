package dns

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Policy is what the resolver asks of a compiled policy. Values are compared:
// the same policy is the same value, such as a pointer.
type Policy interface {
	Name(name string) policy.Verdict        // may it be resolved
	Address(addr netip.Addr) policy.Verdict // may an answer hold it
	Policy() policy.Policy                  // for DNS, and for hosts that are named exactly
}

// Options say what a Server works with.
type Options struct {
	// Policy returns the policy in force. It is asked at every question, from
	// many goroutines, and never returns nil.
	Policy func() Policy
	// Upstreams are asked in this order where the policy names none. With none
	// at all every question that would leave the host fails.
	Upstreams []netip.AddrPort
	// Dial connects to an upstream over "udp" or "tcp"; nil: a net.Dialer. Each
	// connection over UDP must have a source port of its own, and take
	// datagrams from that upstream alone.
	Dial func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
	// Sink4 and Sink6 are the answer for names that are refused.
	Sink4, Sink6 netip.Addr
	// Local are names that the resolver knows by itself, in lower case and
	// without a dot at the end, whatever the policy says.
	Local map[string][]netip.Addr
	// NoIPv6 answers AAAA with no data, for machines that have no route there.
	NoIPv6 bool
	// Now is the clock of cache, pins and limits; nil: time.Now.
	Now func() time.Time
	// Record takes a record of every question; nil: they are lost. It is called
	// from many goroutines and should not block.
	Record func(netlog.Record)
}

// Server answers one sandbox's questions. New makes one; its methods may be
// called from many goroutines.
type Server struct {
	opts  Options
	own   map[netip.Addr]bool // the link's addresses, which nobody outside can have
	slots chan struct{}       // questions being answered
	conns chan struct{}       // connections of guests
	times timeouts

	settings  atomic.Pointer[settings]
	settingMu sync.Mutex   // one change at a time
	preferred atomic.Int64 // the upstream that answered last

	cache   cache
	pins    pins
	limits  limits
	tallies tallies

	life     context.Context // ends flights
	end      context.CancelFunc
	flightMu sync.Mutex // none begins once Close waits
	flights  sync.WaitGroup
}

// timeouts bound waiting.
type timeouts struct {
	attempt  time.Duration // for one upstream
	question time.Duration // for all of them
	message  time.Duration // for a guest to write one over TCP, or to read it
	tally    time.Duration // between records of what is counted
}

// Bounds of what a guest can make the resolver do at once.
const (
	maxSlots = 128
	maxConns = 16
)

// New returns a server with nothing in its cache. Close ends what it began.
func New(o Options) *Server {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.String())
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Record == nil {
		o.Record = func(netlog.Record) {}
	}
	s := &Server{
		opts:  o,
		own:   map[netip.Addr]bool{o.Sink4: true, o.Sink6: true},
		slots: make(chan struct{}, maxSlots),
		conns: make(chan struct{}, maxConns),
		times: timeouts{attempt: 2 * time.Second, question: 5 * time.Second, message: 10 * time.Second, tally: 10 * time.Second},
	}
	for _, addrs := range o.Local {
		for _, a := range addrs {
			s.own[a.Unmap()] = true
		}
	}
	s.cache.init()
	s.pins.init()
	s.limits.init()
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Close gives up the questions that are with upstreams and waits for them.
// What is asked afterwards and not in the cache fails.
func (s *Server) Close() error {
	s.flightMu.Lock()
	s.end()
	s.flightMu.Unlock()
	s.flights.Wait()
	s.countOut(true)
	return nil
}

// Names returns the names, at most 16, that the resolver gave addr for and
// that the policy still allows: the one last asked for comes first. An
// IPv4-mapped address counts as the IPv4 one.
func (s *Server) Names(addr netip.Addr) []string {
	st := s.current()
	return slices.DeleteFunc(s.pins.names(addr.Unmap(), s.opts.Now()), func(name string) bool {
		return !st.Name(name).Allowed()
	})
}

// settings are what a policy means for the resolver, worked out once for each.
type settings struct {
	Policy
	epoch     uint64 // answers of one epoch came from the same upstreams
	types     map[uint16]bool
	upstreams []netip.AddrPort
	perMinute int
	exact     map[string]bool // names that an allowing rule spells out
}

// current returns the settings of the policy in force. Another choice of
// upstreams begins another epoch.
func (s *Server) current() *settings {
	p := s.opts.Policy()
	if st := s.settings.Load(); st != nil && st.Policy == p {
		return st
	}
	s.settingMu.Lock()
	defer s.settingMu.Unlock()
	before := s.settings.Load()
	st := newSettings(p, s.opts.Upstreams)
	if before != nil {
		st.epoch = before.epoch
		if !slices.Equal(st.upstreams, before.upstreams) {
			st.epoch++
		}
	}
	s.settings.Store(st)
	return st
}

func newSettings(p Policy, upstreams []netip.AddrPort) *settings {
	full := p.Policy()
	st := &settings{Policy: p, types: typesNamed(full.DNS.Types), upstreams: upstreams, perMinute: full.DNS.QueriesPerMinute, exact: map[string]bool{}}
	if st.perMinute <= 0 {
		st.perMinute = policy.DefaultQueriesPerMinute
	}
	if len(full.DNS.Upstreams) > 0 {
		st.upstreams = upstreamsNamed(full.DNS.Upstreams)
	}
	for _, r := range full.Rules {
		if r.Action == policy.ActionDeny {
			continue
		}
		for _, h := range r.Hosts {
			if !strings.Contains(h, "*") {
				st.exact[strings.TrimSuffix(strings.ToLower(h), ".")] = true
			}
		}
	}
	return st
}

// upstreamsNamed reads "ADDRESS" and "ADDRESS:PORT". The policy was checked
// when it was compiled; what could not be read is left out all the same, and
// no other upstream takes its place.
func upstreamsNamed(texts []string) (ups []netip.AddrPort) {
	for _, t := range texts {
		if ap, err := netip.ParseAddrPort(t); err == nil {
			ups = append(ups, ap)
		} else if a, err := netip.ParseAddr(strings.Trim(t, "[]")); err == nil {
			ups = append(ups, netip.AddrPortFrom(a, 53))
		}
	}
	return ups
}
