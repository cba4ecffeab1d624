package policy_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

func compile(t testing.TB, p policy.Policy, secrets ...string) *policy.Set {
	t.Helper()
	s, err := policy.Compile(p, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rules(rs ...policy.Rule) policy.Policy { return policy.Policy{Rules: rs} }

func public(rs ...policy.Rule) policy.Policy {
	return policy.Policy{Default: policy.DefaultPublic, Rules: rs}
}

func hosts(h ...string) policy.Rule { return policy.Rule{Hosts: h} }

func check(t *testing.T, v policy.Verdict, mode policy.Mode, code policy.Code, rule string) {
	t.Helper()
	if v.Mode != mode || v.Code != code || v.Rule != rule {
		t.Errorf("got %s %q by %q (%s), want %s %q by %q", v.Mode, v.Code, v.Rule, v.Reason, mode, code, rule)
	}
	if v.Reason == "" {
		t.Error("no reason")
	}
}

const (
	refuse      = policy.ModeRefuse
	relay       = policy.ModeRelay
	sniff       = policy.ModeSniff
	passthrough = policy.ModePassthrough
	inspect     = policy.ModeInspect
	allow       = policy.ModeAllow

	server  = "93.184.216.34" // a public address
	server6 = "2606:2800:220:1::1"
)

func TestName(t *testing.T) {
	one := rules(hosts("api.example.com"), policy.Rule{Hosts: []string{"*.example.org"}},
		policy.Rule{ID: "no", Action: "deny", Hosts: []string{"bad.example.org"}},
		policy.Rule{ID: "no-ssh", Action: "deny", Hosts: []string{"git.example.org"}, Ports: []string{"22"}})
	open := public(hosts("dns.google"), policy.Rule{ID: "no", Action: "deny", Hosts: []string{"*.bad.example"}})
	tests := []struct {
		name   string
		policy policy.Policy
		ask    string
		mode   policy.Mode
		code   policy.Code
		rule   string
	}{
		{"exact", one, "api.example.com", allow, "", "rule-1"},
		{"case", one, "API.Example.COM", allow, "", "rule-1"},
		{"trailing-dot", one, "api.example.com.", allow, "", "rule-1"},
		{"two-dots", one, "api.example.com..", refuse, policy.CodeBadDestination, ""},
		{"fullwidth", one, "ａｐｉ.example。com", allow, "", "rule-1"},
		{"other", one, "evil.example.com", refuse, policy.CodeNotAllowed, ""},
		{"below-exact", one, "x.api.example.com", refuse, policy.CodeNotAllowed, ""},
		{"wildcard", one, "a.example.org", allow, "", "rule-2"},
		{"wildcard-deep", one, "a.b.example.org", allow, "", "rule-2"},
		{"wildcard-itself", one, "example.org", refuse, policy.CodeNotAllowed, ""},
		{"wildcard-suffix", one, "evilexample.org", refuse, policy.CodeNotAllowed, ""},
		{"denied", one, "bad.example.org", refuse, policy.CodeDenied, "no"},
		{"port-denied", one, "git.example.org", allow, "", "rule-2"},
		{"decimal", one, "2130706433", refuse, policy.CodeBadDestination, ""},
		{"octal", one, "0177.0.0.1", refuse, policy.CodeBadDestination, ""},
		{"hex", one, "0x7f.1", refuse, policy.CodeBadDestination, ""},
		{"address", one, "127.0.0.1.", refuse, policy.CodeBadDestination, ""},
		{"empty", one, "", refuse, policy.CodeBadDestination, ""},
		{"space", one, "api.example.com ", refuse, policy.CodeBadDestination, ""},
		{"nul", one, "api.example.com\x00.evil.example", refuse, policy.CodeBadDestination, ""},
		{"public", open, "www.example.net", allow, "", "default"},
		{"public-denied", open, "x.bad.example", refuse, policy.CodeDenied, "no"},
		{"public-resolver", open, "cloudflare-dns.com", refuse, policy.CodeProtocol, ""},
		{"public-resolver-below", open, "abc.dns.nextdns.io", refuse, policy.CodeProtocol, ""},
		{"public-resolver-opened", open, "dns.google", allow, "", "rule-1"},
		{"public-canary", open, "use-application-dns.net", refuse, policy.CodeProtocol, ""},
		{"public-local", open, "printer.local", refuse, policy.CodeNotAllowed, ""},
		{"public-single", open, "db", refuse, policy.CodeNotAllowed, ""},
		{"nothing", policy.Policy{}, "example.com", refuse, policy.CodeNotAllowed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, compile(t, tt.policy).Name(tt.ask), tt.mode, tt.code, tt.rule)
		})
	}
}

