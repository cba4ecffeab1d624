package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/secret"
)

// gates are the sandboxes' ways out, and what they may put into requests.
type gates struct {
	*egress.Gates
	secrets *secret.Store
}

// openGates opens the secrets of this home, and what starts gates over them.
func openGates(cfg daemon.Config, dirs home.Dirs, log *slog.Logger) (*gates, error) {
	resolvers, err := cfg.ResolverAddrs()
	if err != nil {
		return nil, err
	}
	g := &gates{}
	g.secrets, err = secret.Open(secret.Options{
		Dir: filepath.Join(dirs.State, "secrets"), KeyFile: filepath.Join(dirs.Config, "secrets.key"),
		Changed: func(c secret.Change) { g.Changed(context.Background(), c) },
		InUse:   func(owner, name string) []string { return g.Users(owner, name) },
	})
	if err != nil {
		return nil, err
	}
	g.Gates, err = egress.New(egress.Options{State: dirs.State, Secrets: g.secrets, Resolvers: resolvers, Log: log})
	return g, err
}

// close leaves the gates to whoever comes next.
func (g *gates) close() {
	if err := g.Shut(); err != nil {
		slog.Warn("leave the gates", "err", err)
	}
}
