package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/egress/inside"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/gitgate/live"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// secrets are a store, or one that can't be opened.
type secrets interface {
	egress.Secrets
	server.Secrets
	live.Secrets
}

// openNetwork opens the secrets of this home, and what starts gates over them.
func openNetwork(cfg daemon.Config, dirs home.Dirs, asking daemon.Asking, log *slog.Logger) (daemon.Network, error) {
	resolvers, err := cfg.ResolverAddrs()
	if err != nil {
		return daemon.Network{}, err
	}
	var gates *egress.Gates
	var store secrets
	dir := filepath.Join(dirs.State, "secrets")
	opened, err := secret.Open(secret.Options{
		Dir: dir, KeyFile: filepath.Join(dirs.Config, "secrets.key"), MakeDir: home.Make,
		Changed: func(c secret.Change) { gates.Changed(context.Background(), c) },
		InUse:   func(owner, name string) []string { return gates.Users(owner, name) },
		Most:    cfg.MostSecrets(),
	})
	closeStore := func() error { return nil }
	if err == nil {
		store, closeStore = opened, opened.Close
	} else { // sandboxes without secrets are none the worse for it
		log.Error("open the secrets", "err", err)
		store = secret.Closed{Dir: dir, Why: err}
	}
	gates, err = egress.New(egress.Options{
		State: dirs.State, Secrets: store, Resolvers: resolvers, Log: log,
		Session: asking.Desk.Session(), Attend: func(sb *sandbox.Sandbox) egress.Line { return asking.Desk.Line(sb) },
	})
	if err != nil {
		return daemon.Network{}, errors.Join(err, closeStore())
	}
	own := inside.Over(gates, log)
	withGit := live.Over(own, live.Options{
		Dir: filepath.Join(dirs.State, "git"), Secrets: store, Desk: asking.Desk, Note: asking.Note, Resolvers: resolvers, Log: log,
		Git: func(ctx context.Context) (string, error) { return jail.Find(ctx, os.Getenv("PATH")) },
	})
	return daemon.Network{
		Gate: withGit, Secrets: store, Answer: gates.Answer, Serve: own.Serve,
		Close: func() error {
			own.Shut()
			return errors.Join(withGit.Shut(), gates.Shut(), closeStore())
		},
	}, nil
}
