package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// within reports whether w lets through all that n does, with the same secrets.
func (n *rule) within(w *rule) bool {
	if w.ask && !n.ask || n.Protocol != w.Protocol || n.Roots != w.Roots ||
		n.Auth != "" && w.Auth == "" || n.Placeholders != "" && w.Placeholders == "" {
		return false
	}
	return all(n.Hosts, func(h string) bool {
		return slices.ContainsFunc(w.Hosts, func(o string) bool { return hostWithin(h, o) })
	}) &&
		all(n.prefixes, func(p netip.Prefix) bool {
			return slices.ContainsFunc(w.prefixes, func(q netip.Prefix) bool { return prefixWithin(p, q) })
		}) &&
		n.portsWithin(w) && n.matchesWithin(w) && len(n.secrets()) == len(w.secrets()) && secretsWithin(n.secrets(), w.secrets()) &&
		limitsWithin(n.Limits, w.Limits)
}

func all[T any](list []T, ok func(T) bool) bool {
	return !slices.ContainsFunc(list, func(t T) bool { return !ok(t) })
}

func hostWithin(h, wide string) bool {
	suffix, wild := strings.CutPrefix(wide, "*.")
	if h == wide || !wild {
		return h == wide
	}
	return strings.HasSuffix(strings.TrimPrefix(h, "*."), "."+suffix)
}

func hostsMeet(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return hostWithin(x, y) || hostWithin(y, x) })
	})
}

// prefixWithin reports whether q opens every address that p does. One address alone may
// be the machine's own, which no range opens.
func prefixWithin(p, q netip.Prefix) bool {
	if p == q {
		return true
	}
	if p.IsSingleIP() || !q.Overlaps(p) || q.Bits() > p.Bits() {
		return false
	}
	if p.Addr().Is6() && !(global6.Contains(p.Addr()) && p.Bits() >= global6.Bits()) && q.Bits() < 8 {
		return false
	}
	return all(blocks, func(b block) bool {
		return !b.prefix.Overlaps(p) || p.Bits() < b.prefix.Bits() || q.Bits() >= b.prefix.Bits()
	})
}

// shut are ports that only a rule with their very number opens.
var shut = []uint16{53, 853, 443, 80}

func (n *rule) portsWithin(w *rule) bool {
	if unread(n.Protocol) && slices.ContainsFunc(shut, func(port uint16) bool { return n.namesPort(port) && !w.namesPort(port) }) {
		return false
	}
	return all(n.ports, func(r portRange) bool {
		return slices.ContainsFunc(w.ports, func(o portRange) bool { return o.low <= r.low && r.high <= o.high })
	})
}

func (n *rule) matchesWithin(w *rule) bool {
	if len(w.matches) == 0 {
		return true
	}
	return len(n.matches) > 0 && all(n.matches, func(m match) bool {
		return slices.ContainsFunc(w.matches, func(o match) bool { return m.within(&o) })
	})
}

func (m *match) within(w *match) bool {
	if len(w.methods) > 0 && (len(m.methods) == 0 || !all(m.methods, func(s string) bool { return slices.Contains(w.methods, s) })) {
		return false
	}
	if len(w.paths) > 0 && (len(m.paths) == 0 || !all(m.paths, func(t text) bool {
		return slices.ContainsFunc(w.paths, func(o text) bool { return t.within(&o) })
	})) {
		return false
	}
	return fieldsWithin(m.headers, w.headers) && fieldsWithin(m.query, w.query)
}

// fieldsWithin reports whether narrow wants whatever wide wants.
func fieldsWithin(narrow, wide []matchedField) bool {
	return all(wide, func(w matchedField) bool {
		return slices.ContainsFunc(narrow, func(n matchedField) bool { return n.name == w.name && n.text.within(&w.text) })
	})
}

// within reports whether w matches all that t does. Of two expressions that is known
// where they are one.
func (t *text) within(w *text) bool {
	switch {
	case t.kind == matchRegex && w.kind == matchRegex:
		return t.value == w.value
	case t.kind == matchRegex:
		return w.kind == matchPrefix && w.value == "/"
	case t.kind == matchPrefix:
		return w.kind == matchPrefix && underPrefix(t.value, w.value)
	}
	return w.matches(t.value)
}

func (n *rule) secrets() []Secret {
	if n.route == nil {
		return nil
	}
	return n.route.Secrets
}

// secretsWithin reports whether every secret of wide is narrow's too, and is asked for
// there where it is in wide.
func secretsWithin(narrow, wide []Secret) bool {
	return all(wide, func(w Secret) bool {
		return slices.ContainsFunc(narrow, func(n Secret) bool {
			if w.Ask && !n.Ask {
				return false
			}
			n.Ask, n.Optional, w.Ask, w.Optional = false, false, false, false
			return n == w
		})
	})
}

func limitsWithin(n, w Limits) bool {
	ok := func(n, w int64) bool { return w == 0 || n > 0 && n <= w }
	return ok(n.RequestBytes, w.RequestBytes) && ok(n.ResponseBytes, w.ResponseBytes) &&
		ok(int64(n.RequestsPerMinute), int64(w.RequestsPerMinute)) && ok(n.Bytes, w.Bytes)
}

// meets reports whether something may be about both rules, of which w then could be the
// one that decides. A rule by address is about every name that leads there: less closely than
// a rule by name, but where no name is said it decides.
func (n *rule) meets(w *rule) bool {
	if (n.Protocol == ProtocolUDP) != (w.Protocol == ProtocolUDP) || !slices.ContainsFunc(n.ports, func(r portRange) bool {
		return slices.ContainsFunc(w.ports, func(o portRange) bool { return r.low <= o.high && o.low <= r.high })
	}) {
		return false
	}
	if len(n.prefixes) == 0 && len(w.prefixes) == 0 && !hostsMeet(n.Hosts, w.Hosts) {
		return false
	}
	return len(n.matches) == 0 || len(w.matches) == 0 || slices.ContainsFunc(n.matches, func(m match) bool {
		return slices.ContainsFunc(w.matches, func(o match) bool { return m.meets(&o) })
	})
}

func (m *match) meets(o *match) bool {
	if len(m.methods) > 0 && len(o.methods) > 0 && !slices.ContainsFunc(m.methods, func(s string) bool { return slices.Contains(o.methods, s) }) {
		return false
	}
	return len(m.paths) == 0 || len(o.paths) == 0 || slices.ContainsFunc(m.paths, func(t text) bool {
		return slices.ContainsFunc(o.paths, func(u text) bool { return t.meets(&u) })
	})
}

// meets reports whether some path may match both. An expression may match any.
func (t *text) meets(o *text) bool {
	switch {
	case t.kind == MatchExact:
		return o.matches(t.value)
	case o.kind == MatchExact:
		return t.matches(o.value)
	case t.kind == matchPrefix && o.kind == matchPrefix:
		return underPrefix(t.value, o.value) || underPrefix(o.value, t.value)
	}
	return true
}

// asksAll reports whether n asks for what w asks for, where both are about the same, and has
// no secret that w has not.
func (n *rule) asksAll(w *rule) bool {
	return limitsWithin(n.Limits, w.Limits) && secretsWithin(n.secrets(), w.secrets()) && len(n.secrets()) == len(w.secrets()) &&
		(w.Roots == "" || n.Roots == w.Roots) &&
		(n.Auth == "" || w.Auth != "" || len(w.secrets()) == 0) &&
		(n.Placeholders == "" || w.Placeholders != "")
}
