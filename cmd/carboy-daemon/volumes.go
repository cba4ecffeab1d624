package main

import (
	"log/slog"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// openVolumes opens the volumes of this home. What works on their content is
// started as an instance's own roles are.
func (w *walls) openVolumes(cfg daemon.Config, dirs home.Dirs, log *slog.Logger) (*volume.Service, error) {
	return volume.Open(volume.Options{
		State: dirs.State, Cache: dirs.Cache, Launch: w.roles.Start, Roles: w.roles, Delete: w.delete, Room: w.room,
		Size: int64(cfg.VolumeSize), MaxSize: int64(cfg.VolumeMaxSize), PerOwner: cfg.VolumesPerOwner, Log: log,
	})
}
