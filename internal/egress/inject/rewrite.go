package inject

import (
	"cmp"
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// rewrite is what is to be done to a request. It is made whole before anything of
// the request's head is changed.
type rewrite struct {
	ctx     context.Context
	x       *Exchange
	r       *http.Request
	secrets []policy.Secret
	guest   bool // credentials of the guest's own are let through

	header map[string]string // fields to set, in canonical form
	query  *string
	body   *body
	values map[string]string // of the secrets that go in
}

// make checks the request, and finds out what to do to it.
func (rw *rewrite) make() *Refusal {
	rw.values = map[string]string{}
	if len(rw.secrets) > 0 && !weak.On(weak.NetPartsPass) {
		if why := refuseMethod(rw.r); why != nil {
			return why
		}
	}
	if len(rw.secrets) > 0 && !searchable(rw.r.Header) {
		return unreadable(http.StatusForbidden, "what the connection is to become")
	}
	var puts []put
	headers, why := rw.headerPuts()
	if why != nil {
		return why
	}
	puts = append(puts, headers...)
	query, rest, why := rw.queryPuts()
	if why != nil {
		return why
	}
	puts = append(puts, query...)
	if why := rw.foreign(); why != nil {
		return why
	}
	if why := rw.search(puts, rest); why != nil {
		return why
	}
	b, inBody, why := rw.readBody()
	if why != nil {
		return why
	}
	rw.body = b
	puts = append(puts, inBody...)
	if why := rw.consent(puts); why != nil {
		return why
	}
	for _, u := range puts {
		if why := rw.fetch(u.secret); why != nil {
			return why
		}
	}
	return rw.fill(puts)
}

// put is one secret at its place: a header, a place in the query, or one in
// the body.
type put struct {
	secret     policy.Secret
	header     string // canonical; "" for others
	inQuery    bool
	start, end int // of what is replaced in the query or the body
}

// headerPuts finds the secrets that go into header fields.
func (rw *rewrite) headerPuts() (puts []put, why *Refusal) {
	byField := map[string][]policy.Secret{}
	for _, s := range rw.secrets {
		if s.Header != "" {
			name := http.CanonicalHeaderKey(s.Header)
			byField[name] = append(byField[name], s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byField)) {
		values := rw.r.Header.Values(name)
		if !hasValue(values) {
			puts = append(puts, put{secret: byField[name][0], header: name})
			continue
		}
		i := slices.IndexFunc(byField[name], func(s policy.Secret) bool {
			return len(values) == 1 && rw.holds(values[0], s)
		})
		switch {
		case i >= 0:
			puts = append(puts, put{secret: byField[name][i], header: name})
		case rw.hasPlaceholder(values...):
			return nil, misplaced("the field " + name + ", not in the form that the rule asks for")
		case !rw.guest:
			return nil, foreign("the field " + name)
		}
	}
	return puts, nil
}

// holds reports whether a field's value is the placeholder of s and nothing
// else. In Authorization it may be in any of the schemes: what is sent on is
// in the rule's own.
func (rw *rewrite) holds(value string, s policy.Secret) bool {
	want := rw.x.state.placeholders[s.Name]
	if want == "" {
		return false
	}
	scheme, rest, spaced := strings.Cut(strings.TrimSpace(value), " ")
	rest = strings.TrimSpace(rest)
	if !strings.EqualFold(s.Header, "Authorization") {
		if s.Scheme == "" {
			return !spaced && scheme == want
		}
		return strings.EqualFold(scheme, s.Scheme) && rest == want
	}
	if strings.EqualFold(scheme, "Basic") {
		plain, err := base64.StdEncoding.DecodeString(rest)
		_, password, ok := strings.Cut(string(plain), ":")
		return err == nil && ok && password == want
	}
	known := strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, s.Scheme)
	return known && rest == want
}

// foreign refuses credentials that the gate did not supply.
func (rw *rewrite) foreign() *Refusal {
	if len(rw.secrets) == 0 || rw.guest {
		return nil
	}
	if rw.r.URL.User != nil {
		return foreign("the URL")
	}
	place := map[string]bool{}
	for _, s := range rw.secrets {
		place[http.CanonicalHeaderKey(s.Header)] = true
	}
	for i, h := range []http.Header{rw.r.Header, rw.r.Trailer} {
		for _, name := range slices.Sorted(maps.Keys(h)) {
			if place[name] || !rw.credentialField(name) || !hasValue(h[name]) || i == 0 && rw.leftOut(name) && !rw.hasPlaceholder(h[name]...) {
				continue
			}
			if rw.hasPlaceholder(h[name]...) {
				return misplaced("the field " + name)
			}
			return foreign("the field " + name)
		}
	}
	return nil
}

// search refuses placeholders in what is not replaced: rest is of the query.
func (rw *rewrite) search(puts []put, rest string) *Refusal {
	if rw.x.state.search == nil {
		return nil
	}
	u := rw.r.URL
	user := ""
	if u.User != nil {
		user = u.User.String()
	}
	if rw.hasPlaceholder(u.EscapedPath(), u.Path, u.Opaque, u.Host, u.Fragment, user, rw.r.Host, rw.r.Method) {
		return misplaced("the URL")
	}
	if rw.hasPlaceholder(rest) {
		return misplaced("the query")
	}
	taken := map[string]bool{}
	for _, u := range puts {
		taken[u.header] = true
	}
	for name, values := range rw.r.Header {
		if !taken[name] && rw.hasPlaceholder(values...) || rw.hasPlaceholder(asPlaceholder(name)) {
			return misplaced("a header field")
		}
	}
	return rw.searchTrailer()
}

func (rw *rewrite) searchTrailer() *Refusal {
	for name, values := range rw.r.Trailer {
		if rw.hasPlaceholder(values...) || rw.hasPlaceholder(asPlaceholder(name)) {
			return misplaced("a trailer")
		}
	}
	return nil
}

// asPlaceholder is a field's name with the case and the separators of a
// placeholder, which names lose on their way.
func asPlaceholder(name string) string { return strings.ReplaceAll(field.Fold(name), "-", "_") }

// hasPlaceholder reports whether one of texts holds a placeholder.
func (rw *rewrite) hasPlaceholder(texts ...string) bool {
	return rw.x.state.search.in(texts...)
}

// in reports whether one of texts holds what m searches for; m may be nil.
func (m *matcher) in(texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return m.text(t) == found })
}

