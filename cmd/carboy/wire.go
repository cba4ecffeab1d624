package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/volume"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// version is set by the build.
var version = "devel"

func init() { version += weak.Suffix }

// environment joins the command line to the daemon and the wall.
func environment() cli.Env {
	state, config, agents := "", "", ""
	if dirs, err := home.Find(os.Getenv, os.Getuid()); err == nil {
		config, agents = dirs.Config, filepath.Join(dirs.Config, "agents")
		state = dirs.State // where not, the first call to the daemon says why
	}
	return cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv,
		StateDir:  state,
		ConfigDir: config,
		AgentsDir: agents,
		Version:   version,
		Connect:   connect,
		Gone:      gone,
		Serve:     serve,
		Doctor:    diagnose,
		Why:       why,
		Survey:    surveyHome,
		Uninstall: uninstallHome,
	}
}

// gone waits for the end of this home's daemon.
func gone(ctx context.Context) error {
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	return reach.Gone(ctx, dirs)
}

// why looks in the log of this home's daemon.
func why(message string, since time.Time) (path, cause string) {
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return "", ""
	}
	return reach.Why(dirs, message, since)
}

// connect returns a client of this home's daemon, and with start starts one
// where none runs, now and whenever the client has lost it.
func connect(ctx context.Context, start bool, notice func(string)) (*client.Client, error) {
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return nil, err
	}
	opts := client.Options{Socket: reach.Socket(dirs)}
	if start {
		if err := built(); err != nil {
			return nil, err
		}
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		starter := reach.Starter{
			Dirs: dirs, Exe: exe, Args: []string{"daemon", "run"}, Environ: os.Environ(),
			Version: version, Notice: notice,
		}
		if err := starter.Ensure(ctx); err != nil {
			return nil, err
		}
		opts.Redial = starter.Ensure
	}
	return client.New(opts)
}

// serve runs the daemon until ctx ends.
func serve(ctx context.Context, o cli.ServeOptions) (err error) {
	// What a careless parent left open is no instance's business.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors to oneself: %w", err)
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
		Network: func(d *desk.Desk) (daemon.Network, error) { return openNetwork(cfg, dirs, d, log) },
		Volumes: func() (*volume.Service, error) { return walls.openVolumes(cfg, dirs, log) },
		Version: version, Log: log, Memory: memory(),
		HasChanges: hasChanges, Ready: report.Ready,
	})
}

// memory is the machine's, in bytes; 0 where it is not to be had.
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
