package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

// uninstallHome ends all sandboxes of this home, whose daemon has left, and removes the
// home unless o keeps it.
func uninstallHome(ctx context.Context, all order.Order) error {
	o := all.Uninstall
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dirs.State); errors.Is(err, fs.ErrNotExist) {
		return uninstall.Home{Dirs: dirs}.Delete(ctx, o.Config)
	}
	lock, err := daemon.Lock(ctx, dirs)
	if errors.Is(err, fs.ErrNotExist) { // another has removed it meanwhile
		return uninstall.Home{Dirs: dirs}.Delete(ctx, o.Config)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	h := uninstall.Home{Dirs: dirs}
	if _, err := os.Lstat(filepath.Join(dirs.State, "boxes")); err == nil {
		if err := end(ctx, &h, !o.StopOnly); err != nil {
			return err
		}
	} else if roles, err := role.NewRunner(dirs.State); err == nil {
		h.Roles = roles
	}
	if o.StopOnly {
		return nil
	}
	return h.Delete(ctx, o.Config)
}

// end ends what runs behind the walls of a home, and its gates, and with remove
// deletes what they kept. It gives the home its roles.
func end(ctx context.Context, h *uninstall.Home, remove bool) (err error) {
	log := slog.New(slog.DiscardHandler)
	dirs := h.Dirs
	dirs.Cache = "" // nothing is started
	w, err := openWalls(ctx, dirs, 0, log)
	if err != nil {
		return err
	}
	defer w.close() // which waits for what is being deleted
	h.Roles = w.roles
	for _, b := range w.all {
		h.Walls = append(h.Walls, b)
	}
	// What it has of secrets is deleted with their directory, also where nobody can
	// read them any more.
	gates, err := egress.New(egress.Options{
		State: dirs.State, Secrets: secret.Closed{Dir: filepath.Join(dirs.State, "secrets")}, Log: log,
	})
	if err != nil {
		return err
	}
	h.Gate = gates
	return errors.Join(h.End(ctx, remove), gates.Shut())
}
