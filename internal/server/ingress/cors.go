package ingress

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
)

// What pages of browsers may do. They reach sandboxes alone, never the API,
// and bring no right of their own along: what lets a request in is a header
// that a page has to know, never a cookie, nor where the page comes from. So
// any page may ask a guest agent, as with E2B, and read what it answers. What
// a server inside answers to pages is its own to say.
const (
	preflightAge  = "7200" // seconds
	maxAskHeaders = 4 << 10
)

// agentMethods are what a page may ask a guest agent with.
var agentMethods = []string{
	http.MethodHead, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// exposed are the headers that a page may read besides those that any may.
var exposed = strings.Join([]string{
	"Content-Encoding", "Connect-Content-Encoding", "Grpc-Status", "Grpc-Message",
	"Location", "Cache-Control", "X-Content-Type-Options", "Content-Length", "Content-Disposition",
	api.HeaderError, api.HeaderNotice, api.HeaderStarts,
}, ", ")

// FromPage reports whether a page in a browser made it send r.
func FromPage(h http.Header) bool {
	return h.Values("Origin") != nil || h.Values("Referer") != nil || fromAnotherSite(h)
}

func fromAnotherSite(h http.Header) bool {
	for _, v := range h.Values("Sec-Fetch-Site") {
		if v != "none" {
			return true
		}
	}
	return false
}

// isPreflight reports whether r asks for a page what it may send.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && len(r.Header.Values("Origin")) == 1 &&
		len(r.Header.Values("Access-Control-Request-Method")) == 1
}

// asksFor reports whether a preflight is for a request with a header.
func asksFor(r *http.Request, name string) bool {
	for _, v := range r.Header.Values("Access-Control-Request-Headers") {
		for h := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(h), name) {
				return true
			}
		}
	}
	return false
}

// IsTargetPreflight reports whether r asks for a request that names its
// sandbox by headers, which a preflight does not have itself. Such a request
// is for the sandbox, and the API never sees it.
func IsTargetPreflight(r *http.Request) bool { return isPreflight(r) && asksFor(r, headerSandbox) }

// AnswerPreflight answers in a guest's place.
func AnswerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Add("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	method := r.Header.Get("Access-Control-Request-Method")
	headers := strings.Join(r.Header.Values("Access-Control-Request-Headers"), ", ")
	if slices.Contains(agentMethods, method) && fieldNames(headers) {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", method)
		if headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		h.Set("Access-Control-Max-Age", preflightAge)
	}
	w.WriteHeader(http.StatusNoContent)
}

// fieldNames reports whether s is a list of header names, and a short one.
func fieldNames(s string) bool {
	return len(s) <= maxAskHeaders && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != ',' && c != ' '
	})
}

// letPagesRead has a browser hand an answer to the page that asked.
func letPagesRead(h, asked http.Header) {
	if asked.Values("Origin") != nil {
		h.Add("Vary", "Origin")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", exposed)
	}
}

// hostOnlyCookies keeps a server inside from setting cookies for the other
// sandboxes' names: one for the domain, or for what is above it, becomes one
// for the name that it was set under.
func hostOnlyCookies(h http.Header, domain string) {
	all := h["Set-Cookie"]
	if domain == "" {
		return
	}
	for i, c := range all {
		parts := strings.Split(c, ";")
		kept := slices.DeleteFunc(parts[1:], func(p string) bool {
			name, value, _ := strings.Cut(p, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "domain") {
				return false
			}
			of := strings.Trim(strings.ToLower(value), ". \t\"") // a dot at the end names the same
			return of == domain || strings.HasSuffix(domain, "."+of)
		})
		all[i] = strings.Join(append(parts[:1], kept...), ";")
	}
}

// LetPages is what a server without a guard would do, and be read from pages.
func LetPages(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if isPreflight(r) {
		AnswerPreflight(w, r)
		return
	}
	letPagesRead(w.Header(), r.Header)
	next.ServeHTTP(w, r)
}
