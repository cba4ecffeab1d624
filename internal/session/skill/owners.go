package skill

import (
	"context"
	"strings"

	"github.com/carboy-sandbox/carboy/api/box"
)

// ownerPrefix begins the owners that are workspaces of a platform, each of
// which has skills of its own. All other owners share the store's top.
const ownerPrefix = "box:"

// Owners is a Store by the owners of sessions.
type Owners struct{ Store *Store }

// Of returns the owner's namespace.
func (o Owners) Of(owner string) (*Store, error) {
	ns, _ := strings.CutPrefix(owner, ownerPrefix)
	if ns == owner {
		ns = ""
	}
	return o.Store.Scoped(ns)
}

// Place is Store.Place for an owner.
func (o Owners) Place(owner string, m box.Mount) (p Placed, ok bool, err error) {
	s, err := o.Of(owner)
	if err != nil {
		return Placed{}, false, err
	}
	return s.Place(m)
}

// Bring is Store.Bring for an owner.
func (o Owners) Bring(ctx context.Context, owner string, g Guest, b *Brought, want []Placed) (notices []string, err error) {
	s, err := o.Of(owner)
	if err != nil {
		return nil, err
	}
	return s.Bring(ctx, g, b, want)
}

// TakeBack is Store.TakeBack for an owner.
func (o Owners) TakeBack(ctx context.Context, owner string, g Guest, b *Brought, p Placed) (Taken, error) {
	s, err := o.Of(owner)
	if err != nil {
		return Taken{}, err
	}
	return s.TakeBack(ctx, g, b, p)
}