func TestAddress(t *testing.T) {
	named := rules(policy.Rule{Addresses: []string{
		"10.1.0.0/16", "127.0.0.1", "169.254.0.0/16", "fd00::/8", "64:ff9b:1::/48", "0.0.0.0/0", "::/0", "100.64.0.0/10",
	}}, policy.Rule{ID: "no", Action: "deny", Addresses: []string{"93.184.216.0/24"}})
	tests := []struct {
		name, addr string
		code       policy.Code // of a policy without rules
		named      policy.Code // of the one above
	}{
		{"public", "1.2.3.4", "", ""},
		{"public6", server6, "", ""},
		{"denied", server, "", policy.CodeDenied},
		{"denied-mapped", "::ffff:93.184.216.34", "", policy.CodeDenied},
		{"denied-nat64", "64:ff9b::5db8:d822", "", policy.CodeDenied},
		{"denied-6to4", "2002:5db8:d822::1", policy.CodeClosedAddress, policy.CodeDenied},
		{"private", "10.1.2.3", policy.CodeClosedAddress, ""},
		{"private-other", "10.2.0.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"private-172", "172.31.255.255", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"private-192", "192.168.1.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"loopback", "127.0.0.1", policy.CodeClosedAddress, ""},
		{"loopback-other", "127.0.0.2", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"loopback-mapped", "::ffff:127.0.0.2", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"loopback-mapped-named", "::ffff:127.0.0.1", policy.CodeClosedAddress, ""},
		{"loopback-nat64", "64:ff9b::7f00:2", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"loopback6", "::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"metadata-in-range", "169.254.169.254", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"link-local-range", "169.254.1.1", policy.CodeClosedAddress, ""},
		{"metadata-alibaba", "100.100.100.200", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"metadata-azure", "168.63.129.16", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"metadata-aws6", "fd00:ec2::254", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"ula", "fd12::1", policy.CodeClosedAddress, ""},
		{"cgnat", "100.64.0.1", policy.CodeClosedAddress, ""},
		{"link-local6", "fe80::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"site-local", "fec0::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"compatible", "::7f00:1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"translated", "::ffff:0:7f00:1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"local-nat64-public", "64:ff9b:1::102:304", policy.CodeClosedAddress, ""},
		{"local-nat64-metadata", "64:ff9b:1::a9fe:a9fe", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"local-nat64-48", "64:ff9b:1:a9fe:00a9:fe00::", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"teredo", "2001:0:102:304::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"documentation", "192.0.2.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"documentation6", "2001:db8::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"link", "192.0.0.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"benchmark", "198.19.0.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"unspecified", "0.0.0.0", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"unspecified6", "::", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"broadcast", "255.255.255.255", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"multicast", "224.0.0.251", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"multicast6", "ff02::fb", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"reserved", "240.0.0.1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"unassigned6", "4000::1", policy.CodeClosedAddress, policy.CodeClosedAddress},
		{"zone", "fe80::1%eth0", policy.CodeBadDestination, policy.CodeBadDestination},
	}
	none, some := compile(t, policy.Policy{}), compile(t, named)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := netip.MustParseAddr(tt.addr)
			if got := none.Address(a); got.Code != tt.code || got.Allowed() != (tt.code == "") {
				t.Errorf("without rules: got %+v, want %q", got, tt.code)
			} else if flag, ok := strings.CutPrefix(got.Hint, "ask for: --allow "); ok {
				if _, err := policy.ParseAllow(flag); err != nil {
					t.Errorf("without rules: the hint %q: %v", got.Hint, err)
				}
			}
			if got := some.Address(a); got.Code != tt.named || got.Allowed() != (tt.named == "") {
				t.Errorf("with rules: got %+v, want %q", got, tt.named)
			}
		})
	}
	if got := none.Address(netip.Addr{}); got.Allowed() {
		t.Errorf("no address: got %+v", got)
	}
}

