package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/weak"
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
		Login:     login,
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
		starter := reach.Starter{
			Dirs: dirs, Program: func(ctx context.Context) (*reach.Program, error) { return daemonProgram(ctx, dirs) },
			Environ: os.Environ(), Version: version, Notice: notice,
		}
		if err := built(); err != nil {
			return nil, err
		}
		if err := starter.Ensure(ctx); err != nil {
			return nil, err
		}
		opts.Redial = starter.Ensure
	}
	return client.New(opts)
}
