package egress

import (
	"cmp"
	"context"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// relayAsked carries a connection that a person is asked about. The guest's
// handshake does not wait for that, for its patience is short.
func (s *service) relayAsked(r *link.TCPRequest, f *flow) {
	down, err := r.Accept()
	if err != nil {
		return
	}
	if !s.askPersonOf(f, down) {
		relay.Reset(down)
		down.Close()
		return
	}
	up, err := s.dialNetwork(f.Context(), "tcp", r.To)
	if err != nil {
		s.unreached(f, err)
		relay.Reset(down)
		down.Close()
		return
	}
	s.ended(f, relay.TCP(f.Context(), down, up, f.options()))
}

// maxUDPAsked bounds the flows of datagrams that wait for a person: each keeps one of
// the link's places for flows that are not open yet, of which others need some, and each
// is a question of its own, of which others need some, too.
const maxUDPAsked = approval.MaxOpen / 2

// askUDP is askPerson for a flow of datagrams.
func (s *service) askUDP(f *flow) bool {
	if !f.verdict.Ask {
		return true
	}
	defer s.udpAsked.Add(-1)
	if s.udpAsked.Add(1) > maxUDPAsked {
		s.askRefused(f, approval.Outcome{State: approval.Denied, Full: true})
		return false
	}
	return s.askPerson(f.Context(), f)
}

// askPersonOf is askPerson until the guest's end of a connection is gone.
func (s *service) askPersonOf(f *flow, down any) bool {
	ctx := f.Context()
	if c, ok := down.(*link.Conn); ok {
		var stop context.CancelFunc
		ctx, stop = c.Gone(ctx, false)
		defer stop()
	}
	return s.askPerson(ctx, f)
}

// askPerson reports whether a flow may go on: where its rule wants that, a person
// is asked, and anew where the policy has changed meanwhile. It has recorded why not.
func (s *service) askPerson(ctx context.Context, f *flow) bool {
	if !f.verdict.Ask {
		return true
	}
	for {
		if f.verdict.Ask {
			out, anew := s.askOnce(ctx, f)
			if out.State.LetsGo() && !anew {
				return true
			}
			if !anew {
				s.askRefused(f, out)
				return false
			}
		} else if s.settles(f, "") {
			return true
		}
		if !s.decide(f) {
			return false
		}
	}
}

// askOnce asks a person under the policy of the flow's verdict. anew: that holds no longer,
// and the flow waits on.
func (s *service) askOnce(ctx context.Context, f *flow) (out approval.Outcome, anew bool) {
	q := f.question()
	f.Update(func(i *relay.Info) { i.Waits = true })
	out = s.asks.Ask(ctx, q, func() {
		s.record(netlog.Record{
			Time: time.Now(), Verdict: netlog.Ask, Rule: q.Rule, Reason: "a person is asked",
			Protocol: f.protocol, Host: first(f.conn.Names), Address: addressText(f.conn.Addr),
		})
	})
	if out.State.LetsGo() {
		return out, !s.settles(f, q.Revision)
	}
	if out.Changed {
		return out, true
	}
	f.Update(func(i *relay.Info) { i.Waits = false })
	return out, false
}

// settles ends a flow's wait with a person's consent, "" where none is wanted, unless the
// policy is another by now than that of its verdict. What changes from here on, the recheck
// sees.
func (s *service) settles(f *flow, consent string) (done bool) {
	f.Update(func(i *relay.Info) {
		if done = s.set.Load().Revision() == f.revision || weak.On(weak.NetAskStale); done {
			i.Waits, i.Consent = false, consent
		}
	})
	return done
}

func (s *service) askRefused(f *flow, out approval.Outcome) {
	why := proxy.AskRefusal(f.question(), out)
	s.refused(f.protocol, f.conn, policy.Verdict{Code: policy.Code(why.Code), Rule: why.Rule, Reason: why.Reason})
}

// question is what a person is asked about a flow.
func (f *flow) question() approval.Question {
	q := approval.Question{
		Kind: approval.Connection, Rule: f.verdict.Rule, Revision: f.revision, Protocol: f.protocol,
		Host: f.verdict.Name, Port: f.conn.Addr.Port(),
	}
	if f.verdict.ByAddress || q.Host == "" {
		q.Address = f.conn.Addr.Addr().Unmap().String()
	}
	q.Host = cmp.Or(q.Host, q.Address)
	return q
}