func TestConnect(t *testing.T) {
	tcp := func(id, host string, port ...string) policy.Rule {
		return policy.Rule{ID: id, Hosts: []string{host}, Ports: port, Protocol: "tcp"}
	}
	udp := policy.Rule{ID: "udp", Hosts: []string{"ntp.example.com"}, Ports: []string{"123", "400-500"}, Protocol: "udp"}
	deny := func(r policy.Rule) policy.Rule { r.ID, r.Action = "no", "deny"; return r }
	tests := []struct {
		name   string
		policy policy.Policy
		udp    bool
		addr   string
		names  []string
		mode   policy.Mode
		code   policy.Code
		rule   string
	}{
		{"https", rules(hosts("a.example")), false, server + ":443", []string{"a.example"}, sniff, "", "rule-1"},
		{"other-port", rules(hosts("a.example")), false, server + ":8443", []string{"a.example"}, refuse, policy.CodeNotAllowed, ""},
		{"other-name", rules(hosts("a.example")), false, server + ":443", []string{"b.example"}, refuse, policy.CodeNotAllowed, ""},
		{"by-number", rules(hosts("a.example")), false, server + ":443", nil, refuse, policy.CodeNotAllowed, ""},
		{"by-number-named", rules(policy.Rule{Addresses: []string{server}}), false, server + ":443", nil, sniff, "", "rule-1"},
		{"by-number-nat64", rules(policy.Rule{Addresses: []string{server}}), false, "[64:ff9b::5db8:d822]:443", nil, sniff, "", "rule-1"},
		{"by-number-mapped", rules(policy.Rule{Addresses: []string{server}}), false, "[::ffff:5db8:d822]:443", nil, sniff, "", "rule-1"},
		{"tcp", rules(tcp("db", "a.example", "5432")), false, server + ":5432", []string{"a.example"}, relay, "", "db"},
		{"tcp-is-not-udp", rules(tcp("db", "a.example", "5432")), true, server + ":5432", []string{"a.example"}, refuse, policy.CodeNotAllowed, ""},
		{"tcp-and-http", rules(tcp("db", "a.example", "443"), hosts("b.example")), false, server + ":443", []string{"a.example", "b.example"}, sniff, "", "rule-2"},
		{"tcp-and-denied", rules(tcp("db", "a.example", "22"), deny(hosts("b.example"))), false, server + ":22", []string{"a.example", "b.example"}, refuse, policy.CodeDenied, "no"},
		{"tcp-and-unknown", rules(tcp("db", "a.example", "22"), hosts("b.example")), false, server + ":22", []string{"a.example", "b.example"}, relay, "", "db"},
		{"rebinding", rules(hosts("a.example")), false, "10.0.0.5:443", []string{"a.example"}, refuse, policy.CodeClosedAddress, ""},
		{"rebinding-public", public(), false, "10.0.0.5:443", []string{"a.example"}, refuse, policy.CodeClosedAddress, ""},
		{"metadata-public", public(), false, "169.254.169.254:80", nil, refuse, policy.CodeClosedAddress, ""},
		{"private-same-rule", rules(policy.Rule{Hosts: []string{"a.example"}, Addresses: []string{"10.0.0.5"}}), false, "10.0.0.5:443", []string{"a.example"}, sniff, "", "rule-1"},
		{"private-other-rule", rules(hosts("a.example"), policy.Rule{Addresses: []string{"10.0.0.0/8"}}), false, "10.0.0.5:443", []string{"a.example"}, sniff, "", "rule-1"},
		{"private-other-port", rules(policy.Rule{Hosts: []string{"a.example"}, Ports: []string{"8443"}}, policy.Rule{Addresses: []string{"10.0.0.5"}}), false, "10.0.0.5:8443", []string{"a.example"}, refuse, policy.CodeClosedAddress, ""},
		{"private-wide-range", rules(hosts("a.example"), policy.Rule{Addresses: []string{"0.0.0.0/0"}}), false, "10.0.0.5:443", []string{"a.example"}, refuse, policy.CodeClosedAddress, ""},
		{"private-raw-under-http", rules(tcp("raw", "a.example", "443"), policy.Rule{Addresses: []string{"10.0.0.5"}}), false, "10.0.0.5:443", nil, sniff, "", "rule-2"},
		{"dns", rules(policy.Rule{Hosts: []string{"a.example"}, Ports: []string{"1-1000"}, Protocol: "tcp"}), false, server + ":53", []string{"a.example"}, refuse, policy.CodeProtocol, ""},
		{"dns-named", rules(tcp("ns", "a.example", "53")), false, server + ":53", []string{"a.example"}, relay, "", "ns"},
		{"dot-public", public(), false, server + ":853", []string{"a.example"}, refuse, policy.CodeProtocol, ""},
		{"dns-udp-public", public(), true, server + ":53", []string{"a.example"}, refuse, policy.CodeProtocol, ""},
		{"quic-public", public(), true, server + ":443", []string{"a.example"}, refuse, policy.CodeProtocol, ""},
		{"quic-range", rules(udp), true, server + ":443", []string{"ntp.example.com"}, refuse, policy.CodeProtocol, ""},
		{"udp", rules(udp), true, server + ":123", []string{"ntp.example.com"}, relay, "", "udp"},
		{"udp-is-not-tcp", rules(udp), false, server + ":123", []string{"ntp.example.com"}, refuse, policy.CodeNotAllowed, ""},
		{"public", public(), false, server + ":443", []string{"a.example"}, sniff, "", "default"},
		{"public-ssh", public(), false, server + ":22", []string{"a.example"}, relay, "", "default"},
		{"public-udp", public(), true, server + ":5000", []string{"a.example"}, relay, "", "default"},
		{"public-by-number", public(), false, server + ":443", nil, refuse, policy.CodeNotResolved, ""},
		{"public-governed", public(hosts("a.example")), false, server + ":22", []string{"a.example"}, refuse, policy.CodeNotAllowed, ""},
		{"public-shared", public(hosts("a.example")), false, server + ":22", []string{"a.example", "b.example"}, sniff, "", "default"},
		{"public-shared-udp", public(hosts("a.example")), true, server + ":5000", []string{"a.example", "b.example"}, refuse, policy.CodeNotAllowed, ""},
		{"public-shared-denied", public(deny(hosts("a.example"))), false, server + ":443", []string{"a.example", "b.example"}, sniff, "", "default"},
		{"public-denied", public(deny(hosts("a.example"))), false, server + ":443", []string{"a.example"}, refuse, policy.CodeDenied, "no"},
		{"public-denied-address", public(deny(policy.Rule{Addresses: []string{server + "/32"}})), false, server + ":443", []string{"b.example"}, refuse, policy.CodeDenied, "no"},
		{"public-resolver-address", public(), false, "8.8.8.8:443", []string{"a.example"}, refuse, policy.CodeProtocol, ""},
		{"deny-tcp", public(deny(policy.Rule{Hosts: []string{"a.example"}, Protocol: "udp"})), false, server + ":22", []string{"a.example"}, relay, "", "default"},
		{"deny-some-requests", public(deny(policy.Rule{Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"POST"}}}})), false, server + ":8080", []string{"a.example"}, sniff, "", "default"},
		{"deny-some-requests-raw", rules(tcp("raw", "a.example", "8080"), deny(policy.Rule{Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"POST"}}}})), false, server + ":8080", []string{"a.example"}, refuse, policy.CodeDenied, "no"},
		{"port-0", public(), false, server + ":0", []string{"a.example"}, refuse, policy.CodeBadDestination, ""},
		{"multicast", public(), true, "224.0.0.251:5353", nil, refuse, policy.CodeClosedAddress, ""},
		{"secret-by-number", rules(policy.Rule{Hosts: []string{"a.example"}, Addresses: []string{"10.0.0.5"}, Secrets: []policy.Secret{{Name: "KEY", Header: "X-Key"}}}), false, "10.0.0.5:443", nil, refuse, policy.CodeClosedAddress, ""},
		{"secret-by-name", rules(policy.Rule{Hosts: []string{"a.example"}, Addresses: []string{"10.0.0.5"}, Secrets: []policy.Secret{{Name: "KEY", Header: "X-Key"}}}), false, "10.0.0.5:443", []string{"a.example"}, sniff, "", "rule-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := compile(t, tt.policy, "KEY")
			check(t, s.Connect(policy.Conn{UDP: tt.udp, Addr: netip.MustParseAddrPort(tt.addr), Names: tt.names}), tt.mode, tt.code, tt.rule)
		})
	}
}

