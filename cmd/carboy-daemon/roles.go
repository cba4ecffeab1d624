package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/image/login"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
)

// become ends in the role that argv[0] names, if it names one.
func become() {
	role.Become(
		role.Table{
			order.RoleServe:     ordered(serve),
			order.RoleDoctor:    ordered(diagnose),
			order.RoleUninstall: ordered(uninstallHome),
			order.RoleLogin:     ordered(findLogin),
		},
		instance.Roles(), process.Roles(egress.MakeLink),
		content.Roles(), origin.Roles(), image.Roles(), jail.Roles(), doctor.Roles(),
	)
}

// ordered is a role that the command line executes, with an order, and that a signal ends.
func ordered(run func(context.Context, order.Order) error) func() error {
	return func() error {
		o, err := order.Take()
		if err != nil {
			return err
		}
		// What a careless parent left open is no instance's business.
		if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("keep descriptors to oneself: %w", err)
		}
		if err := findPrograms(o); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		context.AfterFunc(ctx, stop) // a second signal ends the process
		defer stop()
		return run(ctx, o)
	}
}

// findLogin answers what the user's Docker configuration has for a registry.
func findLogin(ctx context.Context, o order.Order) error {
	got, err := login.Find(ctx, o.Login)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// findPrograms has roles of other programs executed by the descriptors that were handed
// down.
func findPrograms(o order.Order) error {
	roles := map[string][]string{
		order.Gate:   {egress.RoleGate},
		order.GVisor: {gvisor.RoleLauncher, gvisor.RoleSuspend},
	}
	for _, name := range order.Handed() {
		f, err := o.Inherit(name)
		if err != nil {
			return err
		}
		check := func(f *os.File) error {
			err := o.Programs[name].Check(f)
			if errors.Is(err, order.ErrUnfit) {
				err = sandbox.Errorf(sandbox.Unavailable, "%s is not the program that this carboy unpacked", f.Name()).
					WithHint("carboy daemon stop: the next command unpacks it anew")
			}
			return err
		}
		if err := errors.Join(role.In(f, check, roles[name]...), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fail says on standard error what a daemon in the foreground ended by, as the command
// line does, and is its exit code.
func fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return role.Code(exitInterrupted)
	}
	fmt.Fprintf(os.Stderr, "carboy: %v\n", err)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", e.Hint)
	}
	return role.Code(exitFailed)
}

// Exit codes, as the command line has them.
const (
	exitFailed      = 125
	exitInterrupted = 130
)
