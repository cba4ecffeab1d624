package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Question is what a person was asked, of what a rule says has to be.
type Question struct {
	Rule string // its ID
	Host string // a name or an address
	Port uint16
	// Address is where it goes, of what the rule is about by its address; "": the
	// gate has resolved the host.
	Address string
	Method  string // "" of a connection
	Target  string // path and query
	Secret  string // the one that was asked for; "" where the request was
}

// Always is the rule, under an ID, that lets through unasked what a question was
// about: as narrow as a rule can be, with all that the asking rule asks of the
// traffic. It is no wider than the question but in this: no rule says that a request
// has no other parameter than those that it names. The error says why there is none.
func (s *Set) Always(id string, q Question) (Rule, error) {
	i := slices.IndexFunc(s.rules, func(r *rule) bool { return r.ID == q.Rule })
	if i < 0 {
		return Rule{}, fmt.Errorf("the policy has no rule %s", q.Rule)
	}
	asking := s.rules[i]
	r := cloneRules([]Rule{*asking.Rule})[0]
	r.ID, r.Action, r.Ports = id, "", []string{strconv.Itoa(int(q.Port))}
	var err error
	if r.Hosts, r.Addresses, err = asking.destination(q); err != nil {
		return Rule{}, err
	}
	for j := range r.Secrets {
		if r.Secrets[j].Name == q.Secret {
			r.Secrets[j].Ask = false
		}
	}
	if q.Method == "" {
		return r, nil
	}
	if r.Matches, err = asking.narrowed(q); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// destination is that of a question alone, as a rule has it: its address where the
// rule has that, and its host where the rule has that. A host that the rule does not
// have is a name that the sandbox has said, and opens nothing.
func (r *rule) destination(q Question) (hosts, addresses []string, err error) {
	name, _, err := CleanHost(q.Host)
	if err != nil {
		return nil, nil, err
	}
	if r.names(name) {
		hosts = []string{name}
	}
	if q.Address != "" {
		a, err := netip.ParseAddr(q.Address)
		if err != nil || !slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return p.Contains(canonical(a)) }) {
			return nil, nil, fmt.Errorf("rule %s is about other addresses", r.ID)
		}
		return hosts, []string{canonical(a).String()}, nil
	}
	if hosts == nil {
		return nil, nil, fmt.Errorf("rule %s is about other hosts", r.ID)
	}
	return hosts, nil, nil
}

// names reports whether a rule has a clean name among its hosts.
func (r *rule) names(name string) bool {
	return name != "" && slices.ContainsFunc(r.Hosts, func(h string) bool {
		suffix, wild := strings.CutPrefix(h, "*")
		return h == name || wild && strings.HasSuffix(name, suffix)
	})
}

// narrowed are those of a rule's matches that a question's request can have met,
// each for that request alone.
func (r *rule) narrowed(q Question) ([]Match, error) {
	u, err := url.ParseRequestURI(q.Target)
	if err != nil {
		return nil, errors.New("its path can't be read")
	}
	a := &asked{Request: &Request{Method: q.Method, URL: u}}
	path, problem := a.cleanPath()
	if problem != "" {
		return nil, fmt.Errorf("its path %s", problem)
	}
	query, err := parametersOf(u.RawQuery)
	if err != nil {
		return nil, err
	}
	of, ready := r.Matches, r.matches
	if len(of) == 0 {
		of, ready = []Match{{}}, []match{{}}
	}
	var out []Match
	for i, m := range of {
		if len(m.Methods) > 0 && !slices.Contains(m.Methods, q.Method) || len(m.Paths) > 0 && !ready[i].bestPath(a, new(rank)) {
			continue
		}
		n := Match{Methods: []string{q.Method}, Paths: []Value{{Type: MatchExact, Value: path}}, Headers: slices.Clone(m.Headers), Query: slices.Clone(m.Query)}
		for _, f := range query {
			if !slices.ContainsFunc(n.Query, func(o Field) bool { return o.Name == f.Name && o.Type == MatchExact }) {
				n.Query = slices.DeleteFunc(n.Query, func(o Field) bool { return o.Name == f.Name })
				n.Query = append(n.Query, f)
			}
		}
		if len(n.Query) > maxFields {
			return nil, fmt.Errorf("it has more than %d parameters", maxFields)
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("rule %s is about other requests", r.ID)
	}
	return out, nil
}

// parametersOf are the parameters of a query as a match has them.
func parametersOf(raw string) ([]Field, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("its query can't be read")
	}
	var out []Field
	for name, all := range values {
		if name == "" || len(slices.Compact(slices.Clone(all))) != 1 {
			return nil, errors.New("its query has a parameter with two values, or without a name")
		}
		if len(all[0]) > maxText {
			return nil, errors.New("its query has a parameter longer than a rule may have")
		}
		out = append(out, Field{Name: name, Type: MatchExact, Value: all[0]})
	}
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
