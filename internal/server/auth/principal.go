// Package auth says who asks: a user of this machine over its socket, as the
// kernel names them, or the holder of a key over TCP.
//
// It refuses connections without credentials, more than one key at once, keys
// that are not known, and what a team may not do in its own or another's name.
package auth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/hostdir"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Principal is who asks. One of peer and key is set, neither for a request
// that only a sandbox's token can let in.
type Principal struct {
	Caller sandbox.Caller
	Peer   *hostdir.Identity // over the unix socket
	Key    *key.Key          // over TCP
	// Presented is the key itself; "" for an administrator who acts for another
	// team.
	Presented string
	Acting    bool // an administrator, in the name of another team
}

type (
	principalKey struct{}
	ownerKey     struct{}
	peerKey      struct{}
	peerResult   struct {
		id  hostdir.Identity
		err error
	}
)

// Of returns who sent r: one without any right where With has not said.
func Of(r *http.Request) *Principal {
	p, ok := r.Context().Value(principalKey{}).(*Principal)
	if !ok {
		return &Principal{}
	}
	return p
}

// Allows reports whether p may. A user of the machine is an administrator
// where the caller is one; an administrator who acts for a team may look after
// it, and go into its sandboxes only with a scope that says so.
func (p *Principal) Allows(s key.Scope) bool {
	switch {
	case p.Peer != nil:
		return s != key.Admin || p.Caller.Admin
	case p.Key == nil:
		return false
	case p.Acting && s != key.Exec && s != key.Approve:
		return true
	}
	return p.Key.Allows(s)
}

// Credential names what p was let in with.
func (p *Principal) Credential() string {
	switch {
	case p.Key != nil:
		return p.Key.Owner + "/" + p.Key.ID
	case p.Peer != nil:
		return p.Caller.Owner
	}
	return ""
}

// Source is what tokens that p asks for are tied to: its key, so that they end with it.
// A user of the machine has none, whose right does not end.
func (p *Principal) Source() string {
	if p.Key == nil {
		return ""
	}
	return sourceOf(p.Key.ID, p.Key.Hash)
}

// sourceOf is other for a key of the same name that was made in another's place.
func sourceOf(id, hash string) string { return id + " " + hash[:min(len(hash), 16)] }

// Grant is what keys may have that p makes: no scope that its own key has not,
// whatever it may do for the team that it acts for.
func (p *Principal) Grant() team.Grant {
	g := team.Grant{HostImage: p.HostImage(), PrivateNetwork: p.PrivateNetwork()}
	if p.Key != nil {
		g.Isolation = p.Key.Isolation
	}
	for _, s := range append(key.Usual(), key.Approve, key.Keys, key.Admin) {
		if p.Key == nil && p.Allows(s) || p.Key != nil && (p.Key.Allows(s) || weak.On(weak.ServerGrantsMore) && p.Allows(s)) {
			g.Scopes = append(g.Scopes, s)
		}
	}
	if p.Key != nil && !p.Acting {
		g.Paths = slices.Clone(p.Key.Paths)
	}
	return g
}

// HostImage reports whether p may use the machine's own programs.
func (p *Principal) HostImage() bool {
	return p.Peer != nil || p.Key != nil && p.Key.HostImage
}

// PrivateNetwork reports whether p may open what is not public.
func (p *Principal) PrivateNetwork() bool {
	return p.Peer != nil || p.Key != nil && p.Key.PrivateNetwork
}

// With returns r as sent by p.
func With(r *http.Request, p *Principal) *http.Request {
	if owner, ok := r.Context().Value(ownerKey{}).(*string); ok {
		*owner = p.Caller.Owner
	}
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

// WatchOwner returns r, and where With writes the owner down who sent it: for
// the log of requests, whose handlers stand above the one that knows.
func WatchOwner(r *http.Request) (*http.Request, *string) {
	owner := new(string)
	return r.WithContext(context.WithValue(r.Context(), ownerKey{}, owner)), owner
}

// WithPeer notes who is at the other end of a unix socket: a ConnContext.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	id, err := hostdir.Peer(u)
	return context.WithValue(ctx, peerKey{}, peerResult{id, err})
}

// Peer is who is at the other end of r's unix socket, as the kernel says. Root
// and the user uid are administrators.
func Peer(r *http.Request, uid uint32) (*Principal, error) {
	peer, ok := r.Context().Value(peerKey{}).(peerResult)
	if !ok || peer.err != nil {
		e := sandbox.Errorf(sandbox.Denied, "the other end of this connection is unknown")
		e.Err = peer.err
		return nil, e
	}
	return &Principal{
		Caller: sandbox.Caller{
			Owner: fmt.Sprintf("uid:%d", peer.id.UID),
			Admin: peer.id.UID == 0 || peer.id.UID == uid,
		},
		Peer: &peer.id,
	}, nil
}
