package dns

import (
	"net/netip"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// canonical brings a name into the form that everything here uses: lower
// case, no dot at the end. It refuses, with ok false, what can be no host's
// name: other characters than letters, digits, "-" and "_" (names in other
// scripts have an ASCII form, in which they are asked for), empty labels, those
// over 63 characters, names over 253, and what a program might take for an
// address, such as "127.1" and "0x7f.0.0.1".
func canonical(name string) (lower string, ok bool) {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if label == 0 || numeric(name[strings.LastIndexByte(name, '.')+1:]) && !weak.On(weak.NetNumbersAsked) {
		return "", false
	}
	return strings.ToLower(name), true
}

// numeric reports whether a name that ends in this label is read as an IPv4
// address, in any of the forms of inet_aton.
func numeric(label string) bool {
	if len(label) >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X') {
		return strings.Trim(label[2:], "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// special end names that have no place in the public DNS: asking for one
// tells strangers what a private network or a hidden service is called, and
// the answering server has made the answer up.
var special = map[string]string{
	"local":                   "names below .local are a link's own",
	"onion":                   "names below .onion are hidden services'",
	"alt":                     "names below .alt are not of the DNS",
	"invalid":                 "names below .invalid are nobody's",
	"localhost":               "localhost has no other addresses",
	"carboy.internal":         "names below carboy.internal are the gate's own",
	"internal":                ofNetwork,
	"home.arpa":               ofNetwork,
	"use-application-dns.net": "the gate answers for every name", // browsers ask whether they may bring a resolver of their own
}

// ofNetwork is why names of private networks are not asked for, unless a rule
// is about them: its author has a resolver that knows them.
const ofNetwork = "the name is a private network's own"

// private says why name is not asked for outside, whatever a policy's default
// says of it; "" for others.
func private(name string, v policy.Verdict) string {
	reason := specialReason(name)
	if reason == ofNetwork && v.Allowed() && v.Rule != "" && v.Rule != "default" {
		return ""
	}
	return reason
}

// specialReason finds the longest end of name that is special.
func specialReason(name string) string {
	for end, more := name, true; more; _, end, more = strings.Cut(end, ".") {
		if reason, ok := special[end]; ok {
			return reason
		}
	}
	return ""
}

// known returns the addresses of names that the resolver knows by itself:
// those of Options.Local, and localhost with all below it.
func (s *Server) known(name string) (addrs []netip.Addr, ok bool) {
	if addrs, ok = s.opts.Local[name]; ok {
		return addrs, true
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, true
	}
	return nil, false
}
