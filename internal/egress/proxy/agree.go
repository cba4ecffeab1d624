package proxy

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// asked is whom a request says that it is for.
type asked struct {
	name string     // in its clean form; "" where it is an address, or nothing
	addr netip.Addr // where it is one
	port uint16     // 0 where none was said
}

// host is the name or the address.
func (a asked) host() string {
	if a.name != "" || !a.addr.IsValid() {
		return a.name
	}
	return a.addr.String()
}

// parseHost reads a Host field, an :authority or the target of CONNECT.
func parseHost(s string) (a asked, ok bool) {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return a, false
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return a, false
		}
		a.port = uint16(n)
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	for _, c := range []byte(host) {
		if c <= ' ' || c > '~' || c == '@' || c == '/' || c == '%' {
			return a, false // names beyond ASCII come in IDNA's form
		}
	}
	var err error
	a.name, a.addr, err = policy.CleanHost(host)
	return a, err == nil
}

// agree checks that what a request says it is for is what its connection is
// for, and returns the name that policy is asked about: "" for an address.
//
// It runs for every request, whatever was found of the ones before.
func (cn *conn) agree(r *http.Request) (string, *Refusal) {
	if bad := cn.sound(r); bad != nil {
		return "", bad
	}
	if r.Host == "" {
		if cn.tls && cn.name != "" || r.ProtoMajor > 1 {
			return "", badRequest("the request names no host")
		}
		return "", nil // HTTP/1.0: for the address
	}
	a, ok := parseHost(r.Host)
	if !ok {
		return "", badRequest("the request's host is none that can be")
	}
	if bad := cn.matches(a); bad != nil {
		if weak.On(weak.NetNamesUnbound) {
			return cn.name, nil
		}
		bad.Host = withPort(a.host(), a.port, cn.tls)
		return "", bad
	}
	return a.name, nil
}

// sound refuses requests whose form belongs elsewhere.
func (cn *conn) sound(r *http.Request) *Refusal {
	switch {
	case r.Method == http.MethodConnect && weak.On(weak.NetConnectPass):
		return nil
	case r.Method == http.MethodConnect:
		return refuse(http.StatusForbidden, string(policy.CodeProtocol), "CONNECT is for the gate's proxy alone")
	case r.ProtoMajor > 1:
		return soundHTTP2(r)
	case r.URL.Host != "" && (r.URL.Scheme == "https") != cn.tls:
		return badRequest("the target is a URL of another scheme than the connection")
	}
	return nil
}

// soundHTTP2 checks what net/http leaves to handlers.
func soundHTTP2(r *http.Request) *Refusal {
	if weak.On(weak.NetFieldsLax) {
		return nil
	}
	if r.URL.Host != "" || r.URL.Scheme != "" {
		return badRequest("the path is a URL")
	}
	if hosts, ok := r.Header["Host"]; ok {
		if len(hosts) != 1 || !strings.EqualFold(hosts[0], r.Host) {
			return mismatch("the request's :authority and its Host name two hosts")
		}
		delete(r.Header, "Host")
	}
	if lengths := r.Header["Content-Length"]; len(lengths) > 1 {
		return badRequest("Content-Length twice")
	}
	fields := 0
	for name, values := range r.Header {
		fields += len(values)
		if field.Misspelt(name) {
			return misspelt(name)
		}
	}
	if fields > maxFields {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "more than 200 header fields")
	}
	for name := range r.Trailer {
		if !trailerAllowed(name) {
			return badRequest("a trailer field that belongs into the head")
		}
	}
	return nil
}

// matches compares a host with the connection.
func (cn *conn) matches(a asked) *Refusal {
	if a.port != 0 && a.port != cn.dst.Port() && cn.kind != sink {
		return mismatch("the request is for port " + strconv.Itoa(int(a.port)) + ", and the connection for " + strconv.Itoa(int(cn.dst.Port())))
	}
	if cn.kind == sink {
		if cn.name != "" && a.host() != cn.name {
			return mismatch("the request is for " + shown(a.host()) + ", and TLS was for " + shown(cn.name))
		}
		return nil
	}
	if a.addr.IsValid() && cn.name == "" && cn.host == "" {
		if a.addr != cn.dst.Addr() {
			return mismatch("the request is for " + a.addr.String() + ", and the connection for " + cn.dst.Addr().String())
		}
		return nil
	}
	if cn.tls || cn.host != "" && !weak.On(weak.NetTunnelUnbound) {
		if want := cn.shownHost(); a.host() != want {
			return mismatch("the request is for " + shown(a.host()) + ", and the connection for " + shown(want))
		}
		return nil
	}
	return nil // in the clear: the policy sees whether the name has the address
}

// approve asks the policy about the name of a request in the clear, once for a
// connection and a policy: there is no name that the connection as a whole is
// for.
func (cn *conn) approve(name string) (policy.Verdict, *Refusal) {
	pol := cn.p.o.Policy()
	cn.mu.Lock()
	if cn.approvedBy != pol {
		cn.approved, cn.approvedBy = map[string]policy.Verdict{}, pol
	}
	v, known := cn.approved[name]
	cn.mu.Unlock()
	if known {
		return v, nil
	}
	v = pol.Stream(policy.Stream{Conn: cn.policyConn(), Name: name})
	if !v.Allowed() {
		return v, cn.refused(v, name)
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.approvedBy == pol && len(cn.approved) < maxApproved {
		cn.approved[name] = v
	}
	return v, nil
}

// maxApproved bounds the names that are remembered for one connection.
const maxApproved = 64

// agreed keeps the first of addresses, about which the policy has said v, and
// those others about which it says the same: whichever answers first, no other
// request or stream goes there than was decided on.
func agreed(addrs []netip.AddrPort, v policy.Verdict, ask func(netip.AddrPort) policy.Verdict) []netip.AddrPort {
	if len(addrs) < 2 || !v.Allowed() {
		return addrs
	}
	kept := addrs[:1:1]
	for _, a := range addrs[1:] {
		if o := ask(a); o.Mode == v.Mode && o.Rule == v.Rule && o.Ask == v.Ask {
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
