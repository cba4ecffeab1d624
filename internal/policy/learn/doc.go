// Package learn derives from the record of a sandbox the least policy under which it
// would have been let do the same, and proves that by replaying the record against it.
// It is pure: records in, a policy and its text out.
//
// What it reads was chosen by a hostile program: names, methods and paths. All is
// bounded; what goes into expressions is quoted and what goes into the text escaped, and
// the text is read again and compared with what it should say. It blesses nothing that was
// refused, and claims no proof where the record is not whole.
package learn

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Options say what a record was made under, and what is wanted.
type Options struct {
	// Base is the policy that the sandbox had, nil where that is not known. What its
	// rules ask for, secrets among it, the rules that are learned from them ask for too.
	Base *policy.Policy
	// Secrets are those that the sandbox was given.
	Secrets []string
	// Presets takes a preset wherever one covers all that was seen at its hosts, and not
	// only where that opens nothing more.
	Presets bool
	// Open is how many connections were open when the record was read: what they would
	// have been recorded as is not known.
	Open int
}

// Learned is a policy with what is to be said about it.
type Learned struct {
	Policy policy.Policy
	// Warnings are for the one who reads it before it is used.
	Warnings []string

	records []api.NetRecord
	open    int
	secrets []string
	about   map[string][]string // comments, by a rule's ID
	within  map[string][]string // by ID and the number of a match: "npm/0"
	presets map[string]string   // what each covers, by its name
	unsaid  []string            // comments at the end
	from    time.Time
	to      time.Time
}

// rules of a record that stand for no rule of the policy.
const defaultRule = "default"

// From derives a policy from records, which are in order.
func From(records []api.NetRecord, o Options) (*Learned, error) {
	records = ended(records)
	l := &Learned{
		records: records, open: o.Open, secrets: o.Secrets, about: map[string][]string{}, within: map[string][]string{}, presets: map[string]string{},
	}
	if len(records) > 0 {
		l.from, l.to = records[0].Time, records[len(records)-1].Time
	}
	base := policy.Policy{}
	if o.Base != nil {
		set, err := policy.Compile(*o.Base, o.Secrets)
		if err != nil {
			return nil, err
		}
		base = set.Policy()
		l.Policy.DNS = policy.Clone(o.Base).DNS // without what Compile fills in
	}
	found, err := gather(records, base.Rules)
	if err != nil {
		return nil, err
	}
	l.Policy.Version = policy.Version
	l.Policy.Services = services(records)
	found = l.takePresets(found, o.Presets)
	if err := l.derive(found); err != nil {
		return nil, err
	}
	l.keepDenials(base.Rules)
	if n := len(l.Policy.Rules); n > policy.MaxRules {
		return nil, fmt.Errorf("the record asks for %d rules: %d are the most that a policy has", n, policy.MaxRules)
	}
	l.leftOut(found, base.Rules)
	if _, err := policy.Compile(l.Policy, o.Secrets); err != nil {
		return nil, fmt.Errorf("what was learned is no policy: %w", err)
	}
	return l, nil
}

// keepDenials keeps what the user's rules deny: what was learned may be wider than what
// was seen.
func (l *Learned) keepDenials(base []policy.Rule) {
	for _, r := range base {
		if r.Action == policy.ActionDeny {
			r.ID = l.unused(r.ID)
			l.Policy.Rules = append(l.Policy.Rules, r)
			l.about[r.ID] = []string{"yours, as it was"}
		}
	}
}

// target is what one rule is about: what was reached by one rule of the base, at one
// host or address and one port, in one way.
type target struct {
	rule     string // of the base; "" for its default
	host     string // "" where it is an address
	addr     netip.Addr
	port     uint16
	protocol policy.Protocol
}

func (t target) compare(o target) int {
	return cmp.Or(
		cmp.Compare(t.rule, o.rule), cmp.Compare(t.host, o.host), t.addr.Compare(o.addr),
		cmp.Compare(t.port, o.port), cmp.Compare(t.protocol, o.protocol))
}

// name is the target's host for people.
func (t target) name() string {
	if t.host != "" {
		return t.host
	}
	return t.addr.String()
}

