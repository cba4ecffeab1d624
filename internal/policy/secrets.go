package policy

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// Where a Basic credential's user is none of the secret's business: what
// GitHub and others take for tokens.
const basicUser = "x-access-token"

// forbiddenHeaders frame a message or say whom it is for, beside those that
// field knows: a value in one of them would change what the gate has already
// decided on.
var forbiddenHeaders = []string{"host", "connection", "upgrade", "te", "trailer", "expect", "range", "cookie"}

// forbidden reports whether no secret may go to a header field of that name.
func forbidden(name string) bool {
	folded := field.Fold(name)
	return slices.Contains(forbiddenHeaders, folded) || field.Of(folded)&(field.Method|field.Path|field.Read) != 0
}

// compileSecrets fills route with the secrets that the sandbox was given.
func compileSecrets(where string, r *Rule, given []string, route *Route, p *Errors) {
	if len(r.Secrets) > 0 && len(r.Hosts) == 0 {
		p.Add(where+".hosts", "a secret goes to a host by name, so that its certificate shows who it is", "hosts: [api.example.com]; addresses beside them open theirs")
	}
	places := map[string]bool{}
	for i := range r.Secrets {
		s, where := &r.Secrets[i], at(where+".secrets", i)
		compilePlace(where, s, p)
		name := place(s)
		if places[placeKey(s)] {
			p.Addf(where, "one secret to a place", "two secrets for %s", name)
		}
		places[placeKey(s)] = true
		if s.Ask && r.Action == ActionAsk {
			p.Add(where+".ask", "every request of the rule is asked for, and its secrets with it", "leave ask out here, or in action")
		}
		switch {
		case !secretForm().MatchString(s.Name):
			p.Addf(where+".name", "letters, digits and _, such as GITHUB_TOKEN", "%s is no name of a secret", Quoted(s.Name))
		case slices.Contains(given, s.Name):
			route.Secrets = append(route.Secrets, *s)
		case !s.Optional:
			p.Addf(where+".name", "--secret "+s.Name, "the sandbox was not given the secret %s", s.Name)
		}
	}
}

// place names where a secret goes, for people.
func place(s *Secret) string {
	switch {
	case s.Header != "":
		return "header " + s.Header
	case s.Query != "":
		return fmt.Sprintf("query parameter %q", s.Query)
	}
	return fmt.Sprintf("body field %q", s.Body)
}

// placeKey is the same for places that are one to some server.
func placeKey(s *Secret) string {
	switch {
	case s.Header != "":
		return "header " + field.Fold(s.Header)
	case s.Query != "":
		return "query " + field.Readings(url.QueryEscape(s.Query))[0]
	}
	return place(s)
}

func compilePlace(where string, s *Secret, p *Errors) {
	n := 0
	for _, place := range []string{s.Header, s.Query, s.Body} {
		if place != "" {
			n++
		}
	}
	if n != 1 {
		p.Add(where, "a secret goes to exactly one of header, query and body", "header: Authorization")
		return
	}
	if s.Header == "" {
		if s.Scheme != "" || s.Username != "" {
			p.Add(where, "scheme and username are of headers", "")
		}
		if strings.ContainsFunc(s.Query+s.Body, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			p.Add(where, "a control character in the name of a field", "")
		}
		return
	}
	s.Header = textproto.CanonicalMIMEHeaderKey(s.Header)
	if !token(s.Header) || forbidden(s.Header) {
		p.Addf(where+".header", "Authorization, X-Api-Key", "%s is no header that a secret can go to", Quoted(s.Header))
	}
	compileScheme(where, s, p)
}

func compileScheme(where string, s *Secret, p *Errors) {
	if s.Header == "Authorization" && s.Scheme == "" {
		s.Scheme = "Bearer"
	}
	switch strings.ToLower(s.Scheme) {
	case "":
	case "bearer":
		s.Scheme = "Bearer"
	case "basic":
		s.Scheme = "Basic"
		if s.Username == "" {
			s.Username = basicUser
		}
	case "token":
		s.Scheme = "token"
	default:
		p.Addf(where+".scheme", "Bearer, Basic or token", "%s is no scheme", Quoted(s.Scheme))
	}
	switch {
	case s.Username != "" && s.Scheme != "Basic":
		p.Add(where+".username", "only Basic has a username", "scheme: Basic")
	case strings.ContainsFunc(s.Username, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' }) || len(s.Username) > maxText:
		p.Addf(where+".username", "without colons", "%s is no username", Quoted(s.Username))
	}
}
