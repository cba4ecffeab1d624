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
// is asked. It has recorded why not.
func (s *service) askPerson(ctx context.Context, f *flow) bool {
	if !f.verdict.Ask {
		return true
	}
	q := f.question()
	f.Update(func(i *relay.Info) { i.Waits = true })
	out := s.asks.Ask(ctx, q, func() {
		s.record(netlog.Record{
			Time: time.Now(), Verdict: netlog.Ask, Rule: q.Rule, Reason: "a person is asked",
			Protocol: f.protocol, Host: first(f.conn.Names), Address: addressText(f.conn.Addr),
		})
	})
	f.Update(func(i *relay.Info) {
		if i.Waits = false; out.State.LetsGo() {
			i.Consent = q.Revision
		}
	})
	// What changes from here on, the recheck sees.
	if out.State.LetsGo() && s.set.Load().Revision() != q.Revision && !weak.On(weak.NetAskStale) {
		out.State = approval.Voided
	}
	if out.State.LetsGo() {
		return true
	}
	s.askRefused(f, out)
	return false
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
