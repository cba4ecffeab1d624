package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Set is a policy that is ready to decide. It never changes; its methods may
// be called from many goroutines at once.
type Set struct {
	policy Policy
	public bool
	reads  bool // what the default lets through is read, where it is the web's
	rules  []*rule
	exact  map[string][]*rule // by host
	wild   map[string][]*rule // by what follows "*."
	ranges []ranged           // by address
	own    func(netip.Addr) bool

	revision    string
	askTimeout  time.Duration
	expressions int // their size
}

// Closing is s with the addresses closed that own reports, of the machine that
// its connections are made from: a rule opens one by naming it alone, and not
// by a range around it.
func (s *Set) Closing(own func(netip.Addr) bool) *Set {
	c := *s
	c.own = own
	return &c
}

// ranged is a rule's claim to a range of addresses.
type ranged struct {
	prefix netip.Prefix
	*rule
}

// add files a rule under its destinations.
func (s *Set) add(r *rule) {
	s.rules = append(s.rules, r)
	for _, h := range r.Hosts {
		if suffix, wild := strings.CutPrefix(h, "*."); wild {
			s.wild[suffix] = append(s.wild[suffix], r)
		} else {
			s.exact[h] = append(s.exact[h], r)
		}
	}
	for _, p := range r.prefixes {
		s.ranges = append(s.ranges, ranged{p, r})
	}
}

// Policy is what was compiled: names and types in the form in which they are
// compared, IDs and defaults filled in but for ports, and presets as the rules
// that they are. The caller may change it.
func (s *Set) Policy() Policy { return *Clone(&s.policy) }

