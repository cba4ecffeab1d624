package policy

import (
	"slices"
	"strings"
)

// otherMethod and otherPath are fields by which many servers let a request
// stand for another than its first line says. No standard has them, so that
// a server can't be known to ignore them.
var (
	otherMethod = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}
	otherPath   = []string{"X-Original-Url", "X-Rewrite-Url"}
)

// onlyMeans reports whether the request, to whatever server, has one of
// methods.
func (a *asked) onlyMeans(methods []string) bool {
	for _, name := range otherMethod {
		for _, v := range a.Header[name] {
			if !slices.Contains(methods, strings.ToUpper(strings.TrimSpace(v))) {
				return false
			}
		}
	}
	return true
}

// mayMean reports whether the request has a method to some server.
func (a *asked) mayMean(method string) bool {
	if strings.EqualFold(a.Method, method) {
		return true
	}
	for _, name := range otherMethod {
		// A server may take a list apart.
		if slices.ContainsFunc(a.Header[name], func(v string) bool { return strings.Contains(strings.ToUpper(v), method) }) {
			return true
		}
	}
	return false
}

// meansOtherPath reports whether some server would take another path for the
// request's.
func (a *asked) meansOtherPath() bool {
	return slices.ContainsFunc(otherPath, func(name string) bool { return len(a.Header[name]) > 0 })
}

// meansOther reports whether the request says in a field what it stands for.
func (a *asked) meansOther() bool {
	return a.meansOtherPath() || slices.ContainsFunc(otherMethod, func(name string) bool { return len(a.Header[name]) > 0 })
}
