package policy

import (
	"cmp"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// match is a Match made ready.
type match struct {
	methods []string
	paths   []text
	headers []matchedField
	query   []matchedField
}

// text is a Value made ready. Of a denying rule it is fold: what differs in
// case, or by a final slash, is the same thing to too many servers.
type text struct {
	kind  MatchType
	value string
	re    *regex
	fold  bool
}

type matchedField struct {
	name   string
	folded string // what names that some server takes for it have in common
	text   text
}

func (t *text) matches(s string) bool {
	if t.kind == matchRegex {
		return t.re.matches(s)
	}
	if t.fold {
		s = strings.ToLower(s)
	}
	if t.kind == matchPrefix {
		return underPrefix(s, t.value)
	}
	return s == t.value || t.fold && strings.TrimSuffix(s, "/") == strings.TrimSuffix(t.value, "/")
}

// asked is a request under examination. What is costly is worked out once,
// and only where a rule wants it.
type asked struct {
	*Request

	path, pathProblem string
	pathDone          bool
	query             url.Values
	queryBad          bool
	queryDone         bool
	overridden        *overrides
}

func (a *asked) cleanPath() (path, problem string) {
	if !a.pathDone {
		a.path, a.pathProblem = CleanPath(a.URL)
		a.pathDone = true
	}
	return a.path, a.pathProblem
}

func (a *asked) queryValues() (values url.Values, bad bool) {
	if !a.queryDone {
		var err error
		a.query, err = url.ParseQuery(a.URL.RawQuery)
		a.queryBad, a.queryDone = err != nil, true
	}
	return a.query, a.queryBad
}

// rank orders matches by how much they say: the path, then methods, headers
// and query.
type rank struct {
	path, length, methods, headers, query int
}

func (r rank) compare(o rank) int {
	return cmp.Or(
		cmp.Compare(r.path, o.path), cmp.Compare(r.length, o.length), cmp.Compare(r.methods, o.methods),
		cmp.Compare(r.headers, o.headers), cmp.Compare(r.query, o.query))
}

// allows reports whether a request matches for a rule that allows: nothing
// about it may be in doubt, and of several values each must hold.
func (m *match) allows(a *asked) (rank, bool) {
	r := rank{headers: len(m.headers), query: len(m.query)}
	if len(m.methods) > 0 {
		if !slices.Contains(m.methods, a.Method) || !a.onlyMeans(m.methods) {
			return r, false
		}
		r.methods = 1
	}
	if len(m.paths) > 0 && (a.meansOtherPath() || !m.bestPath(a, &r)) {
		return r, false
	}
	for i := range m.headers {
		f := &m.headers[i]
		if len(a.Header[f.name]) == 0 || !each(a.alike(f), &f.text) {
			return r, false
		}
	}
	if len(m.query) > 0 {
		values, bad := a.queryValues()
		if bad {
			return r, false
		}
		for i := range m.query {
			f := &m.query[i]
			if len(values[f.name]) == 0 || !each(a.parametersAlike(f), &f.text) {
				return r, false
			}
		}
	}
	return r, true
}

func (m *match) bestPath(a *asked, r *rank) bool {
	path, problem := a.cleanPath()
	if problem != "" {
		return false
	}
	for i := range m.paths {
		t := &m.paths[i]
		if kindRank(t.kind) < r.path || !t.matches(path) {
			continue
		}
		if c := (rank{path: kindRank(t.kind), length: len(t.value)}); (rank{path: r.path, length: r.length}).compare(c) < 0 {
			r.path, r.length = c.path, c.length
		}
	}
	return r.path > 0
}

func kindRank(t MatchType) int {
	switch t {
	case MatchExact:
		return 3
	case matchPrefix:
		return 2
	}
	return 1
}

func each(values []string, t *text) bool {
	for _, v := range values {
		if !t.matches(v) {
			return false
		}
	}
	return len(values) > 0
}

// denial is what a denying match says of a request.
type denial int

const (
	denialNone  denial = iota
	denialDoubt        // it can't be told, and so it is not let through
	denialHit
)

// denies reports whether a request matches for a rule that denies: doubt is
// enough, and so is one value of several.
func (m *match) denies(a *asked) denial {
	if len(m.methods) > 0 && !slices.ContainsFunc(m.methods, a.mayMean) {
		return denialNone
	}
	for i := range m.headers {
		if !slices.ContainsFunc(a.alike(&m.headers[i]), m.headers[i].text.matches) {
			return denialNone
		}
	}
	verdict := denialHit
	if len(m.query) > 0 {
		_, bad := a.queryValues()
		if bad {
			verdict = denialDoubt
		}
		for i := range m.query {
			if !bad && !slices.ContainsFunc(a.parametersAlike(&m.query[i]), m.query[i].text.matches) {
				return denialNone
			}
		}
	}
	if len(m.paths) > 0 {
		path, problem := a.cleanPath()
		if problem != "" || a.meansOtherPath() {
			return denialDoubt
		}
		if !slices.ContainsFunc(m.paths, func(t text) bool { return t.matches(path) }) {
			return denialNone
		}
	}
	return verdict
}

// compileMatch makes one ready, and tells what is wrong with it.
func compileMatch(where string, m *Match, deny bool, exprs expressions, p *Errors) match {
	var out match
	if len(m.Methods)+len(m.Paths)+len(m.Headers)+len(m.Query) == 0 {
		p.Add(where, "an empty match", "it would match every request: leave matches out for that")
	}
	for i, method := range m.Methods {
		m.Methods[i] = strings.ToUpper(method)
		if !token(method) || len(method) > 40 {
			p.Addf(at(where+".methods", i), "GET", "%s is no method", Quoted(method))
		}
	}
	out.methods = m.Methods
	for i := range m.Paths {
		v := &m.Paths[i]
		out.paths = append(out.paths, compilePath(at(where+".paths", i), v, deny, exprs, p))
	}
	for i := range m.Headers {
		f := &m.Headers[i]
		f.Name = textproto.CanonicalMIMEHeaderKey(f.Name)
		checkHeader(at(where+".headers", i), f.Name, p)
		out.headers = append(out.headers, compileField(at(where+".headers", i), f, field.Fold(f.Name), exprs, p))
	}
	for i := range m.Query {
		f := &m.Query[i]
		if f.Name == "" {
			p.Add(at(where+".query", i)+".name", "no parameter is named", "")
		}
		out.query = append(out.query, compileField(at(where+".query", i), f, field.Readings(url.QueryEscape(f.Name))[0], exprs, p))
	}
	return out
}

func checkHeader(where, name string, p *Errors) {
	switch {
	case !token(name):
		p.Addf(where+".name", "", "%s is no header", Quoted(name))
	case field.Fold(name) == "host":
		p.Add(where+".name", "the host is in Host, and a rule's hosts are what it is compared with", "hosts: [example.com]")
	case slices.Contains([]string{"authorization", "proxy-authorization", "cookie"}, field.Fold(name)):
		p.Addf(where+".name", "secrets say where one goes", "%s would put a credential into the policy", name)
	}
}

func compileField(where string, f *Field, folded string, exprs expressions, p *Errors) matchedField {
	t := text{kind: kind(where+".type", &f.Type, MatchExact, p), value: f.Value}
	if t.kind == matchPrefix {
		p.Add(where+".type", "\"prefix\" is for paths", "a regex: \"text.*\"")
	}
	if t.kind == matchRegex {
		t.re = exprs.of(where+".value", expression{f.Value, false}, p)
	}
	return matchedField{name: f.Name, folded: folded, text: t}
}

func compilePath(where string, v *Value, deny bool, exprs expressions, p *Errors) text {
	t := text{kind: kind(where+".type", &v.Type, matchPrefix, p), value: v.Value, fold: deny}
	if t.kind == matchRegex {
		t.re = exprs.of(where+".value", expression{v.Value, deny}, p)
		return t
	}
	if problem := pathProblem(v.Value); problem != "" {
		p.Addf(where+".value", "paths are written decoded, from / on, without . and .. and //", "%s %s", Quoted(v.Value), problem)
	}
	if deny {
		t.value = strings.ToLower(t.value)
	}
	return t
}

// kind reads a type by our name or by HTTPRoute's, and writes ours back.
func kind(where string, t *MatchType, none MatchType, p *Errors) MatchType {
	switch *t {
	case "":
		*t = none
	case MatchExact, matchPrefix, matchRegex:
	case "Exact":
		*t = MatchExact
	case "PathPrefix":
		*t = matchPrefix
	case regexOfHTTPRoute:
		*t = matchRegex
	default:
		p.Addf(where, "exact, prefix or regex", "%s is no way to compare", Quoted(string(*t)))
	}
	return *t
}

// token reports whether s is one of RFC 9110: a method, a header's name.
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
