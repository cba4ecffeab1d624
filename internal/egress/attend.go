package egress

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Line is how one gate's questions reach who shows them to people.
type Line interface {
	// Seen is told what the gate holds, again and again.
	Seen(approval.Snapshot)
	// Lost is called once the gate is not heard of any more.
	Lost()
}

// askedPause is between two looks at what a gate asks: what floods it is seen in
// parts.
const askedPause = 100 * time.Millisecond

// attend looks at what a gate asks, for as long as its policy has something asked,
// until ctx ends.
func (g *Gates) attend(ctx context.Context, one *gate) {
	if g.opts.Attend == nil || one.await(ctx) != nil {
		return
	}
	var line Line
	var version uint64
	for ctx.Err() == nil {
		sb, asks := one.asks()
		if !asks && line == nil {
			waitFor(ctx, one.asking, 0)
			continue
		}
		if line == nil {
			line = g.opts.Attend(sb)
			defer line.Lost()
		}
		q := url.Values{"session": {g.opts.Session}, "after": {strconv.FormatUint(version, 10)}}
		var seen approval.Snapshot
		if err := one.do(ctx, http.MethodGet, pathAsked+"?"+q.Encode(), nil, &seen); err != nil {
			waitFor(ctx, nil, wantsPause)
			continue
		}
		version = seen.Version
		line.Seen(seen)
		waitFor(ctx, nil, askedPause)
	}
}

// waitFor waits for what happens, or for a time; 0: for any.
func waitFor(ctx context.Context, happens <-chan struct{}, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ctx.Done():
	case <-happens:
	case <-after:
	}
}

// asks is the sandbox, and whether its policy has anything asked.
func (one *gate) asks() (*sandbox.Sandbox, bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	p := one.sb.Spec.Policy
	return one.sb, p != nil && slices.ContainsFunc(p.Rules, func(r policy.Rule) bool {
		return r.Action == policy.ActionAsk || slices.ContainsFunc(r.Secrets, func(s policy.Secret) bool { return s.Ask })
	})
}

// policyChanged wakes who attends. The lock is held.
func (one *gate) policyChanged() {
	select {
	case one.asking <- struct{}{}:
	default:
	}
}

// Answer tells a gate what a person has decided. An error, and nothing was let go.
func (g *Gates) Answer(ctx context.Context, id string, a approval.Answer) error {
	one, err := g.known(id)
	if err != nil {
		return err
	}
	return one.put(ctx, pathAnswer, a)
}
