// Command carboy-guest is the first process of a sandbox: the agent. By the
// name of carboy-box it enters an instance on the host's kernel first.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// The agent's threads differ in namespaces and rights. /proc/self shows the
// first one, so that stays as it is.
func init() { runtime.LockOSThread() }

func main() {
	if os.Args[0] == enter.Name {
		if err := enterInstance(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "carboy-guest:", err)
		os.Exit(1)
	}
}

// enterInstance takes its orders and lets go of the host: standard error still
// leads there where it fails.
func enterInstance() error {
	if err := enter.Begin(os.Stderr); err != nil {
		return err
	}
	o, err := enter.ReadOrder(os.Stdin)
	if err != nil {
		return err
	}
	return enter.Enter(o)
}

// run reads what the host passed on, and is the agent.
func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// It was executed by that, and has no more use for it.
	if err := syscall.Close(control.ProgramFD); err != nil {
		return fmt.Errorf("close the program: %w", err)
	}
	if err := jail.KeepProgram(); err != nil {
		return err
	}
	f := os.NewFile(control.ConfigFD, "configuration")
	cfg, err := control.ParseConfig(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	socket, err := control.Open(control.SocketFD, control.Key(cfg.Key))
	if err != nil {
		return err
	}
	return guest.Run(ctx, cfg, socket, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
