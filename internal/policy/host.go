package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	maxName  = 253 // bytes of a name, by RFC 1035
	maxLabel = 63
)

// CleanHost gives a host the one form in which this package compares it: a
// name in lower case, in IDNA's ASCII form and without a final dot; or an
// address, an IPv4-mapped one as the IPv4 one that it is. Exactly one of name
// and addr is set. Addresses written as anything but four decimal numbers or
// IPv6, such as 0x7f.1 and 2130706433, are an error: resolvers and libraries
// disagree on what they are. Brackets around IPv6 are taken off.
func CleanHost(s string) (name string, addr netip.Addr, err error) {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		if err != nil || !a.Is6() || a.Zone() != "" {
			return "", netip.Addr{}, fmt.Errorf("%s is no IPv6 address", Quoted(s))
		}
		return "", a.Unmap(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return "", netip.Addr{}, fmt.Errorf("%s has a zone, which says nothing outside of the machine that wrote it", Quoted(s))
		}
		return "", a.Unmap(), nil
	}
	name, err = cleanName(s)
	return name, netip.Addr{}, err
}

// cleanName is CleanHost for what must be a name.
func cleanName(s string) (string, error) {
	if len(s) > 4*maxName {
		return "", fmt.Errorf("a name of %d bytes: %d are the most", len(s), maxName)
	}
	name := s
	if !ascii(name) {
		// Mapping comes first: full stops, digits and letters have doubles
		// that look like these and mean them.
		mapped, err := idna.Lookup.ToASCII(strings.TrimRight(name, "."))
		if err != nil {
			return "", fmt.Errorf("%s is no host name", Quoted(s))
		}
		name = mapped
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" {
		return "", errors.New("no host is named")
	}
	if len(name) > maxName {
		return "", fmt.Errorf("a name of %d bytes: %d are the most", len(name), maxName)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%s is no host name: %w", Quoted(s), err)
		}
		last = label
	}
	if numeric(last) && !weak.On(weak.NetNumbersOpen) {
		return "", fmt.Errorf("%s is no host name, and no address as four decimal numbers", Quoted(s))
	}
	return name, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("an empty label")
	case len(label) > maxLabel:
		return fmt.Errorf("a label of %d bytes: %d are the most", len(label), maxLabel)
	}
	for i := range len(label) {
		// The underscore is of services (_http._tcp) and of some hosts.
		if c := label[i]; c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return fmt.Errorf("%+q can't be in one", c)
		}
	}
	if strings.HasPrefix(label, "xn--") {
		if _, err := idna.Lookup.ToUnicode(label); err != nil {
			return errors.New("a label that is not IDNA's")
		}
	}
	return nil
}

// numeric reports whether a name that ends in this label is what URL parsers
// take for an IPv4 address, however it is written.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// ParseHost is cleanName for a rule's host: wild tells that it began with
// "*.", and name is what follows.
func ParseHost(s string) (name string, wild bool, problem, hint string) {
	rest, wild := strings.CutPrefix(s, "*.")
	switch {
	case s == "*":
		return "", false, "\"*\" names every host", "default: public"
	case strings.Contains(s, "://"):
		return "", false, Quoted(s) + " is a URL", "hosts are names; ports, protocol and matches say the rest"
	case strings.Contains(rest, "*"):
		return "", false, Quoted(s) + ": a wildcard is one \"*\" for the first labels", "*.example.com"
	case strings.Contains(rest, "/"):
		return "", false, Quoted(s) + " is no host name", "a range of addresses belongs in addresses, a path in matches"
	}
	name, addr, err := CleanHost(rest)
	switch {
	case err != nil && strings.Count(rest, ":") == 1:
		return "", false, Quoted(s) + " is no host name", "a port belongs in ports"
	case err != nil:
		return "", false, err.Error(), ""
	case addr.IsValid():
		return "", false, Quoted(s) + " is an address", "write it in addresses"
	case wild && !strings.Contains(name, "."):
		return "", false, Quoted(s) + " is a whole top-level domain", "two labels or more must follow the \"*.\""
	}
	return name, wild, "", ""
}

// ports are ranges of ports, in order and apart.
type ports []portRange

type portRange struct{ low, high uint16 }

func (p ports) has(n uint16) bool {
	for _, r := range p {
		if r.low <= n && n <= r.high {
			return true
		}
	}
	return false
}

// String is for people: "443, 8000-8099".
func (p ports) String() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

func (r portRange) String() string {
	if r.low == r.high {
		return strconv.Itoa(int(r.low))
	}
	return strconv.Itoa(int(r.low)) + "-" + strconv.Itoa(int(r.high))
}

// parsePort reads "443" or "8000-8099"; not "+443", "0443" or "443 ".
func parsePort(s string) (portRange, bool) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	l, okLow := portNumber(low)
	h, okHigh := portNumber(high)
	return portRange{l, h}, okLow && okHigh && l <= h
}

func portNumber(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n != 0 && s[0] != '0' && s[0] != '+'
}

// merged puts ranges in order and joins those that meet.
func merged(p ports) ports {
	slices.SortFunc(p, func(a, b portRange) int { return cmp.Compare(a.low, b.low) })
	var out ports
	for _, r := range p {
		if n := len(out); n > 0 && int(r.low) <= int(out[n-1].high)+1 {
			out[n-1].high = max(out[n-1].high, r.high)
			continue
		}
		out = append(out, r)
	}
	return out
}
