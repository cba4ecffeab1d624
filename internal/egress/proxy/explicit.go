package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// maxAddrs bounds the addresses of a name that are tried.
const maxAddrs = 8

func portText(port uint16) string { return strconv.Itoa(int(port)) }

// addrsText is the same for equal sets of addresses.
func addrsText(addrs []netip.AddrPort) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// found is where a host is, and how the policy wants a connection there.
type found struct {
	addrs []netip.AddrPort // the same verdict for each
	names []string         // of the first
	mode  policy.Mode
	v     policy.Verdict
}

// find resolves a host as the guest's own resolver would, and asks the policy
// about connections to it. Addresses that it refuses are left out.
func (p *Proxy) find(ctx context.Context, a asked, port uint16) (found, *Refusal) {
	addrs := []netip.Addr{a.addr}
	if a.name != "" {
		all, v, err := p.o.Resolve(ctx, a.name)
		switch {
		case v.Mode == policy.ModeRefuse:
			return found{}, ofVerdict(v, a.name, port, port == defTLS)
		case err != nil || len(all) == 0:
			r := refuse(http.StatusBadGateway, CodeUpstream, "no address of "+shown(a.name)+" could be found")
			r.Host = a.name
			return found{}, r
		}
		addrs = all
	}
	var f found
	var refused policy.Verdict
	pol := p.o.Policy()
	for _, addr := range addrs[:min(len(addrs), maxAddrs)] {
		to := netip.AddrPortFrom(addr.Unmap(), port)
		names := p.namesOf(addr, a.name)
		v := pol.Connect(policy.Conn{Addr: to, Names: names})
		switch {
		case !v.Allowed():
			refused = v
		case f.addrs == nil:
			f = found{addrs: []netip.AddrPort{to}, names: names, mode: v.Mode, v: v}
		case f.mode == v.Mode && f.v.Rule == v.Rule:
			f.addrs = append(f.addrs, to)
		}
	}
	if f.addrs == nil {
		return found{}, ofVerdict(refused, a.host(), port, port == defTLS)
	}
	return f, nil
}

// namesOf are the names that the gate has resolved to an address, with the one
// that it has resolved just now.
func (p *Proxy) namesOf(addr netip.Addr, name string) []string {
	names := p.o.Names(addr.Unmap())
	if name != "" && !slices.Contains(names, name) {
		names = append(slices.Clone(names), name)
	}
	return names
}

// locate finds where a request to the proxy is for: a URL with a host, in the
// clear.
func (x *exchange) locate() *Refusal {
	u := x.r.URL
	if u.Scheme != "http" || u.Host == "" {
		r := badRequest("this is the gate's HTTP proxy: it takes CONNECT, and http URLs")
		r.Host = netHost
		return r
	}
	a, ok := parseHost(x.r.Host)
	if !ok {
		return badRequest("the request's host is none that can be")
	}
	if a.port == 0 {
		a.port = defaultHTTP
	}
	x.wants(a)
	f, why := x.cn.p.find(x.ctx, a, a.port)
	if why != nil {
		return why
	}
	x.dst, x.addrs = f.addrs[0], f.addrs
	x.streamed = policy.Stream{Conn: policy.Conn{Addr: x.dst, Names: f.names}, Name: a.name}
	x.stream = x.cn.p.o.Policy().Stream(x.streamed)
	if !x.stream.Allowed() {
		return ofVerdict(x.stream, a.host(), a.port, false)
	}
	return nil
}

// connect serves CONNECT: what comes in the tunnel is read like a connection
// that the sandbox has made to the host itself.
func (x *exchange) connect() {
	a, ok := parseHost(x.r.Host)
	if !ok || a.port == 0 || x.r.RequestURI != x.r.Host {
		x.deny(badRequest("CONNECT wants HOST:PORT"))
		return
	}
	x.wants(a)
	var f found
	if own := a.name == netHost && (a.port == defaultHTTP || a.port == defTLS); !own {
		var why *Refusal
		if f, why = x.cn.p.find(x.ctx, a, a.port); why != nil {
			x.deny(why)
			return
		}
		x.dst = f.addrs[0]
	}
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.deny(badRequest("the connection can't be a tunnel"))
		return
	}
	defer conn.Close()
	x.cn.strict.Raw()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var head []byte
	if n := rw.Reader.Buffered(); n > 0 {
		head, _ = rw.Reader.Peek(n)
	}
	inner := tlswire.Replay(conn, head)
	if f.addrs == nil {
		x.cn.p.ServeInfo(x.cn.ctx, inner)
		return
	}
	x.cn.p.serveTunnel(x.cn.ctx, inner, a, f)
}

// wants notes whom a request to the proxy is for, before it is known where that
// is: a record has the port, and the gate's own address.
func (x *exchange) wants(a asked) {
	x.name, x.dst = a.name, netip.AddrPortFrom(x.cn.dst.Addr(), a.port)
	if a.addr.IsValid() {
		x.dst = netip.AddrPortFrom(a.addr, a.port)
	}
}

// deny answers with a refusal, and records it.
func (x *exchange) deny(why *Refusal) {
	defer x.record()
	x.refuse(why)
}

// serveTunnel serves what is in a CONNECT.
func (p *Proxy) serveTunnel(ctx context.Context, conn net.Conn, a asked, f found) {
	cn, ok := p.admit(ctx, tunnel, conn, f.addrs[0])
	if !ok {
		return
	}
	defer cn.leave()
	cn.addrs, cn.names, cn.host = f.addrs, f.names, a.host()
	if !cn.list() {
		return
	}
	pol := p.o.Policy()
	cn.revision = pol.Revision()
	switch v := pol.Connect(cn.policyConn()); {
	case !v.Allowed(): // it has changed since
		cn.reset(ofVerdict(v, a.host(), a.port, false))
	case v.Mode == policy.ModeRelay:
		cn.name = a.name
		cn.relay(cn.carrier, nil, v, nil)
	default:
		cn.sniff(cn.carrier)
	}
}

// unresolved says why a name was given the sink's address.
func (x *exchange) unresolved() *Refusal {
	a, ok := parseHost(x.r.Host)
	if !ok {
		return badRequest("the request's host is none that can be")
	}
	if a.addr.IsValid() {
		r := refuse(http.StatusForbidden, string(policy.CodeNotAllowed), "this address stands for names that are refused")
		r.Hint = "see " + gatePages + " for what is allowed"
		return r
	}
	port := x.dst.Port()
	v := x.cn.p.o.Policy().Name(a.name)
	if v.Allowed() && x.cn.p.o.Resolve != nil {
		var err error
		if _, v, err = x.cn.p.o.Resolve(x.ctx, a.name); err != nil && v.Allowed() {
			if errors.Is(err, context.Canceled) {
				panic(http.ErrAbortHandler)
			}
			r := refuse(http.StatusBadGateway, CodeUpstream, "no address of "+shown(a.name)+" could be found")
			r.Host = a.name
			return r
		}
	}
	if v.Mode == policy.ModeRefuse {
		return ofVerdict(v, a.name, port, x.cn.tls)
	}
	r := refuse(http.StatusServiceUnavailable, string(policy.CodeNotResolved), shown(a.name)+" was refused when it was resolved, and is allowed now")
	r.Host, r.Hint = a.name, "resolve it again, on a new connection"
	return r
}
