package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

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
