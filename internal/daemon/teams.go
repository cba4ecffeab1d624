package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// openTeams reads what the daemon remembers of keys and of the machine, and
// puts it where requests find it.
func (d *daemon) openTeams(ctx context.Context, db *store.SQLite, book *team.Book, o *server.Options) error {
	ring, err := team.OpenRing(ctx, team.RingOptions{File: o.Keys, Keys: db, Rand: rand.Reader, Log: d.log})
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	machine, err := node.Open(ctx, node.Options{
		Manager: d.manager, Settings: db, Dir: d.cfg.Dirs.State, Version: d.deps.Version, Commit: commitOf(d.deps.Version),
	})
	if err != nil {
		return err
	}
	o.Ring, o.Book, o.Named, o.Node = ring, book, db, machine
	return nil
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
