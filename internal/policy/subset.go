package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// IDs of rules that Within adds.
const (
	carriedOver = "wider/"
	// RuleResolvers denies what resolves names past the gate, as a default of public does.
	RuleResolvers = carriedOver + "resolvers"
)

// Within is narrow as it holds inside of wide: with the rules by which wide denies, its
// DNS and its asking where narrow says nothing of them, and the error of Subset where
// what comes of it is none of wide's. secrets are as in Compile.
func Within(narrow, wide Policy, secrets []string) (Policy, error) {
	out := *Clone(&narrow)
	var denied []Rule
	for i, r := range wide.Rules {
		if r.Action == ActionDeny {
			r.ID = fmt.Sprintf("%s%d", carriedOver, i+1)
			denied = append(denied, r)
		}
	}
	out = With(out, denied...)
	if Public(wide.Default) && !Public(out.Default) {
		out = With(out, Rule{ID: RuleResolvers, Action: ActionDeny, Addresses: resolverList()}) // which the default lets nobody to
	}
	if len(out.DNS.Types)+len(out.DNS.Upstreams)+out.DNS.QueriesPerMinute == 0 {
		out.DNS = Clone(&wide).DNS
	}
	if out.Ask == (Asking{}) {
		out.Ask = wide.Ask
	}
	if weak.On(weak.BottleWidened) {
		return out, nil
	}
	return out, Subset(out, wide, secrets)
}

func resolverList() []string {
	list := make([]string, 0, len(resolverAddresses()))
	for a := range resolverAddresses() {
		list = append(list, a.String())
	}
	slices.Sort(list)
	return list
}

// Subset proves that whatever narrow lets through wide lets through, and asks no more for.
// It looks at the rules alone, each of narrow's by itself: what it can't prove is an
// error, which joins *Error with places in narrow, also where it holds. secrets are as in
// Compile, for both.
func Subset(narrow, wide Policy, secrets []string) error {
	n, err := Compile(narrow, secrets)
	if err != nil {
		return err
	}
	w, err := Compile(wide, secrets)
	if err != nil {
		return fmt.Errorf("the wider policy: %w", err)
	}
	p := newSubset(n, w)
	p.services()
	p.dns()
	for _, r := range w.rules {
		if r.deny && !p.shared[r] {
			p.errs.Addf("rules", "copy it", "the wider policy denies by its rule %s, and this one does not", r.ID)
		}
	}
	if n.public {
		p.public()
	} else {
		for _, r := range n.rules {
			if !r.deny {
				p.rule(r)
			}
		}
	}
	return p.errs.Err()
}

// subset is a proof under way. What is the same for every rule is worked out once: a policy
// may have a thousand of them, and be a stranger's.
type subset struct {
	n, w *Set
	errs Errors

	shared     map[*rule]bool // of either: the other one says the same by a rule of its own
	ordered    bool           // and in the same order, which is what decides between two that are as close
	resolvers  bool           // the narrow policy denies all that resolves names past the gate
	ungoverned string         // a host that only the wider policy has a rule about; "" for none
	meeting    map[*rule]int  // how many rules of the narrow policy are about what one of the wider is about
}

func newSubset(n, w *Set) *subset {
	p := &subset{n: n, w: w, shared: map[*rule]bool{}, resolvers: n.deniesResolvers(), meeting: map[*rule]int{}}
	for _, of := range [][2]*Set{{n, w}, {w, n}} {
		said := of[1].sayings()
		for _, r := range of[0].rules {
			p.shared[r] = said[r.saying()]
		}
	}
	p.ordered = slices.Equal(p.sharedOf(n), p.sharedOf(w))
	for _, r := range w.rules {
		for _, h := range r.Hosts {
			if !r.deny && p.ungoverned == "" && !n.governs(h) {
				p.ungoverned = h
			}
		}
	}
	return p
}

// sharedOf are what the rules of a set say that let through, of those that both have.
func (p *subset) sharedOf(s *Set) (said []string) {
	for _, r := range s.rules {
		if !r.deny && p.shared[r] {
			said = append(said, r.saying())
		}
	}
	return said
}

// sayings are what the rules of a set say, whatever their IDs.
func (s *Set) sayings() map[string]bool {
	said := make(map[string]bool, len(s.rules))
	for _, r := range s.rules {
		said[r.saying()] = true
	}
	return said
}

func (r *rule) saying() string { return saying(r.Rule) }

// saying is the same for rules that say the same, whatever their IDs.
func saying(r *Rule) string {
	c := *r
	c.ID = ""
	b, err := json.Marshal(c)
	if err != nil {
		return r.ID // a rule is nothing but texts and numbers
	}
	return string(b)
}

// governs reports whether a rule that allows is about all that a host of a rule's is about.
func (s *Set) governs(host string) bool {
	return slices.ContainsFunc(s.rules, func(r *rule) bool {
		return !r.deny && slices.ContainsFunc(r.Hosts, func(o string) bool { return hostWithin(host, o) })
	})
}

// deniesResolvers reports whether nothing goes to the address of a resolver.
func (s *Set) deniesResolvers() bool {
	for a := range resolverAddresses() {
		if !slices.ContainsFunc(s.rules, func(r *rule) bool {
			return r.deny && r.ports == nil && r.Protocol == "" && len(r.matches) == 0 &&
				slices.ContainsFunc(r.prefixes, func(q netip.Prefix) bool { return q.Contains(canonical(a)) })
		}) {
			return false
		}
	}
	return true
}

