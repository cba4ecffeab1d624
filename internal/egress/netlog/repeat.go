package netlog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What bounds refusals: an agent that repeats one, or makes up many, can't
// fill the space with them.
const (
	window  = time.Second
	perCode = 50 // refusals with one code that are written down in a window, like ones counted as one
)

// Codes of records that stand for others.
const (
	// CodeNotShown: Count refusals, in one second, beyond those written down.
	CodeNotShown = "refusals_not_shown"
	// CodeLost: Count records that could not be written.
	CodeLost = "records_lost"
)

// key is what like refusals have in common.
type key struct {
	code, rule, protocol, host, address, method, path string
}

// repeats are the refusals of one window.
type repeats struct {
	begun time.Time
	like  map[key]*Record // the last of each, Count those after the first
	written,
	hidden map[string]int // by code
}

// admit reports whether a refusal is to be written down by itself. Otherwise
// it was counted.
func (p *repeats) admit(r *Record) bool {
	k := key{r.Code, r.Rule, r.Protocol, r.Host, r.Address, r.Method, r.Path}
	if last := p.like[k]; last != nil {
		again := *r
		again.Count = last.Count + max(r.Count, 1)
		again.Sent += last.Sent
		again.Received += last.Received
		*last = again
		return false
	}
	if p.like == nil {
		p.like = make(map[key]*Record)
		p.written = make(map[string]int)
		p.hidden = make(map[string]int)
	}
	if p.written[r.Code] >= perCode {
		p.hidden[r.Code] += max(r.Count, 1)
		return false
	}
	p.written[r.Code]++
	p.like[k] = &Record{} // what follows is counted from here
	return true
}

// over reports whether the window has ended, and its counts are to be taken.
func (p *repeats) over(now time.Time) bool {
	d := now.Sub(p.begun)
	return d >= window || d < 0
}

// counting reports whether there is something to be written when it ends.
func (p *repeats) counting() bool {
	if len(p.hidden) > 0 {
		return true
	}
	for _, r := range p.like {
		if r.Count > 0 {
			return true
		}
	}
	return false
}

// take returns the records that stand for what was counted, and begins a new
// window.
func (p *repeats) take(now time.Time) []*Record {
	var out []*Record
	for _, r := range p.like {
		if r.Count > 0 {
			out = append(out, r)
		}
	}
	for code, n := range p.hidden {
		out = append(out, &Record{
			Time: now, Verdict: Deny, Code: CodeNotShown, Count: n,
			Reason: fmt.Sprintf("%d more refusals with the code %s, in one second, are not written down", n, code),
		})
	}
	slices.SortFunc(out, func(a, b *Record) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Reason, b.Reason))
	})
	*p = repeats{begun: now}
	return out
}
