package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/volume"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// serve runs the daemon until ctx ends. Why it could not is told to the program that
// started it, and on standard error.
func serve(ctx context.Context, o order.Order) error { return fail(ctx, runDaemon(ctx, o)) }

func runDaemon(ctx context.Context, all order.Order) (err error) {
	o := all.Serve
	if o.Background { // in the foreground, the command line has said so
		weak.Announce()
	}
	report := daemon.Reporter(os.Getenv)
	defer func() {
		if err != nil {
			report.Failed(err)
		}
	}()
	if err := built(); err != nil {
		return err
	}
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	cfg, err := daemon.ReadConfig(dirs)
	if err != nil {
		return err
	}
	cfg.Auto = o.Background
	if o.Listen != "" {
		cfg.Listen, cfg.APIKeyFile = o.Listen, o.APIKeyFile
	}
	if o.LangBot != nil {
		if err := asLangBot(&cfg, o.LangBot); err != nil {
			return err
		}
	}
	if err := dirs.Create(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if o.Background {
		for _, line := range untold(dirs, settle(ctx, dirs, log)) {
			report.Note(line)
		}
	}
	walls, err := openWalls(ctx, dirs, time.Duration(cfg.StartTime), log)
	if err != nil {
		return err
	}
	defer walls.close()
	debug.SetGCPercent(50) // a daemon is mostly idle, and there may be many
	return daemon.Run(ctx, cfg, daemon.Deps{
		Backends: walls.all, Disk: walls.disks, Images: walls.images, Snapshots: walls.saved, PerInstance: perInstance,
		Network: func(a daemon.Asking) (daemon.Network, error) { return openNetwork(cfg, dirs, a, log) },
		Volumes: func() (*volume.Service, error) { return walls.openVolumes(cfg, dirs, log) },
		Version: all.Version, Log: log, Memory: memory(),
		HasChanges: hasChanges, Ready: report.Ready,
	})
}

// memory is the machine's, in bytes; 0 where the kernel does not say.
func memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// hasChanges reports whether a stream of changes holds any.
func hasChanges(r io.Reader) (bool, error) {
	for _, err := range workspace.Read(r) {
		if err != nil {
			return false, errors.Join(errors.New("read changes"), err)
		}
		return true, nil
	}
	return false, nil
}
