package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// agreed keeps the first of addresses, about which the policy has said v, and
// those others about which it says the same: whichever answers first, no other
// request or stream goes there than was decided on.
func agreed(addrs []netip.AddrPort, v policy.Verdict, ask func(netip.AddrPort) policy.Verdict) []netip.AddrPort {
	if len(addrs) < 2 || !v.Allowed() {
		return addrs
	}
	kept := addrs[:1:1]
	for _, a := range addrs[1:] {
		if o := ask(a); o.Mode == v.Mode && o.Rule == v.Rule {
			kept = append(kept, a)
		}
	}
	return kept
}

// sentOn is a request's header without the fields that Connection names: they
// are for the gate alone, so that policy must not see what an upstream won't.
// The hop's own fields are of no rule.
func sentOn(h http.Header) http.Header {
	out := h
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if _, there := out[name]; !there || slices.Contains(hops, name) {
				continue
			}
			if len(out) == len(h) {
				out = h.Clone()
			}
			delete(out, name)
		}
	}
	return out
}
