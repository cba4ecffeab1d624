package learn

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// derive makes a rule of each target, and one of those that say the same.
func (l *Learned) derive(found []*seen) error {
	type one struct {
		rule    policy.Rule
		from    *policy.Rule
		notes   []string
		matches []string
	}
	var rules []*one
	for _, s := range found {
		r, matches, err := s.rule()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rules, func(o *one) bool {
			return o.from == s.from && len(r.Hosts) > 0 && len(r.Addresses) == 0 && len(o.rule.Hosts) < policy.MaxHosts && alike(o.rule, r)
		})
		if i < 0 {
			rules = append(rules, &one{rule: r, from: s.from, notes: s.notes(), matches: matches})
			continue
		}
		rules[i].rule.Hosts = append(rules[i].rule.Hosts, r.Hosts...)
		rules[i].notes = append(rules[i].notes, s.notes()...)
	}
	for _, o := range rules {
		id := o.rule.ID
		if id == "" {
			id = append(slices.Clone(o.rule.Hosts), o.rule.Addresses...)[0]
		}
		o.rule.ID = l.unused(id)
		l.Policy.Rules = append(l.Policy.Rules, o.rule)
		l.about[o.rule.ID] = o.notes
		for i, text := range o.matches {
			if text != "" {
				l.within[o.rule.ID+"/"+strconv.Itoa(i)] = strings.Split(text, "\n")
			}
		}
	}
	l.warn(found)
	return nil
}

// alike reports whether two rules say the same of their hosts.
func alike(a, b policy.Rule) bool {
	a.Hosts, b.Hosts, a.ID, b.ID = nil, nil, "", ""
	return reflect.DeepEqual(a, b)
}

// rule is the least rule that lets through what was seen. matches are comments, one for
// each match.
func (s *seen) rule() (r policy.Rule, matches []string, err error) {
	if s.from != nil {
		r = *s.from
		r.Hosts, r.Addresses, r.Matches = nil, nil, nil
		if r.Action != policy.ActionAsk { // what a person was asked about is asked about again
			r.Action = "" // as where none is named
		}
	}
	if r.Protocol = s.protocol; r.Protocol == policy.ProtocolHTTP {
		r.Protocol = "" // as where none is named
	}
	r.Ports = []string{strconv.Itoa(int(s.port))}
	if s.host != "" {
		r.Hosts = []string{s.host}
	} else {
		r.Addresses = []string{s.addr.String()}
	}
	for _, a := range s.opened {
		if !slices.Contains(r.Addresses, a) {
			r.Addresses = append(r.Addresses, a)
		}
	}
	slices.Sort(r.Addresses)
	if s.protocol != policy.ProtocolHTTP {
		return r, nil, nil
	}
	r.Matches, matches = s.matches()
	if len(r.Matches) == 0 {
		return r, nil, fmt.Errorf("%s: every request has a method that no rule can name", s.name())
	}
	if most := 64; len(r.Matches) > most {
		return r, nil, fmt.Errorf("%s: requests of %d kinds: %d are the most that a rule has", s.name(), len(r.Matches), most)
	}
	return r, matches, nil
}

// matches joins methods whose paths are the same. What the rule of the base asks of
// fields and parameters stays asked for: no record has them.
func (s *seen) matches() (out []policy.Match, notes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		if !sayable(name) {
			continue
		}
		for _, p := range s.asking(name) {
			match := policy.Match{Methods: []string{name}, Headers: p.Headers, Query: p.Query}
			if p.unclear == 0 {
				match.Paths = values(p.paths)
			}
			note := p.note(name, match.Paths)
			i := slices.IndexFunc(out, func(o policy.Match) bool {
				return sends(o.Methods[0]) == sends(name) && reflect.DeepEqual(o.Paths, match.Paths) &&
					reflect.DeepEqual(o.Headers, match.Headers) && reflect.DeepEqual(o.Query, match.Query)
			})
			if i < 0 {
				out, notes = append(out, match), append(notes, joined(note, conditions(match)))
				continue
			}
			out[i].Methods = append(out[i].Methods, name)
			notes[i] = joined(notes[i], note)
		}
	}
	return out, notes
}

func joined(a, b string) string {
	return strings.Trim(a+"\n"+b, "\n")
}

func conditions(m policy.Match) string {
	if len(m.Headers)+len(m.Query) == 0 {
		return ""
	}
	return "headers and query are as your rule has them: no record holds any"
}

// part is what one match of the base's rule let through of a method.
type part struct {
	policy.Match
	*method
}

