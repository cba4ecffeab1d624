package dns_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

var (
	sink4 = netip.MustParseAddr("192.0.0.3")
	sink6 = netip.MustParseAddr("fd63:6172:626f:7900::3")
	gate4 = netip.MustParseAddr("192.0.0.1")
	gate6 = netip.MustParseAddr("fd63:6172:626f:7900::1")
)

// rules is a policy of the simplest kind: its rules' hosts and addresses count,
// and nothing else. It is compared by its address.
type rules struct{ p policy.Policy }

func allow(hosts ...string) *rules {
	return &rules{policy.Policy{Rules: []policy.Rule{{ID: "r", Hosts: hosts}}}}
}

func (r *rules) Policy() policy.Policy { return r.p }

func (r *rules) Name(name string) policy.Verdict {
	for _, rule := range r.p.Rules {
		for _, h := range rule.Hosts {
			if h == name || h[0] == '*' && strings.HasSuffix(name, h[1:]) {
				return policy.Verdict{Mode: policy.ModeAllow, Rule: rule.ID, Reason: "a rule names it"}
			}
		}
	}
	if r.p.Default == policy.DefaultPublic {
		return policy.Verdict{Mode: policy.ModeAllow, Rule: "default"}
	}
	return policy.Verdict{Mode: policy.ModeRefuse, Code: policy.CodeNotAllowed, Reason: name + " is in no rule"}
}

func (r *rules) Address(addr netip.Addr) policy.Verdict {
	for _, rule := range r.p.Rules {
		if slices.Contains(rule.Addresses, addr.String()) {
			return policy.Verdict{Mode: policy.ModeAllow, Rule: rule.ID}
		}
	}
	if addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		return policy.Verdict{Mode: policy.ModeRefuse, Code: policy.CodeClosedAddress, Reason: addr.String() + " is private"}
	}
	return policy.Verdict{Mode: policy.ModeAllow}
}

// zone is a DNS server of our own, which knows what it is told and remembers
// what it was asked.
type zone struct {
	addr netip.AddrPort

	mu      sync.Mutex
	records map[string][]wire.RR // by "name. TYPE", lower case
	special map[string]wire.HandlerFunc
	asked   []string // "udp name. TYPE", as they came
	seen    []*wire.Msg
}

// newZone serves records, in the form of a zone file, over UDP and TCP.
func newZone(t testing.TB, records ...string) *zone {
	t.Helper()
	z := &zone{records: map[string][]wire.RR{}, special: map[string]wire.HandlerFunc{}}
	z.add(t, records...)
	pc, ln := listen(t)
	z.addr = netip.MustParseAddrPort(pc.LocalAddr().String())
	for _, srv := range []*wire.Server{{PacketConn: pc, Handler: z}, {Listener: ln, Handler: z}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		done := make(chan error, 1)
		go func() { done <- srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = srv.Shutdown()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return z
}

// listen finds a port that is free for UDP and TCP.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, ln
		}
		_ = pc.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func (z *zone) add(t testing.TB, records ...string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, r := range records {
		rr, err := wire.NewRR(r)
		if err != nil {
			t.Fatal(err)
		}
		k := strings.ToLower(rr.Header().Name) + " " + wire.TypeToString[rr.Header().Rrtype]
		z.records[k] = append(z.records[k], rr)
	}
}

// handle has f answer the questions about a name.
func (z *zone) handle(name string, f wire.HandlerFunc) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.special[name+"."] = f
}

