package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Codes of what is refused here.
const (
	codeFrame   policy.Code = "frame_dropped"
	codeLimit   policy.Code = "limit_reached"
	codeTooMany policy.Code = "too_many_connections"
)

// TCP implements link.Handler: it decides about a connection of which no byte
// was read. What is refused is recorded first: by the time that the guest
// hears of it, the record has it.
func (s *service) TCP(r *link.TCPRequest) {
	if link.IsSink(r.To.Addr()) {
		if c, err := r.Accept(); err == nil {
			s.proxy.ServeSink(s.life, c, r.To)
		}
		return
	}
	conn := policy.Conn{Addr: r.To, Names: s.names.Names(r.To.Addr())}
	v := s.set.Load().Connect(conn)
	switch {
	case link.IsGate(r.To.Addr()):
		s.refused("tcp", conn, policy.Verdict{Code: policy.CodeNotAllowed, Reason: "the gate does not listen there"})
		r.Refuse()
	case !v.Allowed():
		s.refused("tcp", conn, v)
		r.Refuse()
	case v.Mode == policy.ModeRelay:
		s.relayTCP(r, conn)
	default:
		if c, err := r.Accept(); err == nil {
			s.proxy.ServeTCP(s.life, c, r.To)
		}
	}
}

// UDP implements link.Handler.
func (s *service) UDP(r *link.UDPRequest) {
	conn := policy.Conn{UDP: true, Addr: r.To, Names: s.names.Names(r.To.Addr())}
	f := s.open("udp", conn)
	if f == nil {
		r.Refuse()
		return
	}
	defer f.Close()
	if !s.askUDP(f) {
		r.Refuse()
		return
	}
	up, err := s.dialNetwork(f.Context(), "udp", r.To)
	if err != nil {
		s.unreached(f, err)
		r.Refuse()
		return
	}
	down, err := r.Accept()
	if err != nil {
		up.Close()
		return
	}
	res := relay.UDP(f.Context(), down, func(context.Context) (net.Conn, error) { return up, nil }, f.options())
	s.ended(f, res)
}

// relayTCP connects to where a connection goes before it is accepted: what is
// refused there is refused here.
func (s *service) relayTCP(r *link.TCPRequest, conn policy.Conn) {
	f := s.open("tcp", conn)
	if f == nil {
		r.Refuse()
		return
	}
	defer f.Close()
	if f.verdict.Ask {
		s.relayAsked(r, f)
		return
	}
	up, err := s.dialNetwork(f.Context(), "tcp", r.To)
	if err != nil {
		s.unreached(f, err)
		r.Refuse()
		return
	}
	down, err := r.Accept()
	if err != nil {
		up.Close()
		return
	}
	s.ended(f, relay.TCP(f.Context(), down, up, f.options()))
}

// flow is a relay that is open, and the verdict that it stands under.
type flow struct {
	*relay.Flow
	protocol string
	conn     policy.Conn
	verdict  policy.Verdict
	revision string // of the policy that it is of
	account  *relay.Account
}

// open lists a flow, and only then asks whether it may be: so a change of the
// policy is seen by it or by the recheck. It returns nil where it may not, and
// has recorded why.
func (s *service) open(protocol string, conn policy.Conn) *flow {
	listed, err := s.flows.Open(s.life, relay.Info{Stream: policy.Stream{Conn: conn}, Unread: true})
	if err != nil {
		s.refused(protocol, conn, policy.Verdict{Code: codeTooMany, Reason: err.Error()})
		return nil
	}
	f := &flow{Flow: listed, protocol: protocol, conn: conn}
	if !s.decide(f) {
		f.Close()
		return nil
	}
	return f
}