// seen is what a record says about one target.
type seen struct {
	target
	from    *policy.Rule // of the base; nil for its default
	first   time.Time
	count   int
	sent    int64
	opened  []string // addresses that the base's rule names
	methods map[string]*method
	records []int // their places
}

// method is what was asked for with one method.
type method struct {
	paths   map[string]bool // clean
	unclear int             // requests whose path no rule can say
	count   int
	sent    int64
}

// gather sorts what was allowed by its targets, in the order in which rules will have them.
func gather(records []api.NetRecord, base []policy.Rule) ([]*seen, error) {
	byID := map[string]*policy.Rule{}
	for i := range base {
		byID[base[i].ID] = &base[i]
	}
	all := map[target]*seen{}
	for i := range records {
		r := &records[i]
		t, ok := targetOf(r)
		if !ok {
			continue
		}
		if byID[t.rule] == nil {
			if len(r.Secrets) > 0 {
				return nil, fmt.Errorf("record %d: rule %s put a secret in, and is not known: give the policy that the sandbox had, with --policy and --allow", r.Seq, policy.Quoted(t.rule))
			}
			t.rule = ""
		}
		s := all[t]
		if s == nil {
			s = &seen{target: t, from: byID[t.rule], first: r.Time, methods: map[string]*method{}}
			all[t] = s
		}
		s.add(i, r)
	}
	var out []*seen
	for _, s := range all {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *seen) int { return a.compare(b.target) })
	return out, nil
}

// targetOf is what a record reached. ok is false where that is nothing that a rule is to
// allow: it was refused, it was a question, or it was for the gate itself.
func targetOf(r *api.NetRecord) (t target, ok bool) {
	if r.Verdict != allow || r.Protocol == "dns" || r.Host == gateHost {
		return t, false
	}
	to, err := netip.ParseAddrPort(r.Address)
	if err != nil {
		return t, false
	}
	t.rule, t.port = r.Rule, to.Port()
	if t.rule == defaultRule {
		t.rule = ""
	}
	if r.Host != "" {
		name, _, err := policy.CleanHost(r.Host)
		if err != nil {
			return t, false
		}
		t.host = name
	}
	if t.host == "" {
		t.addr = to.Addr().Unmap()
	}
	switch r.Protocol {
	case "http", "https":
		t.protocol = policy.ProtocolHTTP
	case "tls":
		t.protocol = policy.ProtocolTLS
		if t.host == "" {
			t.protocol = policy.ProtocolTCP // no rule for TLS is about what asks for no name
		}
	case "udp":
		t.protocol = policy.ProtocolUDP
	default:
		t.protocol = policy.ProtocolTCP
	}
	return t, true
}

func (s *seen) add(i int, r *api.NetRecord) {
	s.count++
	s.sent += r.Sent
	s.records = append(s.records, i)
	if to, err := netip.ParseAddrPort(r.Address); err == nil && s.from != nil && names(s.from, to.Addr()) {
		if a := to.Addr().Unmap().String(); !slices.Contains(s.opened, a) {
			s.opened = append(s.opened, a)
		}
	}
	if s.protocol != policy.ProtocolHTTP {
		return
	}
	m := s.methods[r.Method]
	if m == nil {
		m = &method{paths: map[string]bool{}}
		s.methods[r.Method] = m
	}
	m.count++
	m.sent += r.Sent
	if path, problem := policy.CleanPath(urlOf(r.Path)); problem == "" && !cut(r) {
		m.paths[path] = true
	} else {
		m.unclear++
	}
}

// names reports whether a rule has an address by number.
func names(r *policy.Rule, a netip.Addr) bool {
	return slices.ContainsFunc(r.Addresses, func(s string) bool {
		p, problem, _ := policy.ParsePrefix(s)
		return problem == "" && p.Contains(a.Unmap())
	})
}

// sayable reports whether a rule can name a method: it compares in upper case.
func sayable(method string) bool {
	const most = 40
	return method != "" && len(method) <= most && strings.ToUpper(method) == method && strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