// ServeDNS answers from the records, as a resolver that knows only those:
// chains of aliases are completed, and names without any record do not exist.
func (z *zone) ServeDNS(w wire.ResponseWriter, r *wire.Msg) {
	q := r.Question[0]
	name := strings.ToLower(q.Name)
	z.mu.Lock()
	z.asked = append(z.asked, w.LocalAddr().Network()+" "+name+" "+wire.Type(q.Qtype).String())
	z.seen = append(z.seen, r.Copy())
	f := z.special[name]
	m := new(wire.Msg).SetReply(r)
	for range 10 {
		m.Answer = append(m.Answer, z.records[name+" "+wire.Type(q.Qtype).String()]...)
		alias := z.records[name+" CNAME"]
		if len(alias) == 0 || q.Qtype == wire.TypeCNAME {
			break
		}
		m.Answer = append(m.Answer, alias[0])
		name = alias[0].(*wire.CNAME).Target
	}
	if !z.has(name) {
		m.Rcode = wire.RcodeNameError
	}
	z.mu.Unlock()
	if f != nil {
		f(w, r)
		return
	}
	if len(m.Answer) == 0 || m.Answer[len(m.Answer)-1].Header().Rrtype == wire.TypeCNAME && q.Qtype != wire.TypeCNAME {
		m.Ns = []wire.RR{&wire.SOA{Hdr: wire.RR_Header{Name: "test.", Rrtype: wire.TypeSOA, Class: wire.ClassINET, Ttl: 60}, Ns: "ns.test.", Mbox: "m.test.", Minttl: 60}}
	}
	_ = w.WriteMsg(m)
}

func (z *zone) has(name string) bool {
	for k := range z.records {
		if strings.HasPrefix(k, name+" ") {
			return true
		}
	}
	return false
}

// questions returns what was asked since the last call.
func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	asked := z.asked
	z.asked, z.seen = nil, nil
	slices.Sort(asked)
	return asked
}

// messages returns the questions themselves, since the last call.
func (z *zone) messages() []*wire.Msg {
	z.mu.Lock()
	defer z.mu.Unlock()
	seen := z.seen
	z.asked, z.seen = nil, nil
	return seen
}

// world is a resolver under test, its guest's side on loopback addresses.
type world struct {
	*dns.Server
	addr   string
	policy atomic.Pointer[rules]
	clock  atomic.Int64 // seconds that have gone by

	mu      sync.Mutex
	records []netlog.Record
}

// newWorld serves what p allows; z's zone is the upstream unless change says
// otherwise.
func newWorld(t testing.TB, p *rules, z *zone, change ...func(*dns.Options)) *world {
	t.Helper()
	w := &world{}
	w.policy.Store(p)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := dns.Options{
		Policy: func() dns.Policy { return w.policy.Load() },
		Sink4:  sink4, Sink6: sink6,
		Local: map[string][]netip.Addr{"gate.carboy.internal": {gate4, gate6}},
		Now:   func() time.Time { return start.Add(time.Duration(w.clock.Load()) * time.Second) },
		Record: func(r netlog.Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.records = append(w.records, r)
		},
	}
	if z != nil {
		o.Upstreams = []netip.AddrPort{z.addr}
	}
	for _, c := range change {
		c(&o)
	}
	w.Server = dns.New(o)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// serve has w listen, until the test ends.
func (w *world) serve(t testing.TB) *world {
	t.Helper()
	pc, ln := listen(t)
	w.addr = pc.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, pc, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Serve =", err)
		}
	})
	return w
}

// ask puts a question to the resolver itself, without a network.
func (w *world) ask(t testing.TB, name string, qtype uint16) *wire.Msg {
	t.Helper()
	m := new(wire.Msg).SetQuestion(wire.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	return w.send(t, m)
}

func (w *world) send(t testing.TB, m *wire.Msg) *wire.Msg {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer := w.Handle(t.Context(), b)
	if answer == nil {
		t.Fatalf("%v: no answer", m.Question)
	}
	got := new(wire.Msg)
	if err := got.Unpack(answer); err != nil {
		t.Fatalf("%v: answer: %v", m.Question, err)
	}
	return got
}

type record = netlog.Record

// told returns the records since the last call.
func (w *world) told() []netlog.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records
	w.records = nil
	return r
}

// addrs are the addresses in an answer.
func addrs(m *wire.Msg) (out []string) {
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *wire.A:
			out = append(out, rr.A.String())
		case *wire.AAAA:
			out = append(out, netip.AddrFrom16([16]byte(rr.AAAA)).String())
		}
	}
	return out
}

// ede is the extended error in an answer: its code, or -1, and its words.
func ede(m *wire.Msg) (code int, text string) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*wire.EDNS0_EDE); ok {
				return int(e.InfoCode), e.ExtraText
			}
		}
	}
	return -1, ""
}
