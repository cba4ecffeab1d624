package inject

import (
	"net/url"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// queryPuts finds the secrets that go into the query, and refuses foreign
// credentials there. rest is the query without what will be replaced.
func (rw *rewrite) queryPuts() (puts []put, rest string, why *Refusal) {
	var keep strings.Builder
	seen := map[string]bool{}
	raw := rw.r.URL.RawQuery
	for at := 0; at <= len(raw) && raw != ""; {
		end := at + strings.IndexByte(raw[at:]+"&", '&')
		parameter := raw[at:end]
		u, why := rw.parameter(parameter, seen)
		if why != nil {
			return nil, "", why
		}
		if u != nil {
			u.start += at
			u.end += at
			puts = append(puts, *u)
			parameter = raw[at:u.start]
		}
		keep.WriteString(parameter + "&")
		at = end + 1
	}
	return puts, keep.String(), nil
}

// parameter looks at one parameter. It returns where in it a secret goes, or
// nil. Names that were seen before are in seen.
func (rw *rewrite) parameter(text string, seen map[string]bool) (*put, *Refusal) {
	rawName, rawValue, _ := strings.Cut(text, "=")
	name, value := unescapeQuery(rawName), unescapeQuery(rawValue)
	for _, s := range rw.secrets {
		if s.Query == "" || s.Query != name {
			continue
		}
		twice := seen[name]
		seen[name] = true
		want := rw.x.state.placeholders[s.Name]
		switch {
		case value == want && want != "" && !twice:
			return &put{secret: s, inQuery: true, start: len(text) - len(rawValue), end: len(text)}, nil
		case rw.hasPlaceholder(rawValue):
			return nil, misplaced("the query's parameter " + s.Query + ", and not alone")
		case !rw.guest:
			return nil, foreign("the query's parameter " + s.Query)
		}
		return nil, nil
	}
	if len(rw.secrets) == 0 || rw.guest || rw.hasPlaceholder(rawValue) {
		return nil, nil // a placeholder is found by the search of the rest
	}
	for rawName, rawValue := range field.Parameters(text) {
		if rawValue != "" && rw.credentialParameter(rawName) {
			return nil, foreign("the query's parameter " + strings.Trim(strings.ReplaceAll(field.Readings(rawName)[0], "-", "_"), "_"))
		}
	}
	return nil, nil
}

// unescapeQuery decodes a name or value of a query. What can't be decoded is
// returned as it is.
func unescapeQuery(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// escapeQuery writes v with every character escaped that could end a
// parameter, a space as %20: every reader understands that.
func escapeQuery(v string) string {
	return strings.ReplaceAll(url.QueryEscape(v), "+", "%20")
}
