package learn

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Proof is what came of replaying a record against the policy that was learned from it.
type Proof struct {
	Replayed int // what was allowed, and was asked for again: names, connections and requests
	Passed   int
	Refused  int // what was refused, and is refused still
	LeftOut  int // questions for names that were never connected to
	// Problems say what failed, or could not be tried; bounded.
	Problems []string
	more     int
}

// OK reports whether the record is whole, and all of it went as it should.
func (p *Proof) OK() bool { return len(p.Problems) == 0 && p.Passed == p.Replayed }

// Text says it in a line.
func (p *Proof) Text() string {
	if p.OK() {
		return fmt.Sprintf("replayed %d of %d requests: all pass", p.Passed, p.Replayed)
	}
	text := fmt.Sprintf("replayed %d of %d requests: not proven: %s", p.Passed, p.Replayed, strings.Join(p.Problems, "; "))
	if p.more > 0 {
		text += fmt.Sprintf("; and %d more", p.more)
	}
	return text
}

const maxProblems = 5

func (p *Proof) problem(format string, args ...any) {
	if len(p.Problems) == maxProblems {
		p.more++
		return
	}
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// stranger is a host that nobody asked for.
const stranger = "added-by-hand.example"

// Prove replays the record against the policy, as it was parsed from its text: what was
// allowed must be allowed, with the same secrets, what was refused must be refused, and
// so must be a host that the record does not have. Fields and parameters, which no record
// has, are taken to be what rules ask for.
func (l *Learned) Prove(p policy.Policy) (*Proof, error) {
	set, err := policy.Compile(unconditional(p), l.secrets)
	if err != nil {
		return nil, err
	}
	proof := &Proof{}
	if why := Missing(l.records); why != "" {
		proof.problem("%s", why)
	}
	if l.open > 0 {
		proof.problem("%s did not end with the command, and may be of any kind", counted(l.open, "connection"))
	}
	at, let := l.namesAt(set), map[string]bool{}
	for i := range l.records {
		if r := &l.records[i]; r.Verdict == allow {
			let[what(r)] = true
		}
	}
	reached := l.reached()
	for i := range l.records {
		r := &l.records[i]
		switch {
		case r.Verdict == deny && r.Code == codeCut && r.Rule == overRule:
			proof.problem("record %d, a request to %s, was under way when the command ended", r.Seq, policy.Quoted(r.Host))
		case r.Verdict == deny && let[what(r)]: // the policy was changed meanwhile
		case r.Verdict == deny:
			proof.again(set, r, at)
		case r.Protocol == "dns" && !reached[cleaned(r.Host)]:
			proof.LeftOut++
		case r.Protocol == protocolService:
			proof.call(set, r)
		case r.Host == gateHost:
		default:
			proof.replay(set, r, at)
		}
	}
	proof.shut(set, reached)
	return proof, nil
}

// call replays a call of a service.
func (p *Proof) call(set *policy.Set, r *api.NetRecord) {
	p.Replayed++
	if v := set.Service(serviceOf(r)); !v.Allowed() {
		p.problem("record %d, %s to a service: %s", r.Seq, policy.Quoted(r.Method), v.Reason)
		return
	}
	p.Passed++
}

func (p *Proof) replay(set *policy.Set, r *api.NetRecord, at map[netip.Addr][]string) {
	p.Replayed++
	why := unprovable(r)
	if why == "" {
		why = refusal(set, r, at[addressOf(r)])
	}
	if why == "" {
		p.Passed++
		return
	}
	p.problem("record %d, %s %s: %s", r.Seq, policy.Quoted(strings.TrimSpace(r.Method+" "+r.Protocol)), policy.Quoted(r.Host), why)
}

// what is the same for records of the same.
func what(r *api.NetRecord) string {
	to, _ := netip.ParseAddrPort(r.Address)
	method := r.Method
	if r.Protocol == "dns" {
		method = ""
	}
	return fmt.Sprintf("%s %q %d %q %q", r.Protocol, cleaned(r.Host), to.Port(), method, r.Path)
}

// again looks whether what a rule refused is let through now: it was not, and is not to be
// blessed by what is learned from others. What failed on its way is nothing of the kind.
func (p *Proof) again(set *policy.Set, r *api.NetRecord, at map[netip.Addr][]string) {
	switch policy.Code(r.Code) {
	case policy.CodeNotAllowed, policy.CodeDenied, policy.CodeRequest, policy.CodeClosedAddress:
	default:
		return
	}
	asIf := *r
	asIf.Verdict, asIf.Secrets = allow, nil
	if unprovable(&asIf) != "" || r.Address == "" && r.Protocol != "dns" {
		return
	}
	if refusal(set, &asIf, at[addressOf(r)]) != "" {
		p.Refused++
		return
	}
	p.problem("record %d, %s to %s, was refused (%s), and would be allowed now", r.Seq, policy.Quoted(strings.TrimSpace(r.Method+" "+r.Protocol)), policy.Quoted(r.Host), r.Code)
}

// shut looks whether what was not seen is closed.
func (p *Proof) shut(set *policy.Set, reached map[string]bool) {
	if !reached[stranger] && set.Name(stranger).Allowed() {
		p.problem("a host that was added by hand, %s, would be allowed", stranger)
	}
	rules := set.Policy().Rules
	for a, n := netip.MustParseAddr("11.22.33.44"), 0; n <= policy.MaxRules; a, n = a.Next(), n+1 { // somewhere public
		if slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Action != policy.ActionDeny && names(&r, a) }) {
			continue
		}
		if v := set.Connect(policy.Conn{Addr: netip.AddrPortFrom(a, 443), Names: []string{stranger}}); v.Allowed() {
			p.problem("a connection that was added by hand, to %s, would be allowed by rule %s", a, v.Rule)
		}
		return
	}
}

