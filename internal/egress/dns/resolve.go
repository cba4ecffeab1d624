package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Resolve returns the addresses of a name that a request names, those of IPv4
// first: under the same policy, limits and pins as what a guest asks over the
// link. A refusal is a verdict and no error, and comes with no address; so a
// gate that gets a request at its sink learns here why the name led there.
//
// Errors are, or wrap, ErrNoName, ErrNoData and ErrUpstream; the verdict is
// then the policy's. What was found without asking an upstream leaves no
// record.
func (s *Server) Resolve(ctx context.Context, name string) ([]netip.Addr, policy.Verdict, error) {
	host, ok := canonical(name)
	if !ok {
		return nil, malformedName(), nil
	}
	ctx6, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var four, six outcome
	var wg sync.WaitGroup
	wg.Go(func() { six = s.resolve(ctx6, host, wire.TypeAAAA) })
	four = s.resolve(ctx, host, wire.TypeA)
	if len(four.addrs) > 0 {
		defer time.AfterFunc(patience, giveUp).Stop()
	}
	wg.Wait()
	return merge(four, six)
}

// patience is how long addresses of IPv4 wait for those of IPv6: some servers
// never answer for the latter.
const patience = 50 * time.Millisecond

// resolve decides one question of Resolve, and records it if it went outside.
func (s *Server) resolve(ctx context.Context, name string, qtype uint16) outcome {
	began := s.opts.Now()
	out := s.decide(ctx, name, qtype, false)
	if out.asked {
		s.record(name, qtype, out, began)
	}
	return out
}

func malformedName() policy.Verdict {
	return refuse(policy.CodeBadDestination, "", "no host can have this name: letters, digits, - and _, in labels of at most 63")
}

// merge makes one result of both families': what one has counts, and then
// the refusals.
func merge(four, six outcome) ([]netip.Addr, policy.Verdict, error) {
	var addrs []netip.Addr
	for _, o := range [...]outcome{four, six} {
		if o.verdict.Allowed() {
			addrs = append(addrs, o.addrs...)
		}
	}
	switch {
	case len(addrs) > 0 && four.verdict.Allowed():
		return addrs, four.verdict, nil
	case len(addrs) > 0:
		return addrs, six.verdict, nil
	case !four.verdict.Allowed():
		return nil, four.verdict, nil
	case !six.verdict.Allowed():
		return nil, six.verdict, nil
	case four.err == ErrUpstream || six.err != ErrUpstream:
		return nil, four.verdict, four.err
	}
	return nil, six.verdict, six.err
}
