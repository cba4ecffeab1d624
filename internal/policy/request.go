package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Request decides about one HTTP request: ModeRefuse or ModeAllow. It is asked
// for every request of a connection, also where Stream allowed the first.
func (s *Set) Request(r Request) Verdict {
	if !r.Addr.IsValid() || r.Addr.Port() == 0 {
		return refuse(CodeBadDestination, "%s is no destination", r.Addr)
	}
	d := s.newDest(r.Addr.Addr(), r.Addr.Port(), false)
	return s.request(&r, &d)
}

func (s *Set) request(r *Request, d *dest) Verdict {
	var name string
	if r.Name != "" {
		clean, addr, err := CleanHost(r.Name)
		switch {
		case err != nil:
			return badDestination(err)
		case addr.IsValid() && !d.unknown && canonical(addr) != d.addr:
			return refuse(CodeNotResolved, "%s was asked for on a connection to %s", addr, d.raw)
		}
		name = clean
	}
	if r.URL == nil || !token(r.Method) {
		return refuse(CodeBadDestination, "a request without a method or a URL")
	}
	what := where(name, d)
	a := &asked{Request: r}
	if v := s.denialOf(a, name, what, d); v.Mode != "" {
		return v
	}
	return s.requestTo(a, name, what, d)
}

// denialOf is the zero Verdict where nothing denies the request.
func (s *Set) denialOf(a *asked, name, what string, d *dest) Verdict {
	if r := s.denial(name, d); r != nil {
		return deniedBy(r, what)
	}
	var hit, doubt *rule
	s.about(name, d, func(r *rule, _ int) {
		if !r.deny || r.ports != nil && !r.ports.has(d.port) {
			return
		}
		for i := range r.matches {
			switch r.matches[i].denies(a) {
			case denialHit:
				hit = firstOf(hit, r)
			case denialDoubt:
				doubt = firstOf(doubt, r)
			case denialNone:
			}
		}
	})
	switch {
	case hit != nil:
		return deniedBy(hit, a.text()+" to "+what)
	case doubt != nil:
		v := refuse(CodeRequest, "%s to %s can't be held against rule %s, which denies some: %s", a.text(), what, doubt.ID, a.doubt())
		v.Rule = doubt.ID
		return v
	}
	return Verdict{}
}

func firstOf(a, b *rule) *rule {
	if a != nil && a.place < b.place {
		return a
	}
	return b
}

// requestTo finds the closest rule that allows the request.
func (s *Set) requestTo(a *asked, name, what string, d *dest) Verdict {
	var best claim
	var about []*rule
	shut := false
	s.about(name, d, func(r *rule, closeness int) {
		if r.deny || r.Protocol != ProtocolHTTP || !r.applies(d) {
			return
		}
		k, ok := r.allows(a)
		switch {
		case !ok:
			about = append(about, r)
		case !s.opened(d, r, a):
			shut = true
		default:
			if c := (claim{rule: r, closeness: closeness, rank: k}); best.rule == nil || c.compare(best) > 0 {
				best = c
			}
		}
	})
	switch {
	case best.rule != nil && best.ask && a.overrides().by != "":
		v := refuse(CodeRequest, "%s to %s can't be put before a person, as rule %s wants: %s", a.text(), what, best.ID, a.doubt())
		v.Rule = best.ID
		return v
	case best.rule != nil:
		return decidedBy(best.rule, ModeAllow, name, a.text()+" to "+what, d)
	case shut:
		return closedVerdict(name, d)
	case len(about) > 0:
		return a.refusedBy(about, what)
	}
	if _, v := s.carrier(name, d, func(r *rule) bool { return r.Protocol == ProtocolHTTP }); v.Code != "" {
		return v
	}
	return allowedByDefault(ModeAllow, a.text()+" to "+what)
}

// refusedBy says why rules about a destination let a request not through.
func (a *asked) refusedBy(about []*rule, what string) Verdict {
	slices.SortFunc(about, func(a, b *rule) int { return a.place - b.place })
	var ids []string
	clear, paths := false, false
	for _, r := range about {
		ids = append(ids, r.ID)
		clear = clear || r.secret && !a.TLS
		for i := range r.matches {
			paths = paths || len(r.matches[i].paths) > 0
		}
	}
	ids = slices.Compact(ids)
	v := refuse(CodeRequest, "%s to %s is none of the requests that rule %s allows", a.text(), what, bounded(ids))
	if len(ids) > 1 {
		v.Reason = fmt.Sprintf("%s to %s is none of the requests that rules %s allow", a.text(), what, bounded(ids))
	}
	if paths || a.overrides().by != "" {
		if doubt := a.doubt(); doubt != "" {
			v.Reason += ": " + doubt
		}
	}
	if clear {
		v.Reason = fmt.Sprintf("%s to %s is in the clear, and rule %s puts a secret in, which only goes over TLS", a.text(), what, ids[0])
		v.Hint = "use https"
	}
	v.Rule = ids[0]
	return v
}

func bounded(ids []string) string {
	const most = 5
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return strings.Join(ids, ", ")
}

// text names the request for people. Paths are left out: they hold tokens
// often enough.
func (a *asked) text() string {
	if slices.Contains(commonMethods, a.Method) {
		return a.Method
	}
	return Quoted(a.Method)
}

var commonMethods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH",
	"DELETE", "CONNECT", "OPTIONS", "TRACE",
}

// doubt says in what way the request could be read in two.
func (a *asked) doubt() string {
	if by := a.overrides().by; by != "" {
		return "its " + by + " makes it another request to some servers"
	}
	if _, problem := a.cleanPath(); problem != "" {
		return "its path " + problem
	}
	if _, err := url.ParseQuery(a.URL.RawQuery); err != nil {
		return "its query can't be read"
	}
	return ""
}
