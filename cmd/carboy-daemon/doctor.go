package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// diagnose tries what this machine can enforce, with the walls themselves, and writes
// what it found to standard output.
func diagnose(ctx context.Context, o order.Order) error {
	if err := built(); err != nil {
		return err
	}
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if os.Geteuid() != 0 && cgroup.Undelegated("/") { // as a daemon would; where it can't, the lines say what is missing
		_ = enterScope(ctx, fmt.Sprintf("%sdoctor-%d", cgroup.ScopePrefix, os.Getpid()), "carboy doctor")
	}
	r, err := doctor.Run(ctx, doctor.Options{
		Version: o.Version, Exe: o.Exe, Dirs: dirs, DirsErr: err, Home: ownHome(), Default: sandbox.DefaultIsolation,
		Walls: []doctor.Wall{
			{Name: gvisor.Name, Open: func(ctx context.Context, state string) (doctor.Backend, error) {
				return opened(gvisor.Open(ctx, gvisor.Options{State: state, Cache: dirs.Cache}))
			}},
			{Name: process.Name, Open: func(ctx context.Context, state string) (doctor.Backend, error) {
				return opened(process.Open(ctx, process.Options{State: state, Cache: dirs.Cache}))
			}},
		},
		Gate: openTrialGates,
	})
	if err != nil {
		return err
	}
	return r.Encode(os.Stdout)
}

// openTrialGates starts gates over a directory of doctor's own, where no secret
// is.
func openTrialGates(state string) (doctor.Gate, error) {
	secrets, err := secret.Open(secret.Options{Dir: filepath.Join(state, "secrets"), KeyFile: filepath.Join(state, "secrets.key")})
	if err != nil {
		return nil, err
	}
	g, err := egress.New(egress.Options{State: state, Secrets: secrets})
	if err != nil {
		return nil, errors.Join(err, secrets.Close())
	}
	return trialGates{g, g.Shut, secrets}, nil
}

// trialGates give up their secrets when they are shut.
type trialGates struct {
	sandbox.Gate
	shut    func() error
	secrets *secret.Store
}

func (g trialGates) Shut() error { return errors.Join(g.shut(), g.secrets.Close()) }

// opened keeps a nil wall from becoming a Backend that is not nil.
func opened[B doctor.Backend](b B, err error) (doctor.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// ownHome is the home in which instances find toolchains: the system's idea of it,
// not the environment's.
func ownHome() string {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return ""
	}
	return u.HomeDir
}
