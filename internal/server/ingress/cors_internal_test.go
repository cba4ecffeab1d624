package ingress

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzHostOnlyCookies: no cookie is left for the domain, nor for what is above
// it, and what is left of one is what it was.
func FuzzHostOnlyCookies(f *testing.F) {
	for _, c := range []string{"a=b", "a=b; Domain=b.example", "a=b;domain = .EXAMPLE ;Path=/", "a=b; Domain=b.example; Domain=x", "; Domain=b.example", "domain=b.example"} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, c string) {
		h := http.Header{"Set-Cookie": {c}}
		hostOnlyCookies(h, "b.example")
		got := h["Set-Cookie"][0]
		if first, _, _ := strings.Cut(c, ";"); !strings.HasPrefix(got, first) {
			t.Errorf("%q became %q", c, got)
		}
		if parsed, err := http.ParseSetCookie(got); err == nil && parsed.Domain != "" {
			if d := strings.TrimPrefix(strings.ToLower(parsed.Domain), "."); d == "b.example" || d == "example" {
				t.Errorf("%q became %q, which is for %s", c, got, d)
			}
		}
	})
}
