package gitgate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
)

const (
	maxReport = 4 << 20          // bytes
	afterTime = 10 * time.Minute // for what upstream does after it has told
	askTime   = time.Minute      // for its refs
)

// forward sends the push upstream: all refs or none, from the values that the agent saw,
// and the objects that were looked at, by their names. Once it has begun to send, it goes on
// though the agent has left: how it ended is told by what upstream says, or by its refs.
func (p *push) forward(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx) // nobody waits for it any more
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), forwardTime, errors.New("upstream takes too long"))
	defer cancel()
	defer context.AfterFunc(p.gate.life, cancel)()
	c, err := p.remote.up.open(ctx, receivePack)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its answer was read
	if err := p.agrees(c.advert()); err != nil {
		return err
	}
	defer p.remote.outdated(context.WithoutCancel(ctx))
	commands := p.commands(c.advert())
	body, size := io.Reader(bytes.NewReader(commands)), int64(len(commands))
	if p.parcel != nil {
		body, size = io.MultiReader(body, p.parcel), size+p.parcel.size
	}
	answer, err := c.call(ctx, body, size)
	if err != nil {
		return p.ended(ctx, err)
	}
	told := p.hear(answer, c.advert().caps["side-band-64k"])
	report, err := p.readReport(told)
	// Upstream runs what it has to after it has told: a connection that ends would end that.
	late := time.AfterFunc(afterTime, cancel)
	_, _ = io.Copy(io.Discard, told)
	_, _ = io.Copy(io.Discard, answer) // in any case: the report is there
	late.Stop()
	if says := c.said(); says != "" {
		p.client.tell(upstreamLines(says)...)
	}
	if err != nil {
		return p.ended(ctx, err)
	}
	return p.outcome(ctx, report)
}

// agrees looks whether upstream is still what was looked at, and can do what is asked.
func (p *push) agrees(a *advert) error {
	if a.format != p.known.format {
		return errors.New("upstream names its objects otherwise than before")
	}
	for _, u := range p.order.updates {
		if a.refs[u.Ref] != u.Old {
			p.deny(u.Ref, "stale info: it has become another one upstream meanwhile: fetch first")
		}
		if u.New == "" && !a.caps["delete-refs"] {
			p.deny(u.Ref, "upstream lets nobody remove refs")
		}
	}
	switch {
	case len(p.refused) > 0:
		return errRefused
	case !a.caps["report-status"]:
		return errors.New("upstream would not say how a push ends: its git is too old")
	case len(p.order.updates) > 1 && !a.caps["atomic"]:
		return denied("upstream can't take several refs as one: push one at a time")
	}
	return nil
}

// commands are what upstream is told to do.
func (p *push) commands(a *advert) (b []byte) {
	caps := "\x00report-status agent=carboy"
	for _, c := range []string{"atomic", "side-band-64k"} {
		if a.caps[c] {
			caps += " " + c
		}
	}
	if a.caps["object-format"] {
		caps += " object-format=" + string(a.format)
	}
	id := func(s string) string {
		if s == "" {
			return none(a.format)
		}
		return s
	}
	for _, u := range p.order.updates {
		b = pktline.Append(b, id(u.Old)+" "+id(u.New)+" "+u.Ref+caps)
		caps = ""
	}
	return pktline.AppendFlush(b)
}

// upstreamLines are what upstream says, as lines for the client.
func upstreamLines(says string) []string {
	lines := strings.Split(words(says), "\n")
	for i := range lines {
		lines[i] = "upstream: " + lines[i]
	}
	return lines
}

// report is what upstream says became of a push.
type report struct {
	unpack string
	done   map[string]bool   // by ref
	failed map[string]string // why, by ref
}

// hear is upstream's report. As it is read, what upstream says for people is passed on.
func (p *push) hear(answer io.Reader, bands bool) io.Reader {
	answer = io.LimitReader(answer, maxReport)
	if !bands {
		return answer
	}
	return &demux{lines: pktline.NewReader(answer), tell: func(text []byte) {
		if s := words(string(text)); s != "" {
			p.client.tell(upstreamLines(s)...)
		}
	}}
}

// readReport reads it.
func (p *push) readReport(answer io.Reader) (*report, error) {
	lines := pktline.NewReader(answer)
	r := &report{done: map[string]bool{}, failed: map[string]string{}}
	for {
		kind, data, err := lines.Next()
		if err != nil {
			return nil, lost(err)
		}
		if kind == pktline.Flush {
			return r, r.check(p.order.updates)
		}
		line := strings.TrimSuffix(string(data), "\n")
		what, rest, _ := strings.Cut(line, " ")
		ref, why, _ := strings.Cut(rest, " ")
		switch {
		case kind == pktline.Data && what == "unpack":
			r.unpack = rest
		case kind == pktline.Data && what == "ok":
			r.done[rest] = true
		case kind == pktline.Data && what == "ng":
			r.failed[ref] = why
		case kind == pktline.Data && what == "ERR":
			return nil, &remoteError{words(rest)}
		default:
			return nil, errors.New("upstream answers otherwise than git does")
		}
	}
}

// check refuses a report that leaves something out.
func (r *report) check(updates []Update) error {
	for _, u := range updates {
		if _, failed := r.failed[u.Ref]; r.done[u.Ref] == failed {
			return errors.New("upstream does not say what became of each ref")
		}
	}
	return nil
}

// outcome is what a report means.
func (p *push) outcome(ctx context.Context, r *report) error {
	done := 0
	for _, u := range p.order.updates {
		if why, failed := r.failed[u.Ref]; failed {
			p.deny(u.Ref, "%s", why)
		} else {
			done++
		}
	}
	switch {
	case len(p.refused) == 0 && r.unpack == "ok":
		return nil
	case done > 0: // it has said that it would not
		return p.ended(ctx, errors.New("upstream says that it did a part of it"))
	case r.unpack != "ok":
		return &remoteError{words(r.unpack)}
	}
	return errors.New("upstream refused it")
}

// ended is the error of a push whose end upstream did not tell: its refs do.
func (p *push) ended(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime) // the push's may be over
	defer cancel()
	defer context.AfterFunc(p.gate.life, cancel)()
	c, err := p.remote.up.open(ctx, receivePack)
	if err != nil {
		return fmt.Errorf("%w; whether it was pushed is not known, for upstream can't be asked: git fetch will tell", failed)
	}
	defer func() { _ = c.Close() }() // nothing is wanted of it
	before, after, other := 0, 0, 0
	for _, u := range p.order.updates {
		switch c.advert().refs[u.Ref] {
		case u.New:
			after++
		case u.Old:
			before++
		default:
			other++
		}
	}
	switch n := len(p.order.updates); {
	case after == n:
		p.client.tell("git gate: " + reason(p.remote.public(failed)) + "; but upstream's refs are as they were to be: it was pushed")
		p.refused = map[string]string{}
		return nil
	case before == n:
		return fmt.Errorf("%w; upstream's refs are as before", failed)
	default:
		return fmt.Errorf("%w; of %d refs upstream has %d as asked, %d as before and %d as neither", failed, n, after, before, other)
	}
}