func (p *subset) services() {
	for i, name := range p.n.policy.Services {
		if !slices.Contains(p.w.policy.Services, name) {
			p.errs.Addf(at("services", i), "", "the wider policy has no service %s", Quoted(name))
		}
	}
}

func (p *subset) dns() {
	n, w := p.n.policy.DNS, p.w.policy.DNS
	for i, t := range n.Types {
		if !slices.Contains(w.Types, t) {
			p.errs.Addf(at("dns.types", i), "", "the wider policy asks for no %s", t)
		}
	}
	if (len(n.Upstreams) == 0) != (len(w.Upstreams) == 0) {
		p.errs.Add("dns.upstreams", "the wider policy asks other resolvers", "leave dns out")
	}
	for i, u := range n.Upstreams {
		if len(w.Upstreams) > 0 && !slices.Contains(w.Upstreams, u) {
			p.errs.Addf(at("dns.upstreams", i), "leave dns out", "the wider policy does not ask %s", u)
		}
	}
	if n.QueriesPerMinute > w.QueriesPerMinute {
		p.errs.Addf("dns.queries_per_minute", "", "%d of them, where the wider policy has %d", n.QueriesPerMinute, w.QueriesPerMinute)
	}
}

// public proves a narrow policy whose default lets through: it has to be the wide one, and
// rules that deny besides, for any other rule governs hosts that the default is about.
func (p *subset) public() {
	if p.n.policy.Default != p.w.policy.Default {
		p.errs.Addf("default", "deny", "%s, where the wider policy has %s", p.n.policy.Default, p.w.policy.Default)
		return
	}
	for _, r := range p.n.rules {
		if !r.deny && !p.shared[r] {
			p.errs.Addf(at("rules", r.place), "default: deny", "with this default a rule that allows has to be the wider policy's own")
		}
	}
	for _, r := range p.w.rules {
		if !r.deny && !p.shared[r] {
			p.errs.Addf("rules", "copy it, or default: deny", "with this default the hosts of the wider policy's rule %s are left to the default", r.ID)
		}
	}
}

// rule proves one rule that allows or asks: a rule of the wider policy lets through all
// that it does, and none asks more of what both are about.
func (p *subset) rule(n *rule) {
	where := at("rules", n.place)
	by := slices.IndexFunc(p.w.rules, func(w *rule) bool { return !w.deny && n.within(w) })
	if by < 0 && !p.byDefault(n) {
		p.errs.Addf(where, p.nearest(n), "no rule of the wider policy allows all that %s does", n.ID)
		return
	}
	if about := p.namedElsewhere(by); about != "" && len(n.prefixes) > 0 && !unread(n.Protocol) {
		p.errs.Addf(where, "", "%s is by address, so that any name may be said there that no rule is about, and a rule of the wider policy is about %s", n.ID, about)
		return
	}
	known := p.shared[n]
	for _, w := range p.w.rules {
		if w.deny || w.ask && !n.ask || !n.meets(w) {
			continue
		}
		same := known && p.shared[w] && p.ordered // then the same one of them decides in both
		switch {
		case !same && carriage(w.Protocol) < carriage(n.Protocol):
			p.errs.Addf(where, "copy that rule and this one as they are there", "it is about what the wider policy reads by its rule %s, and would pass on more of it unread", w.ID)
			return
		case !same && !n.asksAll(w):
			p.errs.Addf(where, "say the same here", "it is about what rule %s of the wider policy has secrets, limits, roots or ways with credentials for", w.ID)
			return
		case (w.Limits.Bytes > 0 || w.Limits.RequestsPerMinute > 0) && !same && p.meet(w) > 1:
			p.errs.Addf(where, "make it one rule", "several rules would share what rule %s of the wider policy allows once", w.ID)
			return
		}
	}
}

// namedElsewhere is a host that a rule of the wider policy is about, but not the one at by, and
// none of the narrow one's says the same; "" where there is none.
func (p *subset) namedElsewhere(by int) string {
	for i, w := range p.w.rules {
		if i != by && !w.deny && !p.shared[w] && len(w.Hosts) > 0 {
			return w.Hosts[0]
		}
	}
	return p.ungoverned
}

// meet counts the rules of the narrow policy that are about what w is about.
func (p *subset) meet(w *rule) int {
	count, known := p.meeting[w]
	if !known {
		for _, n := range p.n.rules {
			if !n.deny && n.meets(w) {
				count++
			}
		}
		p.meeting[w] = count
	}
	return count
}

// nearest says, as a hint, what of the wider policy is about a host of n.
func (p *subset) nearest(n *rule) string {
	for _, w := range p.w.rules {
		if !w.deny && hostsMeet(n.Hosts, w.Hosts) {
			return fmt.Sprintf("rule %s there: %s", w.ID, Describe(w.Rule))
		}
	}
	return ""
}

// byDefault reports whether the wider policy's default lets through what n does: requests
// to public names without rules of their own, but not at the addresses of resolvers.
func (p *subset) byDefault(n *rule) bool {
	if p.w.policy.Default != DefaultPublic || n.Protocol != ProtocolHTTP || len(n.prefixes) > 0 || n.secret || n.Roots != "" || n.ports.has(53) || n.ports.has(853) || n.Placeholders != "" {
		return false
	}
	for _, h := range n.Hosts {
		if code, _ := closedName(h); code != "" || strings.HasPrefix(h, "*.") || h == canary {
			return false
		}
	}
	for _, w := range p.w.rules { // of which one by address goes before the default, wherever a name leads
		if !w.deny && (hostsMeet(n.Hosts, w.Hosts) || len(w.prefixes) > 0) {
			return false
		}
	}
	return p.resolvers
}
