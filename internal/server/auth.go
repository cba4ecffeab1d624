package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// The headers that say who asks.
const (
	headerKey   = "X-Api-Key"
	headerAdmin = "X-Admin-Token" // a key that has the scope admin
	headerTeam  = "X-Team-Id"     // whom an administrator acts for
)

// refuse answers err in the form of the API that was asked.
func refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		wire.ErrorAs(w, status, err)
		return
	}
	e2b.WriteError(w, status, err)
}

func refuseKind(w http.ResponseWriter, r *http.Request, err error) {
	refuse(w, r, wire.Status(sandbox.KindOf(err)), err)
}

// fromTCP lets in holders of a key, and requests for a sandbox, of which the
// sandbox's own token is asked later. What a key let in ends with the key.
func (s *Server) fromTCP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.target(r); ok || s.isContent(r) {
			next.ServeHTTP(w, r)
			return
		}
		if isTargetPreflight(r) {
			answerPreflight(w, r)
			return
		}
		p, alive, ok := s.keyHolder(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, r, http.StatusUnauthorized, noKey(r))
			return
		}
		if err := s.actFor(r, p); err != nil {
			refuseKind(w, r, err)
			return
		}
		if err := s.countRequest(r, p); err != nil {
			refuseKind(w, r, err)
			return
		}
		if alive != nil && alive.Done() != nil {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(alive, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, withPrincipal(s.hurried(w, r), p))
	})
}

// noKey says that a request has no key, or one that opens nothing: not why.
func noKey(r *http.Request) *sandbox.Error {
	if len(presentedKeys(r)) > 0 {
		return sandbox.Errorf(sandbox.Denied, "the API key is not known").
			WithHint("see that it is whole, of this server, and not revoked")
	}
	return sandbox.Errorf(sandbox.Denied, "an API key is needed").WithHint("send it as X-API-KEY")
}

// presentedKeys are the keys in r's headers, without one that repeats the last.
func presentedKeys(r *http.Request) []string {
	presented := slices.Concat(r.Header.Values(headerKey), r.Header.Values(headerAdmin))
	for _, v := range r.Header.Values("Authorization") {
		if scheme, secret, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Bearer") {
			presented = append(presented, strings.TrimSpace(secret))
		}
	}
	return slices.Compact(presented)
}

// keyHolder returns who r's key belongs to, and a context that ends with the
// key. Two different keys are none; a key in an administrator's header must be
// an administrator's.
func (s *Server) keyHolder(r *http.Request) (*principal, context.Context, bool) {
	admin := r.Header.Values(headerAdmin)
	presented := presentedKeys(r)
	if len(presented) != 1 {
		return nil, nil, false
	}
	k, alive, ok := s.findKey(r.Context(), presented[0])
	if !ok || len(admin) > 0 && !k.Allows(key.Admin) {
		return nil, nil, false
	}
	return &principal{caller: sandbox.Caller{Owner: k.Owner}, key: k, presented: presented[0]}, alive, true
}

func (s *Server) findKey(ctx context.Context, secret string) (*key.Key, context.Context, bool) {
	if s.o.Ring != nil {
		return s.o.Ring.Find(ctx, secret)
	}
	if s.o.Keys == nil {
		return nil, nil, false
	}
	k, ok := s.o.Keys.Find(secret)
	return k, nil, ok
}

// actFor has an administrator act for the team that r names. Anybody else may
// name its own.
func (s *Server) actFor(r *http.Request, p *principal) error {
	named := r.Header.Values(headerTeam)
	if len(named) == 0 || len(named) == 1 && named[0] == team.ID(p.caller.Owner) {
		return nil
	}
	if len(named) > 1 {
		return sandbox.Errorf(sandbox.Invalid, "%s: it is there twice", headerTeam)
	}
	if !p.allows(key.Admin) {
		return sandbox.Errorf(sandbox.Denied, "team %.80q: not the team of this key", named[0])
	}
	owner, err := s.teamOwner(r.Context(), named[0])
	if err != nil {
		return err
	}
	p.caller.Owner, p.acting, p.presented = owner, true, ""
	return nil
}

// teamOwner returns whose team an ID is: of those that have keys, limits or
// sandboxes.
func (s *Server) teamOwner(ctx context.Context, id string) (string, error) {
	var owners []string
	if s.o.Keys != nil {
		for _, k := range s.o.Keys.All() {
			owners = append(owners, k.Owner)
		}
	}
	if s.o.Ring != nil {
		owners = append(owners, s.o.Ring.Owners()...)
	}
	if s.o.Book != nil {
		owners = append(owners, s.o.Book.Owners()...)
	}
	list, err := s.m.List(ctx, sandbox.Caller{Admin: true}, sandbox.Filter{})
	if err != nil {
		return "", err
	}
	for _, sb := range list {
		owners = append(owners, sb.Owner)
	}
	for _, o := range owners {
		if team.ID(o) == id {
			return o, nil
		}
	}
	return "", sandbox.Errorf(sandbox.NotFound, "team %.80q: not found", id)
}

// countRequest takes r out of what its key may send. What goes to a guest, and
// what only waits, is not counted.
func (s *Server) countRequest(r *http.Request, p *principal) error {
	if s.o.Book == nil || strings.HasPrefix(r.URL.Path, "/v1/sandboxes/") &&
		(strings.Contains(r.URL.Path, "/guest/") || strings.HasSuffix(r.URL.Path, "/hold")) {
		return nil
	}
	class := "write"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		class = "read"
	}
	return s.o.Book.Request(p.caller.Owner, p.credential(), class, time.Now())
}

// teams is what E2B's paths of teams, keys, secrets and the machine work with.
func (s *Server) teams() e2b.Teams {
	t := e2b.Teams{Secrets: s.o.Named, Node: s.o.Node, Builds: s.o.Builds, Owner: s.teamOwner}
	if s.o.Ring != nil {
		t.Keys = s.o.Ring
	}
	if s.o.Book != nil {
		t.Metrics, t.Limits = s.o.Book, s.o.Book.Limits
	}
	if s.o.Secrets != nil {
		t.Values = s.o.Secrets
	}
	return t
}