// refusal says why a policy does not let through again what a record has; "" where it
// does, and in the same way.
func refusal(set *policy.Set, r *api.NetRecord, names []string) string {
	name := cleaned(r.Host)
	if name != "" {
		if v := set.Name(name); !v.Allowed() {
			return v.Reason
		}
	}
	if r.Protocol == "dns" {
		return ""
	}
	to, err := netip.ParseAddrPort(r.Address)
	if err != nil {
		return "it has no address"
	}
	if name != "" && !slices.Contains(names, name) {
		names = append(slices.Clone(names), name)
	}
	conn := policy.Conn{UDP: r.Protocol == "udp", Addr: to, Names: names}
	v := set.Connect(conn)
	if !v.Allowed() {
		return v.Reason
	}
	isTLS, isHTTP := r.Protocol == "tls" || r.Protocol == "https", r.Protocol == "http" || r.Protocol == "https"
	if v.Mode == policy.ModeSniff {
		asked := name
		if r.Protocol == "tcp" {
			asked = ""
		}
		if v = set.Stream(policy.Stream{Conn: conn, Name: asked, TLS: isTLS}); !v.Allowed() {
			return v.Reason
		}
	}
	switch {
	case isHTTP && v.Mode != policy.ModeInspect:
		return "its requests would not be read"
	case !isHTTP && v.Mode != policy.ModeRelay && v.Mode != policy.ModePassthrough:
		return "it would be read, and was not"
	case !isHTTP:
		return ""
	}
	v = set.Request(policy.Request{Addr: to, Name: name, TLS: isTLS, Method: r.Method, URL: urlOf(r.Path), Header: map[string][]string{}})
	if !v.Allowed() {
		return v.Reason
	}
	for _, secret := range r.Secrets {
		if v.Route == nil || !slices.ContainsFunc(v.Route.Secrets, func(s policy.Secret) bool { return s.Name == secret }) {
			return "secret " + policy.Quoted(secret) + " would not be put in"
		}
	}
	return ""
}

// cleaned is a record's host as rules have it; "" for an address, and for what is no name.
func cleaned(host string) string {
	name, _, err := policy.CleanHost(host)
	if err != nil {
		return ""
	}
	return name
}

func addressOf(r *api.NetRecord) netip.Addr {
	to, _ := netip.ParseAddrPort(r.Address)
	return to.Addr().Unmap()
}

// namesAt are the names that the policy would let be resolved, by the addresses that
// they had.
func (l *Learned) namesAt(set *policy.Set) map[netip.Addr][]string {
	const most = 64 // of one address
	at := map[netip.Addr][]string{}
	for i := range l.records {
		r := &l.records[i]
		name := cleaned(r.Host)
		if r.Protocol != "dns" || r.Verdict != allow || name == "" || !set.Name(name).Allowed() {
			continue
		}
		for word := range strings.FieldsSeq(r.Result) {
			a, err := netip.ParseAddr(word)
			if a = a.Unmap(); err == nil && len(at[a]) < most && !slices.Contains(at[a], name) {
				at[a] = append(at[a], name)
			}
		}
	}
	return at
}

// reached are the names that something was let through to.
func (l *Learned) reached() map[string]bool {
	out := map[string]bool{}
	for i := range l.records {
		if t, ok := targetOf(&l.records[i]); ok {
			out[t.host] = true
		}
	}
	return out
}

// unconditional leaves out what matches ask of fields and parameters.
func unconditional(p policy.Policy) policy.Policy {
	p = *policy.Clone(&p)
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Action == policy.ActionDeny {
			continue
		}
		for j := range r.Matches {
			m := &r.Matches[j]
			if m.Headers, m.Query = nil, nil; len(m.Methods)+len(m.Paths) == 0 {
				r.Matches = nil
				break
			}
		}
	}
	return p
}
