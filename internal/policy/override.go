package policy

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// overrides is what a request says beside its first line about what it stands
// for, in fields and parameters that many servers obey.
type overrides struct {
	methods []string // in upper case
	path    bool
	by      string // what says so, for people; "" where nothing does
}

func (a *asked) overrides() *overrides {
	if a.overridden == nil {
		a.overridden = a.findOverrides()
	}
	return a.overridden
}

// Overridden says what has some servers take the request for another one, by its
// method or path: "its field X-Http-Method-Override …"; "" where nothing does.
func (r *Request) Overridden() string {
	if a := (&asked{Request: r}); a.overrides().by != "" {
		return a.doubt()
	}
	return ""
}

func (a *asked) findOverrides() *overrides {
	o := &overrides{}
	for name, values := range a.Header {
		if folded := field.Fold(name); len(values) > 0 {
			o.add(field.Of(folded), "field "+textproto.CanonicalMIMEHeaderKey(folded), values...)
		}
	}
	for name, value := range field.Parameters(a.URL.RawQuery) {
		if use := field.Parameter(name); use != 0 {
			o.add(use, "parameter "+strings.ReplaceAll(field.Readings(name)[0], "-", "_"), field.Decode(value))
		}
	}
	return o
}

func (o *overrides) add(use field.Use, by string, values ...string) {
	for _, v := range values {
		v = strings.ToUpper(strings.TrimSpace(v))
		if use&field.Method != 0 || use&field.Word != 0 && field.IsMethod(v) {
			o.methods, o.by = append(o.methods, v), by
		}
	}
	if use&field.Path != 0 {
		o.path, o.by = true, by
	}
}

// onlyMeans reports whether the request, to whatever server, has one of
// methods.
func (a *asked) onlyMeans(methods []string) bool {
	return !slices.ContainsFunc(a.overrides().methods, func(m string) bool { return !slices.Contains(methods, m) })
}

// mayMean reports whether the request has a method to some server.
func (a *asked) mayMean(method string) bool {
	// A server may take a list apart.
	return strings.EqualFold(a.Method, method) ||
		slices.ContainsFunc(a.overrides().methods, func(m string) bool { return strings.Contains(m, method) })
}

// meansOtherPath reports whether some server would take another path for the
// request's.
func (a *asked) meansOtherPath() bool { return a.overrides().path }

// alike returns the values of the header fields that some server takes for the
// one called name.
func (a *asked) alike(f *matchedField) (values []string) {
	for name, v := range a.Header {
		if name == f.name || field.Fold(name) == f.folded {
			values = append(values, v...)
		}
	}
	return values
}

// parametersAlike does so for parameters.
func (a *asked) parametersAlike(f *matchedField) (values []string) {
	for name, value := range field.Parameters(a.URL.RawQuery) {
		if field.Decode(name) == f.name || field.Is(name, f.folded) {
			values = append(values, field.Decode(value))
		}
	}
	return values
}
