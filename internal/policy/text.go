package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Describe is the rule in one line, for people: what it does, with whom, and
// what it asks for. It holds no secret, nor any certificate.
func Describe(r *Rule) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	action := r.Action
	if action == "" {
		action = actionAllow
	}
	add("%s %s", action, listed(append(slices.Clone(r.Hosts), r.Addresses...), 12))
	if how := carried(r); how != "" {
		add("%s", how)
	}
	if len(r.Matches) > 0 {
		var matches []string
		for i := range r.Matches {
			matches = append(matches, describeMatch(&r.Matches[i]))
		}
		add("for %s", strings.Join(matches, ", or "))
	}
	for i := range r.Secrets {
		add("with %s", describeSecret(&r.Secrets[i]))
	}
	if r.Auth == AuthGuest {
		add("and the guest's own credentials")
	}
	if r.Placeholders == PlaceholdersPass {
		add("and placeholders in bodies as they are")
	}
	if r.Roots != "" {
		add("under certificates of its own")
	}
	if l := describeLimits(&r.Limits); l != "" {
		add("at most %s", l)
	}
	return strings.Join(parts, " ")
}

// carried is "over https", "over tcp, port 5432".
func carried(r *Rule) string {
	ports := strings.Join(r.Ports, ", ")
	if ports == "" && r.Action != ActionDeny {
		set := make([]string, 0, 2)
		for _, p := range defaultPorts[protocol(r)] {
			set = append(set, p.String())
		}
		ports = strings.Join(set, ", ")
	}
	switch proto := protocol(r); {
	case proto == "" && ports == "":
		return ""
	case proto == "":
		return "on port " + ports
	case ports == "":
		return fmt.Sprintf("over %s", proto)
	case proto == ProtocolHTTP && ports == "443":
		return "over https"
	case proto == ProtocolTLS:
		return "over tls, unread, port " + ports
	default:
		return fmt.Sprintf("over %s, port %s", proto, ports)
	}
}

// protocol is what Compile makes of Protocol.
func protocol(r *Rule) Protocol {
	if r.Protocol == "" && (r.Action != ActionDeny || len(r.Matches) > 0) {
		return ProtocolHTTP
	}
	return r.Protocol
}

// describeMatch is the match in a few words: "GET HEAD /simple/...".
func describeMatch(m *Match) string {
	var parts []string
	if len(m.Methods) > 0 {
		parts = append(parts, strings.Join(m.Methods, " "))
	}
	var paths []string
	for _, v := range m.Paths {
		switch v.Type {
		case MatchExact, "Exact":
			paths = append(paths, Printable(v.Value))
		case matchRegex, regexOfHTTPRoute:
			paths = append(paths, "~"+Printable(v.Value))
		default:
			paths = append(paths, Printable(strings.TrimSuffix(v.Value, "/"))+"/...")
		}
	}
	if len(paths) > 0 {
		parts = append(parts, listed(paths, 12))
	}
	for _, f := range m.Headers {
		parts = append(parts, fmt.Sprintf("header %s %s", Printable(f.Name), compared(&f)))
	}
	for _, f := range m.Query {
		parts = append(parts, fmt.Sprintf("query %s %s", Printable(f.Name), compared(&f)))
	}
	if len(parts) == 0 {
		return "any request"
	}
	return strings.Join(parts, " ")
}

func compared(f *Field) string {
	if isRegex(f.Type) {
		return "~ " + Printable(f.Value)
	}
	return "= " + Printable(f.Value)
}

// describeSecret says which secret goes where, and never its value, which it has not.
func describeSecret(s *Secret) string {
	text := s.Name + " in " + place(s)
	if s.Scheme != "" {
		text += " (" + s.Scheme + ")"
	}
	if s.Ask {
		text += ", asked for"
	}
	if s.Optional {
		text += ", if given"
	}
	return text
}

// describeLimits lists the bounds that there are; "" for none.
func describeLimits(l *Limits) string {
	var parts []string
	for _, b := range []struct {
		n    int64
		what string
	}{
		{l.RequestBytes, "bytes a request"},
		{l.ResponseBytes, "bytes a response"},
		{int64(l.RequestsPerMinute), "requests a minute"},
		{l.Bytes, "bytes in all"},
	} {
		if b.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", b.n, b.what))
		}
	}
	return strings.Join(parts, ", ")
}

func listed(texts []string, most int) string {
	if len(texts) > most {
		return strings.Join(texts[:most], " ") + fmt.Sprintf(" and %d more", len(texts)-most)
	}
	return strings.Join(texts, " ")
}

// Printable shows a text as it is where a terminal would, and quoted where it
// would do something else.
func Printable(s string) string {
	if q := fmt.Sprintf("%+q", s); q != `"`+s+`"` {
		return q
	}
	return s
}
