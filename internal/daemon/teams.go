package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// openTenants reads the keys that were made, beside those of the file.
func (d *daemon) openTenants(ctx context.Context, file *key.Set, book *team.Book, db team.Keys) (auth.Tenants, error) {
	ring, err := team.OpenRing(ctx, team.RingOptions{File: file, Keys: db, Rand: rand.Reader, Log: d.log})
	if err != nil {
		return auth.Tenants{}, fmt.Errorf("read keys: %w", err)
	}
	return auth.Tenants{Keys: file, Ring: ring, Book: book}, nil
}

// records are what the daemon remembers of teams and of the machine.
type records interface {
	team.Secrets
	team.Settings
}

// openTeams is what E2B's clients ask of teams and of the machine.
func (d *daemon) openTeams(ctx context.Context, serve server.Options, db records) (e2b.Teams, error) {
	machine, err := node.Open(ctx, node.Options{
		Manager: d.manager, Settings: db, Dir: d.cfg.Dirs.State, Version: d.deps.Version, Commit: commitOf(d.deps.Version),
	})
	if err != nil {
		return e2b.Teams{}, err
	}
	t := e2b.Teams{Tenants: serve.Tenants, Secrets: db, Node: machine}
	if serve.Secrets != nil {
		t.Values = serve.Secrets
	}
	return t, nil
}

// namedSecrets are the secrets of owners, of which a dialect's clients know some by
// other names: what goes, goes under both.
type namedSecrets struct {
	server.Secrets
	names team.Secrets
}

// named returns s, nil where it is nil.
func named(s server.Secrets, names team.Secrets) server.Secrets {
	if s == nil {
		return nil
	}
	return namedSecrets{s, names}
}

// Remove implements server.Secrets.
func (n namedSecrets) Remove(ctx context.Context, owner, name string, force bool) error {
	if err := n.Secrets.Remove(ctx, owner, name, force); err != nil {
		return err
	}
	all, err := n.names.NamedSecrets(ctx, owner)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Kept == name {
			err = errors.Join(err, n.names.DeleteNamedSecret(ctx, s.ID))
		}
	}
	return err
}

// commitOf returns the commit in a version as git describes it, "" where there
// is none: "v1.2-3-g0123abc-dirty", or the commit alone.
func commitOf(version string) string {
	version = strings.TrimSuffix(version, "-dirty")
	if i := strings.LastIndex(version, "-g"); i >= 0 {
		version = version[i+2:]
	}
	if _, err := hex.DecodeString(version + strings.Repeat("0", len(version)%2)); err != nil || len(version) < 7 {
		return ""
	}
	return version
}
