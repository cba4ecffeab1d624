package ingress

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// secretHeaders are for the daemon alone. What runs in a sandbox must not
// learn how to speak to it.
var secretHeaders = []string{field.Fold(headerToken), field.Fold(headerSandbox), field.Fold(headerPort), field.Fold(headerTraffic)}

// dropSecretHeaders drops those, however a server inside may spell them.
func dropSecretHeaders(h http.Header) {
	for name := range h {
		if slices.Contains(secretHeaders, field.Fold(name)) {
			delete(h, name)
		}
	}
}

// dropSecrets takes a key or a token of ours out of what a server inside reads, wherever its
// caller put it: in any field, a cookie or the query. What else is there stays.
func dropSecrets(out *http.Request, ours func(string) bool) {
	for name, values := range out.Header {
		part := ""
		if field.Fold(name) == "cookie" {
			part = ";" // the others stay
		}
		if left := withoutSecrets(values, part, ours); len(left) > 0 {
			out.Header[name] = left
		} else {
			delete(out.Header, name)
		}
	}
	if query := out.URL.RawQuery; hasSecret(field.Decode(query), ours) {
		out.URL.RawQuery = strings.Join(slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
			return hasSecret(field.Decode(pair), ours)
		}), "&")
	}
}

// withoutSecrets returns the values that have no word of ours, or the parts of them where
// they have parts.
func withoutSecrets(values []string, part string, ours func(string) bool) (left []string) {
	for _, v := range values {
		switch {
		case !hasSecret(v, ours):
			left = append(left, v)
		case part != "":
			rest := slices.DeleteFunc(strings.Split(v, part), func(one string) bool { return hasSecret(one, ours) })
			if len(rest) > 0 {
				left = append(left, strings.TrimSpace(strings.Join(rest, part)))
			}
		}
	}
	return left
}

func hasSecret(text string, ours func(string) bool) bool {
	return slices.ContainsFunc(words(text), ours)
}

// words are the parts of a text, and what Basic and its like have encoded.
func words(v string) []string {
	apart := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`,;:="'&?/#`, r) })
	}
	all := apart(v)
	for _, w := range slices.Concat(strings.Fields(v), all) {
		for _, how := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if b, err := how.DecodeString(strings.TrimRight(w, "=")); err == nil {
				all = append(all, apart(string(b))...)
			}
		}
	}
	return all
}