func TestStream(t *testing.T) {
	a, b := "a.example", "b.example"
	tls := policy.Rule{ID: "tls", Hosts: []string{a}, Protocol: "tls"}
	raw := policy.Rule{ID: "raw", Hosts: []string{a}, Protocol: "tcp", Ports: []string{"443", "2222"}}
	secret := policy.Rule{Hosts: []string{a}, Secrets: []policy.Secret{{Name: "KEY", Header: "X-Key"}}}
	post := policy.Rule{ID: "no", Action: "deny", Hosts: []string{a}, Matches: []policy.Match{{Methods: []string{"POST"}}}}
	tests := []struct {
		name   string
		policy policy.Policy
		addr   string
		names  []string
		ask    string
		tls    bool
		mode   policy.Mode
		code   policy.Code
		rule   string
	}{
		{"inspect", rules(hosts(a)), server + ":443", []string{a}, a, true, inspect, "", "rule-1"},
		{"inspect-case", rules(hosts(a)), server + ":443", []string{a}, "A.Example.", true, inspect, "", "rule-1"},
		{"inspect-clear", rules(hosts(a)), server + ":80", []string{a}, a, false, inspect, "", "rule-1"},
		{"passthrough", rules(tls), server + ":443", []string{a}, a, true, passthrough, "", "tls"},
		{"passthrough-clear", rules(tls), server + ":443", []string{a}, a, false, refuse, policy.CodeProtocol, ""},
		{"closest", rules(policy.Rule{ID: "wide", Hosts: []string{"*.example.com"}, Protocol: "tls"}, hosts("x.example.com")), server + ":443", []string{"x.example.com"}, "x.example.com", true, inspect, "", "rule-2"},
		{"read-before-passed", rules(tls, hosts(a)), server + ":443", []string{a}, a, true, inspect, "", "rule-2"},
		{"fronting", rules(hosts(a), hosts(b)), server + ":443", []string{a}, b, true, refuse, policy.CodeNotResolved, ""},
		{"fronting-public", public(), server + ":443", []string{a}, b, true, refuse, policy.CodeNotResolved, ""},
		{"no-name", rules(hosts(a)), server + ":443", []string{a}, "", true, refuse, policy.CodeProtocol, ""},
		{"raw-no-name", rules(raw, hosts(b)), server + ":443", []string{a, b}, "", false, relay, "", "raw"},
		{"raw-other-name", rules(raw, hosts(b)), server + ":443", []string{a, b}, b, true, inspect, "", "rule-2"},
		{"public", public(), server + ":443", []string{a}, a, true, passthrough, "", "default"},
		{"public-clear", public(), server + ":80", []string{a}, a, false, inspect, "", "default"},
		{"public-no-name", public(), server + ":443", []string{a}, "", true, relay, "", "default"},
		{"public-no-name-governed", public(hosts(b)), server + ":443", []string{a, b}, "", true, refuse, policy.CodeProtocol, ""},
		{"public-no-name-denied", public(policy.Rule{ID: "no", Action: "deny", Hosts: []string{b}}), server + ":443", []string{a, b}, "", true, refuse, policy.CodeDenied, "no"},
		{"public-denied", public(policy.Rule{ID: "no", Action: "deny", Hosts: []string{b}}), server + ":443", []string{a, b}, b, true, refuse, policy.CodeDenied, "no"},
		{"public-deny-some", public(post), server + ":443", []string{a}, a, true, inspect, "", "default"},
		{"public-deny-some-no-name", public(post), server + ":443", []string{a}, "", true, refuse, policy.CodeProtocol, ""},
		{"deny-some-passthrough", rules(tls, post), server + ":443", []string{a}, a, true, refuse, policy.CodeDenied, "no"},
		{"by-number", rules(policy.Rule{Addresses: []string{server}}), server + ":443", nil, "", true, inspect, "", "rule-1"},
		{"by-number-literal", rules(policy.Rule{Addresses: []string{server}}), server + ":443", nil, server, true, inspect, "", "rule-1"},
		{"by-number-other-literal", rules(policy.Rule{Addresses: []string{server}}), server + ":443", nil, "1.2.3.4", true, refuse, policy.CodeNotResolved, ""},
		{"by-number-any-name", rules(policy.Rule{Addresses: []string{server}}), server + ":443", nil, "x.example", true, inspect, "", "rule-1"},
		{"by-number-name-of-a-rule", rules(policy.Rule{Addresses: []string{server}}, secret), server + ":443", nil, a, true, refuse, policy.CodeNotResolved, ""},
		{"by-number-decimal", rules(policy.Rule{Addresses: []string{server}}), server + ":80", nil, "1572395042", false, refuse, policy.CodeBadDestination, ""},
		{"rebinding", rules(hosts(a)), "10.0.0.5:443", []string{a}, a, true, refuse, policy.CodeClosedAddress, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := compile(t, tt.policy, "KEY")
			check(t, s.Stream(policy.Stream{
				Conn: policy.Conn{Addr: netip.MustParseAddrPort(tt.addr), Names: tt.names}, Name: tt.ask, TLS: tt.tls,
			}), tt.mode, tt.code, tt.rule)
		})
	}
}

