// Command carboy-guest is the first process of a sandbox: the agent. By the
// name of carboy-box it enters a box on the host's kernel first.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
)

// The agent's threads differ in namespaces and rights. /proc/self shows the
// first one, so that stays as it is.
func init() { runtime.LockOSThread() }

func main() {
	if os.Args[0] == enter.Name {
		if err := enterBox(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "carboy-guest:", err)
		os.Exit(1)
	}
}

// enterBox takes its orders and lets go of the host: standard error still
// leads there where it fails.
func enterBox() error {
	o, err := enter.ReadOrder(os.Stdin)
	if err != nil {
		return err
	}
	return enter.Enter(o)
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	path := guest.DefaultConfig
	if p := os.Getenv("CARBOY_GUEST_CONFIG"); p != "" {
		path = p
	}
	cfg, err := guest.LoadConfig(path)
	if err != nil {
		return err
	}
	return guest.Run(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
