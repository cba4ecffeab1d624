package policy_test

import (
	"encoding/json"
	"net/netip"
	"net/url"
	pathpkg "path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// FuzzParse: what is read compiles or does not, and what compiles is the
// same policy after a way through JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"rules": [{"hosts": ["a.example"], "ports": [443]}]}`))
	f.Add([]byte("rules:\n- {hosts: [a.example]}\n--- x\n"))
	f.Add([]byte("a: &b [*b]\n<<: *b\n? [x]\n: !!int 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := policy.Parse(text)
		if err != nil {
			if len(policy.Problems(err)) == 0 || strings.ContainsAny(err.Error(), "\x00\x1b\r") {
				t.Fatalf("error %q", err)
			}
			return
		}
		s, err := policy.Compile(p, []string{"TOKEN"})
		if err != nil {
			if len(policy.Problems(err)) == 0 || strings.ContainsAny(err.Error(), "\x00\x1b\r") {
				t.Fatalf("error %q", err)
			}
			return
		}
		out, err := json.Marshal(s.Policy())
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.Parse(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		back, err := policy.Compile(again, []string{"TOKEN"})
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if diff := cmp.Diff(s.Policy(), back.Policy()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzParseAllow: what --allow takes compiles, and opens nothing that is
// closed but by address.
func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"pypi", "api.example.com:443", "tcp://[fd00::1]:22", "*.example.com", "10.0.0.0/8:1-2", "https://x/", "[::]/0:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		rs, err := policy.ParseAllow(arg)
		if err != nil {
			if len(policy.Problems(err)) != 1 || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		s, err := policy.Compile(rules(rs...), nil)
		if err != nil {
			t.Fatalf("%q: %v", arg, err)
		}
		for _, r := range rs {
			if len(r.Addresses) == 0 && s.Address(netip.MustParseAddr("10.0.0.5")).Allowed() {
				t.Fatalf("%q opens an address", arg)
			}
		}
	})
}

// FuzzCleanHost: the form is one, and holds nothing that a resolver could
// read as an address.
func FuzzCleanHost(f *testing.F) {
	for _, s := range []string{"A.Example.", "bücher.example", "xn--bcher-kva.example", "0x7f.1", "[::1]", "１２７.0.0.1", "a。b", "_http._tcp.x.example", "::ffff:1.2.3.4", "r3---sn.example"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, addr, err := policy.CleanHost(s)
		switch {
		case err != nil:
			if name != "" || addr.IsValid() || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Fatalf("got %q, %v with %q", name, addr, err)
			}
			return
		case (name == "") == !addr.IsValid():
			t.Fatalf("got %q and %v", name, addr)
		case addr.IsValid():
			if addr.Is4In6() || addr.Zone() != "" {
				t.Fatalf("got %v", addr)
			}
			return
		}
		if again, _, err := policy.CleanHost(name); err != nil || again != name {
			t.Fatalf("%q became %q (%v)", name, again, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 || strings.HasSuffix(name, ".") {
			t.Fatalf("got %q", name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Fatalf("got the address %q", name)
		}
	})
}

// readings are what servers make of a path: decoded once or more often, and
// with backslashes, parameters and NULs meaning something, or not.
func readings(raw string) []string {
	var out []string
	raw, err := url.PathUnescape(raw)
	for i := 0; i < 3 && err == nil; i++ {
		lenient := strings.ReplaceAll(raw, `\`, "/")
		for i := strings.IndexByte(lenient, ';'); i >= 0; i = strings.IndexByte(lenient, ';') {
			end := strings.IndexByte(lenient[i:], '/')
			if end < 0 {
				end = len(lenient) - i
			}
			lenient = lenient[:i] + lenient[i+end:]
		}
		lenient, _, _ = strings.Cut(lenient, "\x00")
		out = append(out, pathpkg.Clean("/"+raw), pathpkg.Clean("/"+lenient))
		raw, err = url.PathUnescape(raw)
	}
	return out
}

// FuzzCleanPath: a request that a rule about /v1/pub lets through is below
// /v1/pub however a server reads its path.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/v1/pub/x", "/v1/pub/../adm", "/v1/pub/%2e%2e/adm", "/v1/pub/..%2fadm", "//v1/pub", "/v1/pub/..;/adm", `/v1/pub/..\adm`, "/v1/pub/%252e%252e/adm", "/v1/pub%00", "/v1/pub/%c0%ae", "/%761/pub"} {
		f.Add(s)
	}
	s, err := policy.Compile(rules(matching("pub", path("prefix", "/v1/pub"))), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || u.Scheme != "" {
			return
		}
		v := s.Request(policy.Request{
			Addr: netip.MustParseAddrPort(server + ":443"), Name: "a.example", TLS: true, Method: "GET", URL: u,
		})
		if !v.Allowed() {
			return
		}
		for _, read := range readings(u.EscapedPath()) {
			if read != "/v1/pub" && !strings.HasPrefix(read, "/v1/pub/") {
				t.Fatalf("%q is read as %q", raw, read)
			}
		}
		if path, problem := policy.CleanPath(u); problem != "" || pathpkg.Clean(path) != strings.TrimSuffix(path, "/") && path != "/" {
			t.Fatalf("%q became %q (%s)", raw, path, problem)
		}
	})
}

// FuzzDecide: nothing that is asked upsets a set, refusals say why, and what
// rules deny is never let through.
func FuzzDecide(f *testing.F) {
	f.Add("a.example", "10.0.0.5", uint16(443), "GET", "/v1?x=1", "X-Kind", "one", true, false)
	f.Add("no.example", server, uint16(80), "POST", "/admin", "x", "", false, true)
	f.Add("0x7f.1", "::ffff:127.0.0.1", uint16(53), "G T", "//", "", "", false, false)
	p, err := policy.Parse([]byte(everything))
	if err != nil {
		f.Fatal(err)
	}
	p = policy.With(p, policy.Rule{ID: "no", Action: "deny", Hosts: []string{"no.example"}}, policy.Rule{Action: "deny", Hosts: []string{"api.example.com"}, Matches: []policy.Match{path("prefix", "/admin")}})
	s, err := policy.Compile(p, []string{"TOKEN"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, addr string, port uint16, method, target, header, value string, tls, udp bool) {
		a, _ := netip.ParseAddr(addr)
		dst := netip.AddrPortFrom(a, port)
		conn := policy.Conn{UDP: udp, Addr: dst, Names: []string{name}}
		u, err := url.Parse(target)
		if err != nil {
			u = &url.URL{Path: target}
		}
		verdicts := []policy.Verdict{
			s.Name(name), s.Address(a), s.Connect(conn), s.Stream(policy.Stream{Conn: conn, Name: name, TLS: tls}),
			s.Stream(policy.Stream{Conn: conn, TLS: tls}),
			s.Request(policy.Request{Addr: dst, Name: name, TLS: tls, Method: method, URL: u, Header: map[string][]string{header: {value}}}),
		}
		clean, _, _ := policy.CleanHost(name)
		for i, v := range verdicts {
			if v.Reason == "" || strings.ContainsAny(v.Reason, "\x00\x1b\n\r") || v.Allowed() != (v.Code == "") {
				t.Fatalf("question %d: %+v", i, v)
			}
			if clean == "no.example" && i != 1 && i != 4 && v.Allowed() {
				t.Fatalf("question %d: %+v", i, v)
			}
		}
		_, _ = s.Test(method+" "+target, a)
	})
}

// FuzzFromSandboxRuntime: settings are read or refused, and what is read
// compiles.
func FuzzFromSandboxRuntime(f *testing.F) {
	f.Add([]byte(`{"network": {"allowedDomains": ["a.example:22", "[::1]:1"], "deniedDomains": ["*:25"], "tlsTerminate": {"excludeDomains": ["*.a.example"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _, err := policy.FromSandboxRuntime(text)
		if err != nil {
			if len(policy.Problems(err)) == 0 {
				t.Fatalf("error %q", err)
			}
			return
		}
		if _, err := policy.Compile(p, nil); err != nil {
			t.Fatal(err)
		}
	})
}
