package skill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// workspacePrefix begins the owners that are workspaces of a platform. What
// follows is a name that no two have.
const workspacePrefix = "box:"

// Owners is a Store by the owners of sessions. No owner sees another's.
type Owners struct {
	Store *Store
	// Own is the owner whose packages lie at the store's top: the daemon's user,
	// who may put them there by hand.
	Own string
}

// Of returns the owner's namespace.
func (o Owners) Of(owner string) (*Store, error) {
	if owner == o.Own {
		return o.Store.Scoped("")
	}
	if ns, ok := strings.CutPrefix(owner, workspacePrefix); ok {
		return o.Store.Scoped(ns)
	}
	sum := sha256.Sum256([]byte(owner))
	return o.Store.Scoped("owner-" + hex.EncodeToString(sum[:12]))
}

// Named returns the mount that a request means by the name of a skill: a
// read-only one.
func (o Owners) Named(ctx context.Context, owner, name string) (request.Mount, error) {
	s, err := o.Of(owner)
	if err != nil {
		return request.Mount{}, err
	}
	k, err := s.Get(ctx, name)
	if err != nil {
		return request.Mount{}, err
	}
	return request.Mount{HostPath: k.PackageRoot, Target: tools.SkillsPath + "/" + k.Name, Mode: request.ReadOnly}, nil
}

// Has reports that an owner has no skill of that name, which is NotFound.
func (o Owners) Has(ctx context.Context, owner, name string) error {
	s, err := o.Of(owner)
	if err == nil {
		_, err = s.Get(ctx, name)
	}
	return err
}

// Pack writes the files of an owner's skill as a tar archive. Links and special files are left
// out.
func (o Owners) Pack(ctx context.Context, owner, name string, w io.Writer) error {
	s, err := o.Of(owner)
	if err != nil {
		return err
	}
	return s.with(ctx, name, func(dir *os.Root, f found, _ sessions.Skill) error {
		pkg, err := openBelow(dir, f.dir)
		if err != nil {
			return s.fault("open the package", err)
		}
		defer pkg.Close()
		nodes, _, err := walk(ctx, pkg)
		if err != nil {
			return err
		}
		return writeTar(ctx, pkg, nodes, w)
	})
}

// Place is Store.Place for an owner.
func (o Owners) Place(owner string, m request.Mount) (p Placed, ok bool, err error) {
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
