package policy

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// resolvers serve DNS over HTTPS or TLS to everybody, past the gate. The
// default lets nobody to them, at their names or their addresses. A list is
// never whole, and need not be: what keeps a sandbox to what it may reach is
// that it only reaches what the gate has resolved. A rule about one of them
// opens it.
var resolvers = sync.OnceValue(func() map[string]bool {
	return setOf(strings.Fields(`
		dns.google dns64.dns.google dns.google.com 8888.google
		cloudflare-dns.com mozilla.cloudflare-dns.com chrome.cloudflare-dns.com one.one.one.one 1dot1dot1dot1.cloudflare-dns.com
		security.cloudflare-dns.com family.cloudflare-dns.com dns64.cloudflare-dns.com odoh.cloudflare-dns.com
		dns.quad9.net dns9.quad9.net dns10.quad9.net dns11.quad9.net dns12.quad9.net
		doh.opendns.com doh.familyshield.opendns.com doh.sandbox.opendns.com dns.umbrella.com
		dns.adguard.com dns.adguard-dns.com dns-family.adguard.com unfiltered.adguard-dns.com family.adguard-dns.com
		dns.nextdns.io firefox.dns.nextdns.io chromium.dns.nextdns.io anycast.dns.nextdns.io
		doh.cleanbrowsing.org doh.dns.sb dns.sb doh.mullvad.net dns.mullvad.net base.dns.mullvad.net adblock.dns.mullvad.net
		freedns.controld.com dns.controld.com doh.dns.apple.com doh.xfinity.com
		dns.alidns.com doh.pub dns.pub doh.360.cn dns.twnic.tw
		doh.libredns.gr dns.digitale-gesellschaft.ch dns.switch.ch doh.applied-privacy.net
		odvr.nic.cz public.dns.iij.jp wikimedia-dns.org ordns.he.net doh.tiar.app dns.njal.la dns0.eu zero.dns0.eu`))
})

// resolverAddresses are theirs.
var resolverAddresses = sync.OnceValue(func() map[netip.Addr]bool {
	return addressesOf(strings.Fields(`
		8.8.8.8 8.8.4.4 2001:4860:4860::8888 2001:4860:4860::8844 2001:4860:4860::64 2001:4860:4860::6464
		1.1.1.1 1.0.0.1 1.1.1.2 1.0.0.2 1.1.1.3 1.0.0.3 2606:4700:4700::1111 2606:4700:4700::1001 2606:4700:4700::64 2606:4700:4700::6400
		9.9.9.9 9.9.9.10 9.9.9.11 149.112.112.112 149.112.112.10 149.112.112.11 2620:fe::fe 2620:fe::9 2620:fe::10 2620:fe::11
		208.67.222.222 208.67.220.220 208.67.222.123 208.67.220.123 2620:119:35::35 2620:119:53::53
		94.140.14.14 94.140.15.15 2a10:50c0::ad1:ff 2a10:50c0::ad2:ff
		185.228.168.168 185.228.169.168 76.76.2.0 76.76.10.0 194.242.2.2 185.222.222.222 45.11.45.11
		223.5.5.5 223.6.6.6 119.29.29.29 1.12.12.12 120.53.53.53 101.101.101.101`))
})

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

func addressesOf(list []string) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(list))
	for _, s := range list {
		set[netip.MustParseAddr(s)] = true
	}
	return set
}

// canary is a name that browsers resolve to learn whether they may bring a
// resolver of their own. That it has no address tells them not to.
const canary = "use-application-dns.net"

// localNames end names that are not of the public DNS: what answers for them
// is the network or the machine that asks.
var localNames = []string{"localhost", "local", "internal", "home.arpa", "onion", "invalid", "alt"}

// closedName says why the default does not let a name through; "" if it does.
func closedName(name string) (code Code, reason string) {
	for host := name; host != "" && !weak.On(weak.NetResolversOpen); {
		if resolvers()[host] {
			return CodeProtocol, name + " resolves names past the gate, which answers them itself"
		}
		_, host, _ = strings.Cut(host, ".")
	}
	if !strings.Contains(name, ".") {
		return CodeNotAllowed, name + " is a name of a local network, and the default allows public ones"
	}
	for _, l := range localNames {
		if strings.HasSuffix(name, "."+l) {
			return CodeNotAllowed, name + " is a name of a local network, and the default allows public ones"
		}
	}
	return "", ""
}

// dnsTypes are those that a policy may open. Records that exist to carry
// free text, or keys for what the gate then could not read, are not among
// them: NULL, HTTPS, SVCB and the rest stay closed.
var dnsTypes = []string{"CNAME", "TXT", "MX", "SRV", "NS", "PTR", "SOA", "CAA", "NAPTR"}

func compileDNS(d *DNS, p *Errors) {
	for i, t := range d.Types {
		d.Types[i] = strings.ToUpper(t)
		switch {
		case d.Types[i] == "A" || d.Types[i] == "AAAA":
			p.Addf(at("dns.types", i), "leave it out", "%s is always asked for", d.Types[i])
		case !slices.Contains(dnsTypes, d.Types[i]):
			p.Addf(at("dns.types", i), strings.Join(dnsTypes, ", "), "%s is no type that can be opened", Quoted(t))
		}
	}
	d.Types = distinct(d.Types)
	for i, u := range d.Upstreams {
		a, ok := parseUpstream(u)
		if !ok {
			p.Addf(at("dns.upstreams", i), "192.0.2.53 or [2001:db8::53]:53", "%s is no address of a resolver", Quoted(u))
			continue
		}
		d.Upstreams[i] = a.String()
	}
	d.Upstreams = distinct(d.Upstreams)
	if n := d.QueriesPerMinute; n < 0 || n > maxRate {
		p.Addf("dns.queries_per_minute", "0 stands for the default", "%d is no rate", n)
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
