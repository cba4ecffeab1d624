package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/ingress"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/volume"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// noDialect answers where there is no dialect.
type noDialect struct{}

func (noDialect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wire.Error(w, sandbox.Errorf(sandbox.NotFound, "%s %.200q: "+api.NoSuchPath, r.Method, r.URL.Path))
}
func (noDialect) ServeLink(http.ResponseWriter, *http.Request) bool { return false }
func (noDialect) Loggable(path string) string                       { return path }
func (noDialect) WriteError(w http.ResponseWriter, status int, err error) {
	wire.ErrorAs(w, status, err)
}

// refuse answers err in the form of the API that was asked.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		wire.ErrorAs(w, status, err)
		return
	}
	s.dialect.WriteError(w, status, err)
}

func (s *Server) refuseKind(w http.ResponseWriter, r *http.Request, err error) {
	s.refuse(w, r, wire.Status(sandbox.KindOf(err)), err)
}

// route splits what is for a guest from what is for the API.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if s.ingress.Takes(r) {
		s.ingress.ServeHTTP(w, r)
		return
	}
	s.api.ServeHTTP(w, r)
}

// links answers what needs no key, unless it is for a sandbox: its paths are its
// own, whatever they are called.
func (s *Server) links(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ingress.Takes(r) || !s.dialect.ServeLink(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// fromUnix lets in whom the kernel names at the other end.
func (s *Server) fromUnix(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := auth.Peer(r, s.uid)
		if err != nil {
			s.log.Warn("connection without credentials", "error", errors.Unwrap(err))
			wire.Error(w, err)
			return
		}
		if err := s.o.Count(r, p); err != nil {
			s.refuseKind(w, r, err)
			return
		}
		next.ServeHTTP(w, auth.With(r, p))
	})
}

// fromTCP lets in holders of a key, and requests for a sandbox, of which the
// sandbox's own token is asked later. What a key let in ends with the key.
func (s *Server) fromTCP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ingress.Takes(r) || s.o.Volumes != nil && volume.IsContent(r) {
			next.ServeHTTP(w, r)
			return
		}
		if ingress.IsTargetPreflight(r) {
			ingress.AnswerPreflight(w, r)
			return
		}
		p, alive, ok := s.o.Holder(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.refuse(w, r, http.StatusUnauthorized, auth.NoKey(r))
			return
		}
		err := s.o.ActFor(r, p, s.o.Manager)
		if err == nil {
			err = s.o.Count(r, p)
		}
		if err != nil {
			s.refuseKind(w, r, err)
			return
		}
		if alive != nil && alive.Done() != nil {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(alive, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, auth.With(s.hurried(w, r), p))
	})
}

// guard refuses what a page in a browser can be made to send, whatever it
// would be allowed: it may come from the machine of somebody who is. Only what
// pages says yes to may come from one.
func (s *Server) guard(known, pages func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ingress.FromPage(r.Header) && !pages(r) {
			if weak.On(weak.ServerPagesAllowed) {
				ingress.LetPages(w, r, next)
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

func noPages(*http.Request) bool { return false }

// tcpPages lets pages reach sandboxes, whose own tokens are asked of them.
func (s *Server) tcpPages(r *http.Request) bool {
	return s.ingress.Takes(r) || ingress.IsTargetPreflight(r)
}

// unixHost knows the names that clients of a unix socket make up.
func unixHost(r *http.Request) bool {
	host := ingress.HostName(r.Host)
	return host == "unix" || host == "localhost" || host == "carboy"
}

// tcpHost knows the address on which the request came in, and the names of
// the configuration. A name that anybody could point here is not enough: a
// page could have been served under it.
func (s *Server) tcpHost(r *http.Request) bool {
	host := ingress.HostName(r.Host)
	if s.o.Domain != "" && (host == s.o.Domain || host == "api."+s.o.Domain) || slices.Contains(s.o.Hosts, host) || s.ingress.Named(r) {
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
