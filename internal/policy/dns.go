package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// dnsTypes are those that a policy may open. Records that exist to carry
// free text, or keys for what the gate then could not read, are not among
// them: NULL, HTTPS, SVCB and the rest stay closed.
var dnsTypes = []string{"CNAME", "TXT", "MX", "SRV", "NS", "PTR", "SOA", "CAA", "NAPTR"}

func compileDNS(d *DNS, p *problems) {
	for i, t := range d.Types {
		d.Types[i] = strings.ToUpper(t)
		switch {
		case d.Types[i] == "A" || d.Types[i] == "AAAA":
			p.addf(at("dns.types", i), "leave it out", "%s is always asked for", d.Types[i])
		case !slices.Contains(dnsTypes, d.Types[i]):
			p.addf(at("dns.types", i), strings.Join(dnsTypes, ", "), "%s is no type that can be opened", quoted(t))
		}
	}
	d.Types = distinct(d.Types)
	tooMany("dns.upstreams", len(d.Upstreams), 16, p)
	for i, u := range d.Upstreams {
		a, ok := parseUpstream(u)
		if !ok {
			p.addf(at("dns.upstreams", i), "192.0.2.53 or [2001:db8::53]:53", "%s is no address of a resolver", quoted(u))
			continue
		}
		d.Upstreams[i] = a.String()
	}
	d.Upstreams = distinct(d.Upstreams)
	if n := d.QueriesPerMinute; n < 0 || n > maxRate {
		p.addf("dns.queries_per_minute", "0 stands for the default", "%d is no rate", n)
	}
	if d.QueriesPerMinute == 0 {
		d.QueriesPerMinute = DefaultQueriesPerMinute
	}
}

func parseUpstream(s string) (netip.AddrPort, bool) {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a, a.Port() != 0 && a.Addr().Zone() == "" && !a.Addr().IsUnspecified()
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return netip.AddrPortFrom(a, 53), err == nil && a.Zone() == "" && !a.IsUnspecified()
}