// decide asks the policy as it is now about a flow that is listed, and reports whether it may
// be. It has recorded why not.
func (s *service) decide(f *flow) bool {
	set := s.set.Load()
	before := f.verdict
	f.verdict, f.revision = set.Connect(f.conn), set.Revision()
	if f.verdict.Mode != policy.ModeRelay {
		if f.verdict.Allowed() {
			f.verdict.Code, f.verdict.Reason = policy.CodeProtocol, "only HTTP is allowed there, and these are datagrams"
		}
		s.refused(f.protocol, f.conn, f.verdict)
		return false
	}
	if f.verdict.CountsAs(before) {
		return true // it has been counted
	}
	f.account = nil
	if r := f.verdict.Route; r != nil {
		f.account = s.meter.Rule(f.verdict.Rule, r.Limits)
	}
	if wait, ok := f.account.Begin(); !ok {
		s.refused(f.protocol, f.conn, policy.Verdict{
			Code: codeLimit, Rule: f.verdict.Rule, Reason: "the rule's connections of this minute are used up, for " + wait.Round(time.Second).String(),
		})
		return false
	}
	return true
}

func (f *flow) options() relay.Options {
	o := relay.Options{Account: f.account}
	if r := f.verdict.Route; r != nil {
		o.Limits = r.Limits
	}
	return o
}

// ended records a flow that carried something.
func (s *service) ended(f *flow, res relay.Result) {
	rec := f.record()
	rec.Sent, rec.Received = res.Sent, res.Received
	switch res.End {
	case relay.EndClosed, relay.EndIdle:
	case relay.EndLimit:
		rec.Code, rec.Result = string(codeLimit), "cut: a limit of its rule was reached"
	case relay.EndCut:
		rec.Result = "cut"
		if cut, ok := errors.AsType[*relay.CutError](res.Err); ok {
			rec.Result = cut.Error()
		}
	default:
		rec.Result = string(res.End)
	}
	s.record(rec)
}

// unreached records a flow that may be, and whose other end is not there.
func (s *service) unreached(f *flow, err error) {
	rec := f.record()
	var no *refusedError
	switch {
	case errors.As(err, &no):
		rec.Verdict, rec.Code, rec.Reason = netlog.Deny, string(no.Code), no.Reason
	case errors.Is(err, syscall.ECONNREFUSED):
		rec.Result = "connection refused"
	case errors.Is(err, context.DeadlineExceeded):
		rec.Result = "no answer"
	default:
		rec.Result = "unreachable"
	}
	s.record(rec)
}

func (f *flow) record() netlog.Record {
	begun := f.Info().Begun
	return netlog.Record{
		Time: begun, Duration: time.Since(begun), Verdict: netlog.Allow, Rule: f.verdict.Rule,
		Protocol: f.protocol, Host: first(f.conn.Names), Address: addressText(f.conn.Addr),
	}
}

// refused records what was not let through.
func (s *service) refused(protocol string, conn policy.Conn, v policy.Verdict) {
	s.record(netlog.Record{
		Time: time.Now(), Verdict: netlog.Deny, Code: string(v.Code), Rule: v.Rule, Reason: v.Reason,
		Protocol: protocol, Host: first(conn.Names), Address: addressText(conn.Addr),
	})
}

// Dropped implements link.Handler: frames that no well-behaved guest sends.
func (s *service) Dropped(d link.Drop) {
	s.record(netlog.Record{
		Time: time.Now(), Verdict: netlog.Deny, Code: string(codeFrame), Reason: string(d.Reason),
		Protocol: d.Protocol, Address: addressText(d.To), Count: d.Count,
	})
}

// settleWait bounds how long a new policy waits for what it cuts to be closed.
const settleWait = 2 * time.Second

// recheck cuts what the policy does not let through any more. Who set the policy is told once nothing
// passes that it refuses.
func (s *service) recheck() {
	set := s.set.Load()
	s.flows.Recheck(func(i relay.Info) (bool, string) {
		v := set.Connect(i.Conn)
		if i.Sniffed {
			v = set.Stream(i.Stream)
		}
		if v.Ask && !i.Waits && i.Consent != set.Revision() && !weak.On(weak.NetAskStale) {
			return false, "a person is to be asked now"
		}
		if i.Unread && v.Allowed() && v.Mode != policy.ModeRelay {
			return false, "what goes there is to be read now"
		}
		return v.Allowed(), v.Reason
	})
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	s.flows.Settle(ctx)
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// addressText is "" for the zero address.
func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