// within reports the same, and whether one ends in the most of it: a server may
// cut what it repeats.
func (m *matcher) within(texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return m.text(t) != clean })
}

// text searches one that is whole.
func (m *matcher) text(t string) outcome {
	if m == nil || len(t) <= minPattern/2 {
		return clean
	}
	s := searcher{m: m}
	if o := s.feed([]byte(t)); o != clean {
		return o
	}
	return s.end()
}

// searchWhole searches all that there is.
func searchWhole(s scanner, b []byte) outcome {
	if o := s.feed(b); o != clean {
		return o
	}
	return s.end()
}

// fetch gets the value of s.
func (rw *rewrite) fetch(s policy.Secret) *Refusal {
	if _, ok := rw.values[s.Name]; ok {
		return nil
	}
	v, err := rw.x.guard.value(rw.ctx, s.Name)
	switch {
	case err != nil:
		return unavailable(s.Name, "could not be had")
	case len(v) < minPattern:
		return unavailable(s.Name, "is too short to be looked for in answers")
	case s.Header != "" && !httpguts.ValidHeaderFieldValue(v):
		return unavailable(s.Name, "holds characters that no header field may have")
	}
	rw.values[s.Name] = v
	return nil
}

// fill works out the fields, the query and the body with the values in them.
func (rw *rewrite) fill(puts []put) *Refusal {
	query := rw.r.URL.RawQuery
	// From the end on, so that the places before stay where they are.
	slices.SortFunc(puts, func(a, b put) int { return cmp.Compare(b.start, a.start) })
	for _, u := range puts {
		v := rw.values[u.secret.Name]
		switch {
		case u.header != "":
			rw.header[u.header] = headerValue(u.secret, v)
		case u.inQuery:
			query = query[:u.start] + escapeQuery(v) + query[u.end:]
			rw.query = &query
		default:
			rw.body.replace(u, v)
		}
	}
	rw.x.used = slices.Sorted(maps.Keys(rw.values))
	if len(rw.secrets) > 0 {
		rw.x.known = rw.x.guard.remember(rw.values, rw.secrets)
		rw.x.values = rw.x.guard.searchFor(rw.x.known)
	}
	return nil
}

// headerValue writes v as s wants it.
func headerValue(s policy.Secret, v string) string {
	scheme := s.Scheme
	if scheme == "" && strings.EqualFold(s.Header, "Authorization") {
		scheme = "Bearer"
	}
	switch {
	case strings.EqualFold(scheme, "Basic"):
		user := cmp.Or(s.Username, "x-access-token")
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+v))
	case scheme != "":
		return scheme + " " + v
	default:
		return v
	}
}

// apply changes the request.
func (rw *rewrite) apply() {
	for name, v := range rw.header {
		rw.r.Header[name] = []string{v}
	}
	if rw.query != nil {
		rw.r.URL.RawQuery = *rw.query
	}
	if len(rw.secrets) > 0 && !rw.guest {
		maps.DeleteFunc(rw.r.Header, func(name string, _ []string) bool { return rw.leftOut(name) })
	}
	if websocket(rw.r.Header) {
		// Compressed messages could not be searched.
		drop(rw.r.Header, "sec-websocket-extensions")
	}
	if rw.x.values != nil {
		acceptReadable(rw.r.Header)
	}
	rw.body.apply(rw.r)
}

// websocket reports whether h asks for a WebSocket and nothing else, or grants
// one.
func websocket(h http.Header) bool { return upgrades(h, "websocket") }

// searchable reports whether h upgrades to nothing, or to what can be searched:
// WebSocket, and Docker's "tcp", which is bytes as they are. Another protocol
// may compress or mask what it carries.
func searchable(h http.Header) bool {
	return len(h["Upgrade"]) == 0 || websocket(h) || upgrades(h, "tcp")
}

func upgrades(h http.Header, to string) bool {
	values := h["Upgrade"]
	return len(values) == 1 && strings.EqualFold(strings.TrimSpace(values[0]), to)
}

// acceptReadable takes from h what would bring an answer that has to be
// decoded otherwise than by gzip.
func acceptReadable(h http.Header) {
	accept := "identity"
	if acceptsGzip(h.Values("Accept-Encoding")) {
		accept = "gzip"
	}
	drop(h, "accept-encoding", "grpc-accept-encoding", "connect-accept-encoding")
	h.Set("Accept-Encoding", accept)
}

func acceptsGzip(values []string) bool {
	for _, v := range values {
		for coding := range strings.SplitSeq(v, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			_, q, weighed := strings.Cut(weight, "=")
			f, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !weighed || err == nil && f > 0
		}
	}
	return false
}