// ask makes a request of "GET https://host/path".
func ask(t testing.TB, method, target, addr string, header ...string) policy.Request {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	port := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	if u.Port() != "" {
		port = u.Port()
	}
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return policy.Request{
		Addr: netip.MustParseAddrPort(addr + ":" + port), Name: u.Hostname(), TLS: u.Scheme == "https", Method: method, URL: u, Header: h,
	}
}

// TestClosing: addresses of the machine's own are open to rules alone that name
// one by itself.
func TestClosing(t *testing.T) {
	mine := netip.MustParseAddr("45.0.0.9")
	at := func(r policy.Rule) policy.Policy { return public(hosts("b.example"), r) }
	for _, tt := range []struct {
		name   string
		policy policy.Policy
		open   bool
	}{
		{"default", public(), false},
		{"by-name", rules(hosts("a.example")), false},
		{"by-range", at(policy.Rule{Addresses: []string{"45.0.0.0/24"}}), false},
		{"by-everything", at(policy.Rule{Addresses: []string{"0.0.0.0/0"}}), false},
		{"by-address", at(policy.Rule{Addresses: []string{"45.0.0.9"}}), true},
		{"by-address-for-another-port", at(policy.Rule{Addresses: []string{"45.0.0.9"}, Ports: []string{"8443"}}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			open := compile(t, tt.policy)
			s := open.Closing(func(a netip.Addr) bool { return a == mine })
			for _, addr := range []string{"45.0.0.9", "::ffff:45.0.0.9", "64:ff9b::2d00:9"} {
				c := policy.Conn{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 443), Names: []string{"a.example"}}
				if v := s.Connect(c); v.Allowed() != tt.open {
					t.Errorf("connect to %s: %+v", addr, v)
				}
				if v := s.Stream(policy.Stream{Conn: c, Name: "a.example", TLS: true}); v.Allowed() != tt.open {
					t.Errorf("stream to %s: %+v", addr, v)
				}
				if tt.name != "by-range" && tt.name != "by-everything" && !open.Connect(c).Allowed() && !strings.HasSuffix(tt.name, "port") {
					t.Errorf("%s: closed without that", addr)
				}
			}
			if v := s.Request(ask(t, "GET", "https://a.example/", "45.0.0.9")); v.Allowed() != tt.open {
				t.Errorf("request: %+v", v)
			}
			private := policy.Conn{Addr: netip.MustParseAddrPort("10.0.0.1:443")}
			inside := compile(t, at(policy.Rule{Addresses: []string{"10.0.0.0/8"}}))
			if own := inside.Closing(func(netip.Addr) bool { return true }); !inside.Connect(private).Allowed() || own.Connect(private).Allowed() {
				t.Error("a range of private addresses opens the machine's own")
			}
			if other := (policy.Conn{Addr: netip.MustParseAddrPort("45.0.0.8:443"), Names: []string{"a.example"}}); tt.name == "default" && !s.Connect(other).Allowed() {
				t.Error("another address is closed")
			}
		})
	}
}
