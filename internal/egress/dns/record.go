package dns

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// record makes the record of a question.
func (s *Server) record(name string, qtype uint16, out outcome, began time.Time) {
	now := s.opts.Now()
	r := netlog.Record{
		Time: now, Verdict: netlog.Allow, Rule: out.verdict.Rule, Reason: out.verdict.Reason,
		Protocol: "dns", Host: name[:min(len(name), maxHost)], Method: typeName(qtype), Duration: now.Sub(began),
	}
	if !out.verdict.Allowed() {
		r.Verdict, r.Code = netlog.Deny, string(out.verdict.Code)
	} else if out.err == ErrUpstream {
		r.Code = string(CodeUpstream)
	}
	r.Result = result(out)
	s.opts.Record(r)
}

// Bounds of what a record says.
const (
	maxHost   = 255 // of what may be no name at all, and is then escaped
	maxResult = 512
)

// result is "NOERROR", the names on the way and the addresses.
func result(out outcome) string {
	var b strings.Builder
	b.WriteString(rcodeName(out.rcode))
	for _, n := range out.chain {
		b.WriteString(" " + n)
	}
	for _, a := range out.addrs {
		if b.Len() > maxResult-50 {
			b.WriteString(" ...")
			break
		}
		b.WriteString(" " + a.String())
	}
	return b.String()[:min(b.Len(), maxResult)]
}

// tallies count what would flood the records: each kind has one record at its
// first, and then one for all of a while.
type tallies struct {
	mu sync.Mutex
	of map[policy.Code]*tally
}

type tally struct {
	verdict policy.Verdict
	name    string // of the last
	count   int    // not yet in a record
	last    time.Time
}

// count counts a question that gets no record of its own. name is what it was
// about, where that is known.
func (s *Server) count(v policy.Verdict, name string) {
	s.tallies.mu.Lock()
	t, ok := s.tallies.of[v.Code]
	if !ok {
		if s.tallies.of == nil {
			s.tallies.of = map[policy.Code]*tally{}
		}
		t = &tally{}
		s.tallies.of[v.Code] = t
	}
	t.verdict, t.name = v, name
	t.count++
	s.tallies.mu.Unlock()
	s.countOut(false)
}

// countOut makes records of what was counted: of all, or of what is due.
func (s *Server) countOut(all bool) {
	now := s.opts.Now()
	var due []netlog.Record
	s.tallies.mu.Lock()
	for _, t := range s.tallies.of {
		if t.count > 0 && (all || now.Sub(t.last) >= s.times.tally) {
			due = append(due, netlog.Record{
				Time: now, Verdict: netlog.Deny, Code: string(t.verdict.Code), Reason: t.verdict.Reason,
				Protocol: "dns", Host: t.name, Count: t.count,
			})
			t.count, t.last = 0, now
		}
	}
	s.tallies.mu.Unlock()
	for _, r := range due {
		s.opts.Record(r)
	}
}

// What the resolver refuses for, beside the codes of policy.
const (
	CodeMalformed policy.Code = "bad_request"     // not a question that can be answered
	CodeType      policy.Code = "type_closed"     // a type that the policy does not name
	CodeShape     policy.Code = "name_suspicious" // shaped as if it carried data
	CodeLimit     policy.Code = "limit_reached"   // more questions than agreed
	CodeUpstream  policy.Code = "upstream_failed" // nobody outside answered
)

// What Resolve returns where nothing was refused and there is no address.
var (
	ErrNoName   = errors.New("no such name")
	ErrNoData   = errors.New("the name has no address")
	ErrUpstream = errors.New("the name could not be resolved")
)

// refuse is a verdict of the resolver's own.
func refuse(code policy.Code, rule, reason string) policy.Verdict {
	return policy.Verdict{Mode: policy.ModeRefuse, Code: code, Rule: rule, Reason: reason}
}

// hinted is a verdict that says what would allow it.
func hinted(v policy.Verdict, hint string) policy.Verdict {
	v.Hint = hint
	return v
}
