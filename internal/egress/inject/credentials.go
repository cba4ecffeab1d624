package inject

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// credentialField reports whether a header field or a trailer of that name is
// taken to hold a credential, or for the place of a secret that is spelled
// otherwise. Those that are left out count as well.
func (rw *rewrite) credentialField(name string) bool {
	folded := field.Fold(name)
	return field.Of(folded)&field.Credential != 0 ||
		slices.ContainsFunc(rw.secrets, func(s policy.Secret) bool { return s.Header != "" && field.Fold(s.Header) == folded })
}

// unasked are fields that clients send of themselves, and that may be a credential
// somewhere: cookies that they were given, and the session's number that agents put
// beside each request to a model. They are left out where a secret goes.
var unasked = []string{"cookie", "x-session-id"}

// leftOut reports whether a field is one of those, and no other spelling of a
// secret's place.
func (rw *rewrite) leftOut(name string) bool {
	isOne := func(place string) bool { return field.Same(name, place) }
	return slices.ContainsFunc(unasked, isOne) &&
		!slices.ContainsFunc(rw.secrets, func(s policy.Secret) bool { return s.Header != "" && isOne(field.Fold(s.Header)) })
}

// credentialParameter does so for a query's parameter, whose name is as it
// came.
func (rw *rewrite) credentialParameter(raw string) bool {
	return field.Parameter(raw)&field.Credential != 0 ||
		slices.ContainsFunc(rw.secrets, func(s policy.Secret) bool { return s.Query != "" && field.Is(raw, folded(s.Query)) })
}

// folded is a place's name as some server may read it.
func folded(place string) string { return field.Readings(escapeQuery(place))[0] }

// hasValue reports whether any of a field's values is not empty.
func hasValue(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) != "" })
}

// partial are fields that ask for a part of an answer.
var partial = []string{"range", "if-range", "request-range"}

// refuseMethod refuses what would get a value past the search of the answer.
func refuseMethod(r *http.Request) *Refusal {
	if echoing(r.Method) || asksForEcho(r) {
		return &Refusal{
			Code: CodeTrace, Status: http.StatusForbidden,
			Reason: "requests that ask for their own headers back are refused where the policy puts a secret in",
		}
	}
	for name := range r.Header {
		if slices.ContainsFunc(partial, func(p string) bool { return field.Same(name, p) }) {
			return &Refusal{
				Code: CodeRange, Status: http.StatusForbidden,
				Reason: name + " is refused where the policy puts a secret in: a part of an answer can't be searched for it",
				Hint:   "ask for the whole",
			}
		}
	}
	return nil
}

func echoing(method string) bool {
	method = strings.TrimSpace(method)
	return strings.EqualFold(method, "TRACE") || strings.EqualFold(method, "TRACK") || strings.EqualFold(method, "DEBUG")
}

// asksForEcho reports whether a field or a parameter has some server take the
// request for one of those methods.
func asksForEcho(r *http.Request) bool {
	const names = field.Method | field.Word
	for name, values := range r.Header {
		if slices.ContainsFunc(values, echoing) && field.Header(name)&names != 0 {
			return true
		}
	}
	for name, value := range field.Parameters(r.URL.RawQuery) {
		if echoing(field.Decode(value)) && field.Parameter(name)&names != 0 {
			return true
		}
	}
	return false
}

// drop takes the fields out of h that some server takes for one of folded.
func drop(h http.Header, folded ...string) {
	for name := range h {
		if slices.ContainsFunc(folded, func(f string) bool { return field.Same(name, f) }) {
			delete(h, name)
		}
	}
}
