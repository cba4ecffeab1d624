package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/hostdir"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// principal is who asks. One of peer and key is set, neither for a request
// that only a sandbox's token can let in.
type principal struct {
	caller sandbox.Caller
	peer   *hostdir.Identity // over the unix socket
	key    *key.Key          // over TCP
	// presented is the key itself; "" for an administrator who acts for another
	// team.
	presented string
	acting    bool // an administrator, in the name of another team
}

type (
	principalKey struct{}
	peerKey      struct{}
	peerResult   struct {
		id  hostdir.Identity
		err error
	}
)

func principalOf(r *http.Request) *principal {
	p, ok := r.Context().Value(principalKey{}).(*principal)
	if !ok {
		return &principal{}
	}
	return p
}

// allows reports whether p may. A user of the machine is an administrator
// where the caller is one; an administrator who acts for a team may look after
// it, and go into its sandboxes only with a scope that says so.
func (p *principal) allows(s key.Scope) bool {
	switch {
	case p.peer != nil:
		return s != key.Admin || p.caller.Admin
	case p.key == nil:
		return false
	case p.acting && s != key.Exec:
		return true
	}
	return p.key.Allows(s)
}

// credential names what p was let in with.
func (p *principal) credential() string {
	switch {
	case p.key != nil:
		return p.key.Owner + "/" + p.key.ID
	case p.peer != nil:
		return p.caller.Owner
	}
	return ""
}

// grant is what keys may have that p makes: no scope that its own key has not,
// whatever it may do for the team that it acts for.
func (p *principal) grant() team.Grant {
	g := team.Grant{HostImage: p.hostImage(), PrivateNetwork: p.privateNetwork()}
	for _, s := range append(key.Usual(), key.Keys, key.Admin) {
		if p.key == nil && p.allows(s) || p.key != nil && (p.key.Allows(s) || weak.On(weak.ServerGrantsMore) && p.allows(s)) {
			g.Scopes = append(g.Scopes, s)
		}
	}
	if p.key != nil && !p.acting {
		g.Paths = slices.Clone(p.key.Paths)
	}
	return g
}

func (p *principal) hostImage() bool {
	return p.peer != nil || p.key != nil && p.key.HostImage
}

func (p *principal) privateNetwork() bool {
	return p.peer != nil || p.key != nil && p.key.PrivateNetwork
}

func withPrincipal(r *http.Request, p *principal) *http.Request {
	if who, ok := r.Context().Value(whoKey{}).(*string); ok {
		*who = p.caller.Owner
	}
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

func effectiveUID() uint32 { return uint32(os.Geteuid()) }

// withPeer notes who is at the other end of a unix socket.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	id, err := hostdir.Peer(u)
	return context.WithValue(ctx, peerKey{}, peerResult{id, err})
}

// fromUnix lets in whoever the kernel says is at the other end.
func (s *Server) fromUnix(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := r.Context().Value(peerKey{}).(peerResult)
		if !ok || peer.err != nil {
			s.log.Warn("connection without credentials", "error", peer.err)
			wire.Error(w, sandbox.Errorf(sandbox.Denied, "the other end of this connection is unknown"))
			return
		}
		p := &principal{
			caller: sandbox.Caller{
				Owner: fmt.Sprintf("uid:%d", peer.id.UID),
				Admin: peer.id.UID == 0 || peer.id.UID == s.uid,
			},
			peer: &peer.id,
		}
		if err := s.countRequest(r, p); err != nil {
			refuseKind(w, r, err)
			return
		}
		next.ServeHTTP(w, withPrincipal(r, p))
	})
}

// guard refuses what a page in a browser can be made to send, whatever it
// would be allowed: it may come from the machine of somebody who is. Only what
// pages says yes to may come from one.
func (s *Server) guard(known, pages func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fromPage(r.Header) && !pages(r) {
			if weak.On(weak.ServerPagesAllowed) {
				letPages(w, r, next)
				return
			}
			wire.Error(w, sandbox.Errorf(sandbox.Denied, "requests of web pages are refused"))
			return
		}
		if !known(r) {
			wire.Error(w, sandbox.Errorf(sandbox.Denied, "host %.80q: not a name of this daemon", r.Host).
				WithHint("call it by the address on which it listens, or add the name to its configuration"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// letPages is what a server without a guard would do, and be read from pages.
func letPages(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if isPreflight(r) {
		answerPreflight(w, r)
		return
	}
	letPagesRead(w.Header(), r.Header)
	next.ServeHTTP(w, r)
}

func noPages(*http.Request) bool { return false }

// tcpPages lets pages reach sandboxes, whose own tokens are asked of them.
func (s *Server) tcpPages(r *http.Request) bool {
	_, ok := s.target(r)
	return ok || isTargetPreflight(r)
}

func fromAnotherSite(h http.Header) bool {
	for _, v := range h.Values("Sec-Fetch-Site") {
		if v != "none" {
			return true
		}
	}
	return false
}

// unixHost knows the names that clients of a unix socket make up.
func unixHost(r *http.Request) bool {
	host := hostName(r.Host)
	return host == "unix" || host == "localhost" || host == "carboy"
}

// tcpHost knows the address on which the request came in, and the names of
// the configuration. A name that anybody could point here is not enough: a
// page could have been served under it.
func (s *Server) tcpHost(r *http.Request) bool {
	host := hostName(r.Host)
	if s.o.Domain != "" && (host == s.o.Domain || host == "api."+s.o.Domain || host == sharedHost+"."+s.o.Domain) || slices.Contains(s.o.Hosts, host) {
		return true
	}
	if _, ok := parseHost(r.Host, s.o.Domain); ok {
		return true
	}
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	local, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return false
	}
	if host == "localhost" {
		return local.Addr().Unmap().IsLoopback()
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap() == local.Addr().Unmap().WithZone("")
}

// hostName returns a Host header's name, lower case, without its port.
func hostName(hostport string) string {
	host := strings.ToLower(hostport)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}
