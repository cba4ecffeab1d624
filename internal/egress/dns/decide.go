package dns

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// outcome is what becomes of a question.
type outcome struct {
	verdict policy.Verdict
	rcode   int
	ede     int    // an extended error's code; none where it is negative
	text    string // of the extended error, for the guest
	chain   []string
	addrs   []netip.Addr
	rrs     []wire.RR
	ttl     time.Duration
	asked   bool  // it was put to an upstream
	err     error // of ErrNoName, ErrNoData and ErrUpstream, where nothing was refused
}

const noEDE = -1

// localTTL is that of names which the resolver knows by itself.
const localTTL = time.Minute

// decide answers a question about a canonical name in the class IN. charged
// says that it was taken from the limit already.
func (s *Server) decide(ctx context.Context, name string, qtype uint16, charged bool) outcome {
	if addrs, ok := s.known(name); ok {
		return s.local(name, qtype, addrs)
	}
	st := s.current()
	v := st.Name(name)
	if reason := private(name, v); reason != "" {
		out := refusal(refuse(policy.CodeNotAllowed, "", reason+": not asked for outside"))
		out.rcode = wire.RcodeNameError
		return out
	}
	if !v.Allowed() && !weak.On(weak.NetDNSOpen) {
		return s.sink(v, qtype)
	}
	if !st.exact[name] && !weak.On(weak.NetTunnelOpen) {
		if reason := shape(name); reason != "" {
			return s.sink(hinted(refuse(CodeShape, v.Rule, reason), "ask for: --allow "+name), qtype)
		}
	}
	if out, ok := s.closedType(st, v, qtype); ok {
		return out
	}
	a, asked, limit := s.lookup(ctx, st, v, name, qtype, charged)
	if !limit.Allowed() {
		return refusal(limit)
	}
	if asked {
		// The policy may have changed while the question was outside.
		st = s.current()
		if v = st.Name(name); !v.Allowed() && !weak.On(weak.NetDNSOpen) {
			out := s.sink(v, qtype)
			out.asked = true
			return out
		}
	}
	out := s.open(st, v, name, qtype, a)
	out.asked = asked
	return out
}

// closedType answers for what is asked about an allowed name and not asked
// for outside. Of HTTPS and SVCB there is nothing, for every name: they would
// hand out keys for hellos that nobody on the way can read.
func (s *Server) closedType(st *settings, v policy.Verdict, qtype uint16) (outcome, bool) {
	switch {
	case qtype == wire.TypeA, qtype == wire.TypeAAAA && !s.opts.NoIPv6, st.types[qtype], weak.On(weak.NetTypesOpen):
		return outcome{}, false
	case qtype == wire.TypeAAAA, qtype == wire.TypeHTTPS, qtype == wire.TypeSVCB:
		return outcome{verdict: v, ede: noEDE, err: ErrNoData}, true
	}
	closed := refuse(CodeType, v.Rule, fmt.Sprintf("questions of type %s are closed", typeName(qtype)))
	if nameable[typeName(qtype)] {
		closed.Hint = "ask for: " + typeName(qtype) + " in the policy's dns.types"
	}
	return refusal(closed), true
}

// nameable are the types that a policy can name.
var nameable = map[string]bool{"CNAME": true, "TXT": true, "MX": true, "SRV": true, "NS": true, "PTR": true, "SOA": true, "CAA": true, "NAPTR": true}

// typesNamed reads a policy's types.
func typesNamed(names []string) map[uint16]bool {
	types := map[uint16]bool{}
	for _, n := range names {
		if nameable[n] {
			types[wire.StringToType[n]] = true
		}
	}
	return types
}

// typeName is a type's name, or "TYPE1234".
func typeName(qtype uint16) string {
	if n, ok := wire.TypeToString[qtype]; ok {
		return n
	}
	return fmt.Sprintf("TYPE%d", qtype)
}

// local answers for a name that the resolver knows by itself.
func (s *Server) local(name string, qtype uint16, addrs []netip.Addr) outcome {
	out := outcome{verdict: policy.Verdict{Mode: policy.ModeAllow, Reason: name + " is known here"}, ede: noEDE, ttl: localTTL}
	for _, a := range addrs {
		if a.Is4() && qtype == wire.TypeA || a.Is6() && qtype == wire.TypeAAAA {
			out.addrs = append(out.addrs, a)
		}
	}
	if len(out.addrs) == 0 {
		out.err = ErrNoData
	}
	return out
}

// refusal is REFUSED, with the reason.
func refusal(v policy.Verdict) outcome {
	text := string(v.Code) + ": " + v.Reason
	if v.Hint != "" {
		text += "; " + v.Hint
	}
	return outcome{verdict: v, rcode: wire.RcodeRefused, ede: int(wire.ExtendedErrorCodeBlocked), text: text}
}

// sink answers for a name that is refused: with the address where clients
// read why, if they ask for one.
func (s *Server) sink(v policy.Verdict, qtype uint16) outcome {
	out := refusal(v)
	switch {
	case qtype == wire.TypeA && s.opts.Sink4.IsValid():
		out.addrs = []netip.Addr{s.opts.Sink4}
	case qtype == wire.TypeAAAA && s.opts.Sink6.IsValid():
		out.addrs = []netip.Addr{s.opts.Sink6}
	default:
		return out
	}
	out.rcode = wire.RcodeSuccess
	return out
}

// open answers with what upstreams know, closed addresses taken out, and pins
// the rest to the name.
func (s *Server) open(st *settings, v policy.Verdict, name string, qtype uint16, a answer) outcome {
	out := outcome{verdict: v, ede: noEDE, chain: a.chain, rrs: a.rrs, ttl: a.ttl}
	switch a.kind {
	case failed:
		out.verdict.Reason = a.fail.reason
		out.rcode, out.err = wire.RcodeServerFailure, ErrUpstream
		out.ede, out.text = int(a.fail.code), "no resolver outside answered"
		return out
	case noName:
		out.rcode, out.err = wire.RcodeNameError, ErrNoName
		return out
	case noData:
		out.err = ErrNoData
		return out
	}
	var closed *policy.Verdict
	for _, addr := range a.addrs {
		if cv := s.address(st, addr); !cv.Allowed() && !weak.On(weak.NetRebindOpen) {
			closed = &cv
			continue
		}
		out.addrs = append(out.addrs, addr)
	}
	if len(out.addrs) == 0 && closed != nil {
		return s.sink(*closed, qtype)
	}
	if len(out.addrs) > 0 {
		s.pins.add(name, out.addrs, a.ttl, s.opts.Now())
	}
	return out
}

// address asks the policy about an address in an answer. One of IPv4 in an
// IPv6 record is nobody's honest answer, and neither is one of the link's own.
func (s *Server) address(st *settings, addr netip.Addr) policy.Verdict {
	if addr.Is4In6() || s.own[addr] {
		return refuse(policy.CodeClosedAddress, "", "an answer held "+addr.String()+", which is no address of a host outside")
	}
	return st.Address(addr)
}

// tooMany is the refusal of a question over the limit.
func (s *Server) tooMany(st *settings) policy.Verdict {
	return hinted(refuse(CodeLimit, "", fmt.Sprintf("more than %d questions a minute", st.perMinute)), "ask for: a higher dns.queries_per_minute in the policy")
}
