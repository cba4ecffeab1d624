package proxy

import (
	"net"
	"net/http"
	"net/netip"
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
func (g *guest) agree(r *http.Request) (string, *Refusal) {
	if bad := g.sound(r); bad != nil {
		return "", bad
	}
	if r.Host == "" {
		if g.tls && g.name != "" || r.ProtoMajor > 1 {
			return "", badRequest("the request names no host")
		}
		return "", nil // HTTP/1.0: for the address
	}
	a, ok := parseHost(r.Host)
	if !ok {
		return "", badRequest("the request's host is none that can be")
	}
	if bad := g.matches(a); bad != nil {
		if weak.On(weak.NetNamesUnbound) {
			return g.name, nil
		}
		bad.Host = withPort(a.host(), a.port, g.tls)
		return "", bad
	}
	return a.name, nil
}

// sound refuses requests whose form belongs elsewhere.
func (g *guest) sound(r *http.Request) *Refusal {
	switch {
	case r.Method == http.MethodConnect && weak.On(weak.NetConnectPass):
		return nil
	case r.Method == http.MethodConnect:
		return refuse(http.StatusForbidden, string(policy.CodeProtocol), "CONNECT is for the gate's proxy alone")
	case r.ProtoMajor > 1:
		return soundHTTP2(r)
	case r.URL.Host != "" && (r.URL.Scheme == "https") != g.tls:
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
func (g *guest) matches(a asked) *Refusal {
	if a.port != 0 && a.port != g.dst.Port() && g.kind != sink {
		return mismatch("the request is for port " + strconv.Itoa(int(a.port)) + ", and the connection for " + strconv.Itoa(int(g.dst.Port())))
	}
	if g.kind == sink {
		if g.name != "" && a.host() != g.name {
			return mismatch("the request is for " + shown(a.host()) + ", and TLS was for " + shown(g.name))
		}
		return nil
	}
	if a.addr.IsValid() && g.name == "" && g.host == "" {
		if a.addr != g.dst.Addr() {
			return mismatch("the request is for " + a.addr.String() + ", and the connection for " + g.dst.Addr().String())
		}
		return nil
	}
	if g.tls || g.host != "" && !weak.On(weak.NetTunnelUnbound) {
		if want := g.shownHost(); a.host() != want {
			return mismatch("the request is for " + shown(a.host()) + ", and the connection for " + shown(want))
		}
		return nil
	}
	return nil // in the clear: the policy sees whether the name has the address
}

// approve asks the policy about the name of a request in the clear, once for a
// connection and a policy: there is no name that the connection as a whole is
// for.
func (g *guest) approve(name string) (policy.Verdict, *Refusal) {
	pol := g.p.o.Policy()
	g.mu.Lock()
	if g.approvedBy != pol {
		g.approved, g.approvedBy = map[string]policy.Verdict{}, pol
	}
	v, known := g.approved[name]
	g.mu.Unlock()
	if known {
		return v, nil
	}
	v = pol.Stream(policy.Stream{Conn: g.conn(), Name: name})
	if !v.Allowed() {
		return v, g.refused(v, name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.approvedBy == pol && len(g.approved) < maxApproved {
		g.approved[name] = v
	}
	return v, nil
}

// maxApproved bounds the names that are remembered for one connection.
const maxApproved = 64
