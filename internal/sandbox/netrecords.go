package sandbox

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

// NetRecords has the records that no gate has: what an instance without a link asked
// for, and what became of sandboxes that ended.
type NetRecords interface {
	// Asked tells which names an instance without a link was asked for in vain, in the
	// order of the first time. It is the guest's word, bounded and escaped.
	Asked(ctx context.Context, id string, dial func(context.Context) (net.Conn, error)) ([]netlog.Record, error)
	// Keep keeps the records of a sandbox, in the place of those that it kept before.
	// What is kept is bounded for each owner, in number and in time.
	Keep(ctx context.Context, n EndedNet) error
	// Kept returns what was kept of owner's sandbox with that ID or, if there were
	// several, of the last with that name. anyone: an ID may be of another owner's.
	// It fails with NotFound.
	Kept(ctx context.Context, owner, ref string, anyone bool) ([]netlog.Record, error)
}

// EndedNet is what a sandbox tried to reach until it ended.
type EndedNet struct {
	ID, Name, Owner string
	Records         []netlog.Record
}

const (
	// askLimit bounds how long an agent is asked for names.
	askLimit = 5 * time.Second
	// askAgain is how often a follower's sandbox is asked.
	askAgain = 2 * time.Second
	// maxEnded is how many records are kept of a sandbox that ended: the last.
	maxEnded = 1000
)

// asked asks the agent of an instance without a link.
func (g *gates) asked(ctx context.Context, b Backend, sb *Sandbox) ([]netlog.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return g.records.Asked(ctx, sb.ID, func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, sb.ID, GuestPort) })
}

// keepAsked keeps what sb, which is about to end, asked for without a network. The
// instance may have died before: then nothing is known.
func (g *gates) keepAsked(ctx context.Context, b Backend, sb *Sandbox) {
	if g.records == nil || sb.Spec.Networked() {
		return
	}
	records, err := g.asked(ctx, b, sb)
	if err != nil || len(records) == 0 {
		return
	}
	g.keep(ctx, sb, records)
}

// keepLog keeps what the gate of an ephemeral sandbox has recorded, which is about to
// go with it.
func (g *gates) keepLog(ctx context.Context, sb *Sandbox) {
	if g.records == nil || g.gate == nil || !sb.Spec.Networked() || !sb.Spec.Ephemeral {
		return
	}
	var last []netlog.Record
	err := g.gate.Log(ctx, sb.ID, NetLogOptions{}, func(r netlog.Record) error {
		if last = append(last, r); len(last) > 2*maxEnded {
			last = slices.Delete(last, 0, maxEnded)
		}
		return nil
	})
	if err != nil {
		g.log.Warn("read the records of a sandbox that ends", "id", sb.ID, "error", err)
	}
	if len(last) > 0 {
		g.keep(ctx, sb, last[max(0, len(last)-maxEnded):])
	}
}

func (g *gates) keep(ctx context.Context, sb *Sandbox, records []netlog.Record) {
	err := g.records.Keep(ctx, EndedNet{ID: sb.ID, Name: sb.Spec.Name, Owner: sb.Owner, Records: records})
	if err != nil {
		g.log.Warn("keep the records of a sandbox that ends", "id", sb.ID, "error", err)
	}
}

// recordsOf hands the records of a sandbox that is there to yield.
func (m *Manager) recordsOf(ctx context.Context, sb *Sandbox, o NetLogOptions, yield func(netlog.Record) error) error {
	g := m.gates
	switch {
	case sb.Spec.Networked() && g.gate != nil:
		return g.gate.Log(ctx, sb.ID, o, func(r netlog.Record) error {
			if r.Time.Before(o.Since) {
				return nil
			}
			return yield(r)
		})
	case sb.Spec.Networked() || g.records == nil:
		return nil
	}
	return m.followAsked(ctx, sb, o, yield)
}

// followAsked yields what an instance without a link was asked for, and with Follow
// asks it again until the sandbox no longer runs: the agent's record is no stream.
func (m *Manager) followAsked(ctx context.Context, sb *Sandbox, o NetLogOptions, yield func(netlog.Record) error) error {
	seen := func(r netlog.Record) error {
		o.After = max(o.After, r.Seq)
		return yield(r)
	}
	for {
		records, err := m.askedOf(ctx, sb)
		if err == nil {
			err = give(records, o, seen)
		} else if o.Follow && ctx.Err() == nil && sb.State == StateRunning {
			err = nil // it is about to end, or too busy to answer
		} else {
			err = failure(err, sb.Spec.Name, "ask what it asked for")
		}
		if err != nil || !o.Follow || sb.State != StateRunning {
			return err
		}
		select {
		case <-m.lives.clock.After(askAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_, now, err := m.registry.find(Caller{Owner: sb.Owner}, sb.ID)
		switch {
		case err != nil: // it is gone, and what it asked for may be kept
			sb = sb.Clone()
			sb.State = StateStopped
		case now.Starts != sb.Starts:
			return nil
		default:
			sb = now
		}
	}
}

// askedOf are the records of a sandbox without a network: the agent's, or those kept
// when it ended.
func (m *Manager) askedOf(ctx context.Context, sb *Sandbox) ([]netlog.Record, error) {
	if sb.State == StateRunning {
		b, err := m.lives.backends.of(sb)
		if err != nil {
			return nil, err
		}
		return m.gates.asked(ctx, b, sb)
	}
	records, err := m.gates.records.Kept(ctx, sb.Owner, sb.ID, false)
	if KindOf(err) == NotFound {
		err = nil
	}
	return records, err
}

// logOfEnded does so for one that is no longer there.
func (m *Manager) logOfEnded(ctx context.Context, c Caller, ref string, o NetLogOptions, yield func(netlog.Record) error) error {
	if m.gates.records == nil {
		return unknown(ref)
	}
	records, err := m.gates.records.Kept(ctx, c.Owner, ref, c.Admin)
	if KindOf(err) == NotFound {
		return unknown(ref)
	}
	if err != nil {
		return failure(err, refText(ref), "read its records")
	}
	return give(records, o, yield)
}

func give(records []netlog.Record, o NetLogOptions, yield func(netlog.Record) error) error {
	for _, r := range records {
		if r.Seq > o.After && !r.Time.Before(o.Since) && (!o.Denied || r.Verdict == netlog.Deny) {
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}