// Secrets names the secrets that rules put in, each once and in order.
func (s *Set) Secrets() []string {
	var names []string
	for _, r := range s.rules {
		if r.route != nil {
			for _, secret := range r.route.Secrets {
				names = append(names, secret.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// claim is a rule that is about a destination, and how closely.
type claim struct {
	*rule
	closeness int
	rank      rank // of the request, where there is one
}

// How close a claim is: a host by its whole name, then by the longest
// wildcard, then by the longest range.
const (
	closeExact = 2000
	closeWild  = 1000 // and the length of what follows "*."
	closeRange = 1    // and the bits of the range
)

// compare orders claims of rules that allow, before those that ask: nobody is
// asked about what is allowed. It is never 0 for two rules: where nothing else
// tells them apart their places do.
func (c claim) compare(o claim) int {
	return cmp.Or(
		compareBool(!c.ask, !o.ask),
		cmp.Compare(c.closeness, o.closeness),
		compareBool(c.named, o.named),
		c.rank.compare(o.rank),
		cmp.Compare(carriage(o.Protocol), carriage(c.Protocol)),
		compareBool(!c.route.AsksForSecret(), !o.route.AsksForSecret()),
		cmp.Compare(o.place, c.place))
}

// carriage orders protocols by how much of them is read, most first.
func carriage(p Protocol) int {
	return slices.Index([]Protocol{ProtocolHTTP, ProtocolTLS, ProtocolTCP, ProtocolUDP}, p)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// aboutName calls yield with every rule that has the clean name among its
// hosts.
func (s *Set) aboutName(name string, yield func(r *rule, closeness int)) {
	if name == "" {
		return
	}
	for _, r := range s.exact[name] {
		yield(r, closeExact)
	}
	for suffix := name; ; {
		_, rest, more := strings.Cut(suffix, ".")
		if !more {
			return
		}
		suffix = rest
		for _, r := range s.wild[suffix] {
			yield(r, closeWild+len(suffix))
		}
	}
}

// dest is where a connection goes.
type dest struct {
	raw      netip.Addr // as it was dialled, unmapped
	addr     netip.Addr // canonical
	embedded []netip.Addr
	port     uint16
	udp      bool
	block    block
	closed   bool
	// unknown: a name is asked about before it was resolved, and taken to
	// have a public address.
	unknown bool
}

func (s *Set) newDest(a netip.Addr, port uint16, udp bool) dest {
	d := dest{raw: a.Unmap(), addr: canonical(a), port: port, udp: udp}
	d.embedded = embedded(d.addr)
	d.block, d.closed = closedBlock(d.addr)
	if !d.block.never && s.own != nil && s.own(d.addr) {
		d.block, d.closed = block{prefix: netip.PrefixFrom(d.addr, d.addr.BitLen()), what: "this machine's own"}, true
	}
	return d
}

// in reports whether a denying range holds the address in any of its forms.
func (d *dest) in(p netip.Prefix) bool {
	return p.Contains(d.addr) || p.Contains(d.raw) || slices.ContainsFunc(d.embedded, p.Contains)
}

// about calls yield with every rule that is about the name, unless that is
// "", or about the address. A rule that denies by range is about an address
// in any of its forms. A rule that puts a secret in is about no address.
func (s *Set) about(name string, d *dest, yield func(r *rule, closeness int)) {
	s.aboutName(name, yield)
	if d.unknown {
		return
	}
	for _, r := range s.ranges {
		if r.deny && d.in(r.prefix) || !r.deny && !r.secret && r.prefix.Contains(d.addr) {
			yield(r.rule, closeRange+r.prefix.Bits())
		}
	}
}

// applies reports whether a rule is about this port and transport.
func (r *rule) applies(d *dest) bool {
	if r.ports != nil && !r.ports.has(d.port) {
		return false
	}
	if r.Protocol == "" {
		return true
	}
	return (r.Protocol == ProtocolUDP) == d.udp
}

// denial finds the first rule that denies a whole destination.
func (s *Set) denial(name string, d *dest) (found *rule) {
	s.about(name, d, func(r *rule, _ int) {
		if r.deny && len(r.matches) == 0 && r.applies(d) && (found == nil || r.place < found.place) {
			found = r
		}
	})
	return found
}

// reader finds the first rule that denies some requests, so that what goes
// there must be read.
func (s *Set) reader(name string, d *dest) (found *rule) {
	s.about(name, d, func(r *rule, _ int) {
		if r.deny && len(r.matches) > 0 && (r.ports == nil || r.ports.has(d.port)) && (found == nil || r.place < found.place) {
			found = r
		}
	})
	return found
}

// opened reports whether a rule that allows names a closed address: one whose
// range opens it, for this port and transport. by is the rule whose traffic
// is to go there; another's range does for it only if that rule would let
// such traffic through itself. a is the request, where there is one.
func (s *Set) opened(d *dest, by *rule, a *asked) bool {
	if !d.closed || d.unknown {
		return true
	}
	return slices.ContainsFunc(s.ranges, func(r ranged) bool {
		if r.deny || !s.opensTo(r, d) || !r.applies(d) {
			return false
		}
		return r.rule == by || !r.ask && !r.secret && r.covers(by, a) // what a rule asks about it opens to itself alone
	})
}

// covers reports whether what another rule lets through, this one would too.
func (r *rule) covers(by *rule, a *asked) bool {
	switch {
	case r.Protocol == ProtocolTCP || r.Protocol == ProtocolUDP || by == nil:
		return true
	case r.Protocol != by.Protocol:
		return false
	case a == nil:
		return true
	}
	_, ok := r.allows(a)
	return ok
}

// opensTo reports whether a rule's range opens an address, and every address
// that it may turn into on its way.
func (s *Set) opensTo(r ranged, d *dest) bool {
	if !opens(r.prefix, d.addr, d.block) {
		return false
	}
	for _, e := range d.embedded {
		b, closed := closedBlock(e)
		if !closed || e.As4()[0] == 0 { // the latter: a place of RFC 6052 that this address does not use
			continue
		}
		if !slices.ContainsFunc(s.ranges, func(o ranged) bool { return !o.deny && (!o.ask || o.rule == r.rule) && opens(o.prefix, e, b) }) {
			return false
		}
	}
	return true
}

// allows reports whether a request matches, and how closely.
func (r *rule) allows(a *asked) (best rank, ok bool) {
	if r.secret && !a.TLS && !weak.On(weak.NetSecretsInClear) {
		return rank{}, false
	}
	if len(r.matches) == 0 || weak.On(weak.NetMatchesOff) {
		return rank{}, true
	}
	for i := range r.matches {
		if k, hit := r.matches[i].allows(a); hit && (!ok || k.compare(best) > 0) {
			best, ok = k, true
		}
	}
	return best, ok
}

// governed reports whether a rule that allows is about a name, on any port.
func (s *Set) governed(name string) (found *rule) {
	s.aboutName(name, func(r *rule, _ int) {
		if !r.deny && (found == nil || r.place < found.place) {
			found = r
		}
	})
	return found
}

// portsOf is for people: what rules about a name open.
func (s *Set) portsOf(name string) string {
	var texts []string
	s.aboutName(name, func(r *rule, _ int) {
		if !r.deny {
			texts = append(texts, fmt.Sprintf("%s (%s)", r.ports, r.Protocol))
		}
	})
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}
