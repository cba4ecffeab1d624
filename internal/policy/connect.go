package policy

import (
	"net/netip"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Name decides whether a name may be resolved. An allowed one need not lead
// anywhere that Connect allows: ports are not known yet.
func (s *Set) Name(name string) Verdict {
	host, err := cleanName(name)
	if err != nil {
		return badDestination(err)
	}
	d := dest{unknown: true}
	var denied *rule
	s.aboutName(host, func(r *rule, _ int) {
		// A rule that denies some ports or some requests leaves others.
		if r.deny && r.ports == nil && r.Protocol == "" && (denied == nil || r.place < denied.place) {
			denied = r
		}
	})
	if denied != nil {
		return deniedBy(denied, host)
	}
	if r := s.governed(host); r != nil {
		return allowedBy(r, ModeAllow, host)
	}
	if host == canary {
		return refuse(CodeProtocol, "%s has no address where names are resolved by the gate alone", host)
	}
	if v, ok := s.byDefault(host, &d); !ok {
		return v
	}
	return allowedByDefault(ModeAllow, host)
}

// byDefault decides what no rule is about. The verdict is only set for a
// refusal.
func (s *Set) byDefault(name string, d *dest) (Verdict, bool) {
	what := name
	if !d.unknown || d.port != 0 {
		what = where(name, d)
	}
	switch {
	case !s.public && name == "":
		return refuse(CodeNotAllowed, "%s is not allowed by this sandbox's network policy", what).hint(flag(name, d)), false
	case !s.public && d.port == 0:
		return refuse(CodeNotAllowed, "%s is not allowed by this sandbox's network policy", what).hint(name), false
	case !s.public:
		return refuse(CodeNotAllowed, "%s is not allowed by this sandbox's network policy", what).hint(flag(name, d)), false
	case name == "":
		return refuse(CodeNotResolved, "%s was dialled by number, and the gate has resolved no name to it", what).hint(flag(name, d)), false
	}
	if code, reason := closedName(name); code != "" {
		return refuse(code, "%s", reason).hint(name), false
	}
	if resolverAddresses()[d.addr] {
		return refuse(CodeProtocol, "%s is at %s, which resolves names past the gate", name, d.raw).hint(flag("", d)), false
	}
	return Verdict{}, true
}

// Address decides about an address, whoever is to be reached there: one that
// is closed may be what a name resolves to, or what is dialled, only if a
// rule opens it. It says nothing of ports; Connect does.
func (s *Set) Address(a netip.Addr) Verdict {
	if !a.IsValid() || a.Zone() != "" {
		return refuse(CodeBadDestination, "%s is no address to go to", a)
	}
	d := s.newDest(a, 0, false)
	for _, r := range s.ranges {
		if r.deny && r.ports == nil && r.Protocol == "" && len(r.matches) == 0 && d.in(r.prefix) {
			return deniedBy(r.rule, d.raw.String())
		}
	}
	if d.closed && !slices.ContainsFunc(s.ranges, func(r ranged) bool { return !r.deny && s.opensTo(r, &d) }) {
		return closedVerdict("", &d)
	}
	return Verdict{Mode: ModeAllow, Reason: d.raw.String() + " is open to rules and the default"}
}

// Connect decides about a connection, or a flow of datagrams, before a byte of
// it is read: ModeRefuse, ModeRelay, or, for TCP alone, ModeSniff.
func (s *Set) Connect(c Conn) Verdict {
	if !c.Addr.IsValid() || c.Addr.Port() == 0 || c.Addr.Addr().Zone() != "" {
		return refuse(CodeBadDestination, "%s is no destination", c.Addr)
	}
	d := s.newDest(c.Addr.Addr(), c.Addr.Port(), c.UDP)
	if r := s.denial("", &d); r != nil {
		return deniedBy(r, where("", &d))
	}
	names := cleanNames(c.Names)
	outcomes := make([]Verdict, 0, len(names)+1)
	for _, name := range names {
		outcomes = append(outcomes, s.connectTo(name, &d))
	}
	outcomes = append(outcomes, s.connectTo("", &d))
	return together(outcomes, &d)
}

// cleanNames drops what is no name: the gate resolves none of those.
func cleanNames(names []string) []string {
	var out []string
	for _, n := range names {
		if name, err := cleanName(n); err == nil && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// connectTo decides as if the connection were for this name, or by number.
func (s *Set) connectTo(name string, d *dest) Verdict {
	what := where(name, d)
	if r := s.denial(name, d); r != nil {
		return deniedBy(r, what)
	}
	best, v := s.carrier(name, d, func(*rule) bool { return true })
	var reader *rule
	if !d.udp || d.port == 443 || d.port == 80 {
		reader = s.reader(name, d)
	}
	switch {
	case best == nil && v.Code != "":
		return v
	case best == nil && !d.udp && (reader != nil || d.port == 443 || d.port == 80 || s.reads && (d.port == 8443 || d.port == 8080)):
		return allowedByDefault(ModeSniff, what)
	case best == nil:
		return allowedByDefault(ModeRelay, what)
	case !unread(best.Protocol):
		return allowedBy(best, ModeSniff, what)
	case reader != nil:
		return unreadable(reader, what)
	}
	return decidedBy(best, ModeRelay, name, what, d)
}

// unread reports whether a protocol's bytes are passed on as they are.
func unread(p Protocol) bool { return p == ProtocolTCP || p == ProtocolUDP }

func unreadable(reader *rule, what string) Verdict {
	v := refuse(CodeDenied, "rule %s denies some requests to %s, so what can't be read is not let through", reader.ID, what)
	v.Rule = reader.ID
	return v
}

// carrier finds the closest rule that allows a connection to a destination,
// of those that want has nothing against. Without one, and without leave from
// the default, the verdict says why.
func (s *Set) carrier(name string, d *dest, want func(*rule) bool) (*rule, Verdict) {
	var best claim
	shut := false // a rule would allow it, were the address open
	special := dnsOrQUIC(d)
	s.about(name, d, func(r *rule, closeness int) {
		if r.deny || !r.applies(d) || !want(r) || special != "" && !(unread(r.Protocol) && r.namesPort(d.port)) {
			return
		}
		if !s.opened(d, r, nil) {
			shut = true
			return
		}
		if c := (claim{rule: r, closeness: closeness}); best.rule == nil || c.compare(best) > 0 {
			best = c
		}
	})
	switch {
	case best.rule != nil:
		return best.rule, Verdict{}
	case shut || d.closed && !d.unknown && (name == "" || s.public || s.governed(name) != nil):
		return nil, closedVerdict(name, d)
	case special != "":
		return nil, refuse(CodeProtocol, "%s is %s, which the gate closes; a tcp or udp rule that names the port opens it", where(name, d), special)
	}
	if r := s.governed(name); r != nil {
		v := refuse(CodeNotAllowed, "%s is not allowed: rules about %s are for %s", where(name, d), name, s.portsOf(name))
		return nil, v.hint(flag(name, d))
	}
	v, _ := s.byDefault(name, d)
	return nil, v
}

// dnsOrQUIC names what a port is closed for.
func dnsOrQUIC(d *dest) string {
	switch {
	case weak.On(weak.NetDNSPortsOpen):
	case d.port == 53:
		return "DNS past the gate"
	case d.port == 853:
		return "encrypted DNS past the gate"
	case d.udp && (d.port == 443 || d.port == 80):
		return "QUIC"
	}
	return ""
}

// together makes one verdict of those for each name that an address has, and
// of the last, which is for the address itself. What differs between names is
// decided once the connection has said which it is for.
func together(outcomes []Verdict, d *dest) Verdict {
	names, number := outcomes[:len(outcomes)-1], outcomes[len(outcomes)-1]
	var sniff, relay, refused *Verdict
	for i := range outcomes {
		v := &outcomes[i]
		switch {
		case v.Mode == ModeSniff && sniff == nil:
			sniff = v
		case v.Mode == ModeRelay && (relay == nil || relay.Rule == defaultRule || relay.Ask && !v.Ask && v.Rule != defaultRule):
			relay = v
		case v.Mode == ModeRefuse && i < len(names) && (refused == nil || v.Code.weight() > refused.Code.weight()):
			refused = v
		}
	}
	switch {
	case sniff != nil:
		return *sniff
	case relay == nil && refused != nil:
		return *refused
	case relay == nil:
		return number
	case refused == nil || relay.Rule != defaultRule && refused.Code != CodeDenied:
		return *relay
	case d.udp || refused.Code == CodeDenied:
		return *refused // unread bytes could be for the name that is refused
	}
	v := *relay
	v.Mode = ModeSniff
	v.Reason += "; another name of the address is not, so what is asked for decides"
	return v
}

// weight orders refusals by how much they say.
func (c Code) weight() int {
	return slices.Index([]Code{CodeNotResolved, CodeNotAllowed, CodeProtocol, CodeClosedAddress, CodeDenied}, c)
}