// asking tells apart what of a method came by matches that ask for fields or parameters.
func (s *seen) asking(name string) []part {
	whole := s.methods[name]
	if s.from == nil || !slices.ContainsFunc(s.from.Matches, conditional) {
		return []part{{method: whole}}
	}
	var parts []part
	for _, m := range s.from.Matches {
		if len(m.Methods) > 0 && !slices.Contains(m.Methods, name) {
			continue
		}
		p := part{m, &method{paths: map[string]bool{}, count: whole.count, sent: whole.sent}}
		for path := range whole.paths {
			if len(m.Paths) == 0 || covered([]string{path}, m.Paths) {
				p.paths[path] = true
			}
		}
		if len(m.Paths) == 0 {
			p.unclear = whole.unclear
		}
		switch {
		case len(p.paths)+p.unclear == 0:
		case !conditional(m) && len(p.paths) == len(whole.paths):
			return []part{p} // it asks for nothing, and lets through all of it
		default:
			parts = append(parts, p)
		}
	}
	return parts
}

func conditional(m policy.Match) bool { return len(m.Headers)+len(m.Query) > 0 }

// note says what is to be known of a method, where there is something.
func (m *method) note(name string, paths []policy.Value) string {
	var lines []string
	if sends(name) {
		lines = append(lines, fmt.Sprintf("sends data: %s, %s, %s", name, counted(m.count, "request"), term.FormatSize(m.sent)))
	}
	switch {
	case m.unclear > 0:
		lines = append(lines, "wide: every path for "+name+", as "+counted(m.unclear, "request")+" had one that no rule can name, such as with an escaped slash")
	case wide(paths):
		lines = append(lines, fmt.Sprintf("wide: every path for %s, as %d have nothing in common", name, len(m.paths)))
	case len(m.paths) > len(paths):
		lines = append(lines, fmt.Sprintf("%s: %d paths were asked for", name, len(m.paths)))
	}
	return strings.Join(lines, "\n")
}

func wide(paths []policy.Value) bool {
	return slices.ContainsFunc(paths, func(v policy.Value) bool { return v.Type == prefix && v.Value == "/" })
}

// sends reports whether requests of a method carry something out by their nature.
func sends(method string) bool {
	return !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, method)
}

// notes are what stands above a target's rule.
func (s *seen) notes() []string {
	what := map[policy.Protocol]string{policy.ProtocolHTTP: "request", policy.ProtocolUDP: "flow"}[s.protocol]
	if what == "" {
		what = "connection"
	}
	lines := []string{fmt.Sprintf("%s: %s, first at %s", s.name(), counted(s.count, what), s.first.UTC().Format("2006-01-02 15:04:05"))}
	switch s.protocol {
	case policy.ProtocolTLS:
		lines = append(lines, "wide: its TLS was passed through unread, with whatever was asked for")
	case policy.ProtocolTCP, policy.ProtocolUDP:
		lines = append(lines, "wide: any bytes, both ways")
	}
	if s.from != nil {
		lines[0] += ", by your rule " + s.from.ID
	}
	return lines
}

// warn collects what is not to be blessed in silence.
func (l *Learned) warn(found []*seen) {
	for _, s := range found {
		if s.protocol != policy.ProtocolHTTP {
			l.Warnings = append(l.Warnings, fmt.Sprintf("%s port %d is opened for any bytes", s.name(), s.port))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.methods)) {
			m := s.methods[name]
			if !sayable(name) {
				continue
			}
			if sends(name) && s.from == nil {
				l.Warnings = append(l.Warnings, fmt.Sprintf("%s to %s sends data", name, s.name()))
			}
			if m.unclear > 0 || wide(values(m.paths)) {
				l.Warnings = append(l.Warnings, fmt.Sprintf("%s to %s is opened for every path", name, s.name()))
			}
		}
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

var notID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9._:/-]`) })

// unused is an ID that no rule has yet, as close to name as can be.
func (l *Learned) unused(name string) string {
	const most = 56
	name = strings.TrimLeft(notID().ReplaceAllString(strings.ToLower(name), "-"), "._:/-")
	name = cmp.Or(name[:min(len(name), most)], "rule")
	if name == defaultRule {
		name = "default-"
	}
	id := name
	for n := 2; slices.ContainsFunc(l.Policy.Rules, func(r policy.Rule) bool { return r.ID == id }); n++ {
		id = name + "/" + strconv.Itoa(n)
	}
	return id
}
