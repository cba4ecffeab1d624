package policy

import (
	"net/netip"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Stream decides about a connection that Connect wanted sniffed, now that its
// first bytes are known: ModeRefuse, ModeRelay, ModePassthrough (TLS alone)
// or ModeInspect. A name that the gate has not resolved to the address is
// only let through where rules are about the address itself, and none about
// the name.
func (s *Set) Stream(c Stream) Verdict {
	if !c.Addr.IsValid() || c.Addr.Port() == 0 || c.Addr.Addr().Zone() != "" || c.UDP {
		return refuse(CodeBadDestination, "%s is no destination of a stream", c.Addr)
	}
	d := s.newDest(c.Addr.Addr(), c.Addr.Port(), false)
	if c.Name == "" {
		return s.unnamed(&c, &d)
	}
	name, addr, err := CleanHost(c.Name)
	switch {
	case err != nil:
		return badDestination(err)
	case addr.IsValid() && canonical(addr) != d.addr:
		return refuse(CodeNotResolved, "%s was asked for on a connection to %s", addr, d.raw)
	case addr.IsValid():
		return s.streamTo("", true, c.TLS, &d)
	}
	return s.streamTo(name, slices.Contains(cleanNames(c.Names), name), c.TLS, &d)
}

// streamTo decides about a stream for a name, or by number where that is "".
func (s *Set) streamTo(name string, pinned, tls bool, d *dest) Verdict {
	what := where(name, d)
	if r := s.denial(name, d); r != nil {
		return deniedBy(r, what)
	}
	if !pinned && !weak.On(weak.NetNamesUnbound) {
		if v, ok := s.unpinned(name, d); !ok {
			return v
		}
	}
	best, v := s.carrier(name, d, func(r *rule) bool { return tls || r.Protocol != ProtocolTLS })
	reader := s.reader(name, d)
	switch {
	case best == nil && v.Code != "":
		if other, _ := s.carrier(name, d, func(*rule) bool { return true }); other != nil {
			return refuse(CodeProtocol, "%s is not TLS, and rule %s is about TLS alone", what, other.ID)
		}
		return v
	case best == nil && !pinned && !weak.On(weak.NetNamesUnbound):
		v, _ := s.byDefault("", d)
		return v
	case best == nil && (!tls || reader != nil || s.reads):
		return allowedByDefault(ModeInspect, what)
	case best == nil:
		return allowedByDefault(ModePassthrough, what)
	case best.Protocol == ProtocolHTTP:
		return allowedBy(best, ModeInspect, what)
	case reader != nil:
		return unreadable(reader, what)
	case best.Protocol == ProtocolTLS:
		return decidedBy(best, ModePassthrough, name, what, d)
	}
	return decidedBy(best, ModeRelay, name, what, d)
}

// unpinned decides whether a name that was not resolved to the address may
// be asked for there: only where the address is what rules are about. A rule
// that is about the name as well must list the address, or its secrets could
// be sent for to any place that an address rule opens.
func (s *Set) unpinned(name string, d *dest) (Verdict, bool) {
	v := refuse(CodeNotResolved, "the gate has not resolved %s to %s for this sandbox", name, d.raw)
	stray, listed := false, false
	s.aboutName(name, func(r *rule, _ int) {
		stray = stray || !r.deny && !slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return p.Contains(d.addr) })
	})
	for _, r := range s.ranges {
		listed = listed || !r.deny && r.prefix.Contains(d.addr) && r.applies(d)
	}
	return v, listed && !stray
}

// unnamed decides about a stream that names nobody: by rules about the
// address, or by rules that pass on any bytes to a name that it has.
func (s *Set) unnamed(c *Stream, d *dest) Verdict {
	if v := s.streamTo("", true, c.TLS, d); v.Allowed() || v.Code == CodeDenied {
		return v
	}
	names := cleanNames(c.Names)
	var through, refused *Verdict
	public := len(names) > 0
	for _, name := range names {
		v := s.connectTo(name, d)
		switch {
		case !v.Allowed():
			if refused == nil || v.Code.weight() > refused.Code.weight() {
				refused = &v
			}
			public = false
		case v.Rule == defaultRule:
			public = public && s.reader(name, d) == nil
			if through == nil {
				through = &v
			}
		case v.Mode == ModeRelay:
			if through == nil || through.Rule == defaultRule || !v.Ask {
				through = &v
			}
		default: // a rule reads what goes to this name, and could not
			public = false
		}
	}
	switch {
	case refused != nil && refused.Code == CodeDenied:
		return *refused
	case through != nil && (through.Rule != defaultRule || public):
		through.Mode = ModeRelay
		return *through
	case through == nil && refused != nil:
		return *refused
	}
	return refuse(CodeProtocol, "%s is reached by name: TLS without a server name, and what is neither TLS nor HTTP, is not let through", where("", d))
}
