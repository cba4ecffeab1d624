package auth

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// The headers that say who asks.
const (
	HeaderKey   = "X-Api-Key"
	HeaderAdmin = "X-Admin-Token" // a key that has the scope admin
	headerTeam  = "X-Team-Id"     // whom an administrator acts for
)

// Tenants are the teams that may ask over TCP.
type Tenants struct {
	Keys *key.Set // of the key file; nil: there is none
	// Ring has those keys and the ones that are made at run time; nil: none is.
	Ring *team.Ring
	Book *team.Book // what teams may have and do, and had; nil: anything
}

// lister has the sandboxes.
type lister interface {
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
}

// NoKey says that a request has no key, or one that opens nothing: not why.
func NoKey(r *http.Request) *sandbox.Error {
	if len(presentedKeys(r)) > 0 {
		return sandbox.Errorf(sandbox.Denied, "the API key is not known").
			WithHint("see that it is whole, of this server, and not revoked")
	}
	return sandbox.Errorf(sandbox.Denied, "an API key is needed").WithHint("send it as X-API-KEY")
}

// presentedKeys are the keys in r's headers, without one that repeats the last.
func presentedKeys(r *http.Request) []string {
	presented := slices.Concat(r.Header.Values(HeaderKey), r.Header.Values(HeaderAdmin))
	for _, v := range r.Header.Values("Authorization") {
		if scheme, secret, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Bearer") {
			presented = append(presented, strings.TrimSpace(secret))
		}
	}
	return slices.Compact(presented)
}

// Holder returns who r's key belongs to, and a context that ends with the
// key. Two different keys are none; a key in an administrator's header must be
// an administrator's.
func (t Tenants) Holder(r *http.Request) (*Principal, context.Context, bool) {
	admin := r.Header.Values(HeaderAdmin)
	presented := presentedKeys(r)
	if len(presented) != 1 {
		return nil, nil, false
	}
	k, alive, ok := t.Find(r.Context(), presented[0])
	if !ok || len(admin) > 0 && !k.Allows(key.Admin) {
		return nil, nil, false
	}
	c := sandbox.Caller{Owner: k.Owner, Floor: t.Book.Floor(k.Owner, k.Isolation)}
	return &Principal{Caller: c, Key: k, Presented: presented[0]}, alive, true
}

// Find returns the key that a secret is, and a context that ends with the key.
func (t Tenants) Find(ctx context.Context, secret string) (*key.Key, context.Context, bool) {
	if t.Ring != nil {
		return t.Ring.Find(ctx, secret)
	}
	if t.Keys == nil {
		return nil, nil, false
	}
	k, ok := t.Keys.Find(secret)
	return k, nil, ok
}

// Lives reports whether a key is still there, as Principal.Source names it.
func (t Tenants) Lives(source string) bool {
	id, _, _ := strings.Cut(source, " ")
	if t.Ring != nil {
		hash, ok := t.Ring.Hash(id)
		if ok && sourceOf(id, hash) == source {
			return true
		}
	}
	return t.Keys != nil && slices.ContainsFunc(t.Keys.All(), func(k *key.Key) bool { return sourceOf(k.ID, k.Hash) == source })
}

// ActFor has an administrator act for the team that r names. Anybody else may
// name its own.
func (t Tenants) ActFor(r *http.Request, p *Principal, m lister) error {
	named := r.Header.Values(headerTeam)
	if len(named) == 0 || len(named) == 1 && named[0] == team.ID(p.Caller.Owner) {
		return nil
	}
	if len(named) > 1 {
		return sandbox.Errorf(sandbox.Invalid, "%s: it is there twice", headerTeam)
	}
	if !p.Allows(key.Admin) {
		return sandbox.Errorf(sandbox.Denied, "team %.80q: not the team of this key", named[0])
	}
	owner, err := t.Owner(r.Context(), named[0], m)
	if err != nil {
		return err
	}
	p.Caller.Owner, p.Acting, p.Presented = owner, true, ""
	if p.Key != nil {
		p.Caller.Floor = t.Book.Floor(owner, p.Key.Isolation)
	}
	return nil
}

// Owner returns whose team an ID is: of those that have keys, limits or
// sandboxes.
func (t Tenants) Owner(ctx context.Context, id string, m lister) (string, error) {
	var owners []string
	if t.Keys != nil {
		for _, k := range t.Keys.All() {
			owners = append(owners, k.Owner)
		}
	}
	if t.Ring != nil {
		owners = append(owners, t.Ring.Owners()...)
	}
	if t.Book != nil {
		owners = append(owners, t.Book.Owners()...)
	}
	list, err := m.List(ctx, sandbox.Caller{Admin: true}, sandbox.Filter{})
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

// Count takes r out of what its key may send. What goes to a guest, and
// what only waits, is not counted.
func (t Tenants) Count(r *http.Request, p *Principal) error {
	if t.Book == nil || strings.HasPrefix(r.URL.Path, "/v1/sandboxes/") &&
		(strings.Contains(r.URL.Path, "/guest/") || strings.HasSuffix(r.URL.Path, "/hold")) {
		return nil
	}
	class := "write"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		class = "read"
	}
	return t.Book.Request(p.Caller.Owner, p.Credential(), class, time.Now())
}
