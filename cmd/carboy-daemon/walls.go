package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/snapshot"
)

// perInstance is what one more idle instance takes behind each wall, in bytes, as
// docs/performance.md measured it, with some to spare.
var perInstance = map[string]int64{gvisor.Name: 64 << 20, process.Name: 24 << 20}

// walls are what sandboxes are made of here.
type walls struct {
	log    *slog.Logger
	images *image.Store
	saved  *snapshot.Store
	all    []sandbox.Backend
	disks  *instance.Disks
	roles  *role.Runner
	closes []func() error
}

// openWalls opens the images and every wall there is, whose sandboxes have so long to
// start; 0: the default.
func openWalls(ctx context.Context, dirs home.Dirs, start time.Duration, log *slog.Logger) (_ *walls, err error) {
	w := &walls{log: log}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.roles, err = role.NewRunner(dirs.State); err != nil {
		return nil, fmt.Errorf("open the walls: %w", err)
	}
	if w.disks, err = instance.OpenDisks(dirs.State, log); err != nil {
		return nil, fmt.Errorf("open the disks: %w", err)
	}
	w.closes = append(w.closes, w.disks.Close)
	layers := image.Options{Log: log, Room: w.room}
	layers.Use(w.roles)
	w.images, err = image.Open(filepath.Join(dirs.State, "images"), layers)
	if err != nil {
		return nil, fmt.Errorf("open the image store: %w", err)
	}
	w.closes = append(w.closes, w.images.Close)
	w.saved, err = snapshot.New(filepath.Join(dirs.State, "snapshots"), snapshot.Options{Log: log, Remove: w.delete})
	if err != nil {
		return nil, fmt.Errorf("open the snapshots: %w", err)
	}
	w.closes = append(w.closes, w.saved.Close)
	opts := instance.Options{State: dirs.State, Cache: dirs.Cache, Log: log, Images: w.images, Snapshots: w.saved, Disks: w.disks, Start: start}
	logged := opts
	logged.DebugDir = os.Getenv("CARBOY_GVISOR_LOGS")
	strong, err := gvisor.Open(ctx, logged)
	if err != nil {
		return nil, fmt.Errorf("open the gvisor wall: %w", err)
	}
	w.add(strong, strong.Close)
	light, err := process.Open(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("open the process wall: %w", err)
	}
	w.add(light, light.Close)
	return w, nil
}

// delete deletes a directory whose files any of the instances' ids may own.
func (w *walls) delete(dir string) error { return w.roles.Delete(context.Background(), dir) }

// room refuses to begin something that needs room on the disk of the state where it has none.
func (w *walls) room(owner, what string) error {
	return sandbox.RoomFor(w.disks, owner, what, sandbox.BeginRoom)
}

func (w *walls) add(b sandbox.Backend, closeIt func() error) {
	w.all = append(w.all, b)
	w.closes = append(w.closes, closeIt)
}

func (w *walls) close() {
	var errs []error
	for i := range w.closes {
		errs = append(errs, w.closes[len(w.closes)-1-i]())
	}
	if err := errors.Join(errs...); err != nil {
		w.log.Warn("close the walls", "err", err)
	}
}
