package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// forwardConns is how many connections are forwarded at once.
	forwardConns = 1024
	// forwardLook is how often a sandbox is looked at whose ports are forwarded.
	forwardLook = time.Second
)

func (a *app) forwardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "forward [flags] NAME [HOSTPORT:]PORT...",
		Short:             "Open ports of a sandbox on this machine, until Ctrl-C",
		Args:              someArgs(2, "NAME", "PORT"),
		RunE:              a.asking(a.forward),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What listens on PORT inside is reached at 127.0.0.1:HOSTPORT, and at [::1] where
there is one, by programs of yours alone: connections of other users are reset. Bytes
are passed on unread. Without HOSTPORT, or with 0, it is PORT where that is free, and
else another: the line printed says which. The sandbox needs no network, and gets none.

Ctrl-C ends it, with exit code 0; so does the sandbox's end, with 125.
carboy run -p and carboy create -p open ports for as long as a sandbox runs.`,
		examples: []string{"carboy forward web 3000", "carboy forward web 8080:3000 5432"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) forward(ctx context.Context, svc *client.Client, args []string) error {
	want, err := launch.ParsePorts(args[1:])
	if err != nil {
		return usage.Errorf("forward: %v", err)
	}
	sb, err := svc.Get(ctx, args[0])
	if err != nil {
		return err
	}
	if err := mustForward(sb); err != nil {
		return err
	}
	listeners, err := listenAll(ctx, want)
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := a.printForwards(want); err != nil {
		return err
	}
	serve, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	slots := loopback.NewSlots(forwardConns)
	for i, p := range want {
		r := a.forwardRelay(svc, sb.ID, p.Port)
		r.Slots = []loopback.Slots{slots}
		all.Go(func() { r.Serve(serve, listeners[i]) })
	}
	if err := watchForward(ctx, svc, sb); err != nil {
		return err
	}
	a.NoteReason("interrupted", "interrupted: the ports are closed again")
	return nil
}

// forwardRelay passes connections to one port on. Why one was not is told once,
// until one is again.
func (a *app) forwardRelay(svc *client.Client, id string, port int) *loopback.Relay {
	var mu sync.Mutex
	told := ""
	tell := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if text != "" && text != told {
			a.NoteReason("forward", text)
		}
		told = text
	}
	return &loopback.Relay{
		Owner: uint32(os.Geteuid()), Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			c, err := svc.DialPort(ctx, id, port)
			if err == nil {
				tell("")
			}
			return c, err
		},
		Failed: func(err error) {
			if text := err.Error(); strings.Contains(text, "port ") {
				tell(text)
			} else {
				tell(fmt.Sprintf("port %d: %s", port, text))
			}
		},
	}
}

// listenAll opens every port, those that were named first: none that is merely
// free may take one. It fills in which each became.
func listenAll(ctx context.Context, want []api.Publish) ([]*loopback.Listener, error) {
	listeners := make([]*loopback.Listener, len(want))
	var opened []*loopback.Listener
	for _, named := range []bool{true, false} {
		for i, p := range want {
			if (p.HostPort != 0) != named {
				continue
			}
			open := loopback.ListenNear
			port := p.Port
			if named {
				open, port = loopback.Listen, p.HostPort
			}
			l, err := open(ctx, port)
			if err != nil {
				return opened, err
			}
			listeners[i], want[i].HostPort = l, l.Port()
			opened = append(opened, l)
		}
	}
	return listeners, nil
}

func (a *app) printForwards(all []api.Publish) error {
	if a.JSON {
		return a.WriteJSON(all)
	}
	for _, p := range all {
		if err := a.PrintLine(fmt.Sprintf("port %d is at 127.0.0.1:%d", p.Port, p.HostPort)); err != nil {
			return err
		}
	}
	return nil
}

// mustForward says why the ports of a sandbox can't be reached.
func mustForward(sb *api.Sandbox) error {
	switch sb.State {
	case string(sandbox.StateRunning), string(sandbox.StateCreated):
		return nil
	case string(sandbox.StateStopped):
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is %s, and no port of it is open", sb.Name, stateText(sb)).
			WithHint("carboy start %s", sb.Name)
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is %s, and no port of it is open", sb.Name, sb.State)
}

// watchForward returns nil when ctx ends by a signal, and an error once the
// sandbox does not run any more. A daemon that is away is waited for.
func watchForward(ctx context.Context, svc *client.Client, of *api.Sandbox) error {
	look := time.NewTicker(forwardLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), relay.ErrInterrupted) {
				return nil
			}
			return context.Cause(ctx)
		case <-look.C:
		}
		sb, err := svc.Get(ctx, of.ID)
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound:
			return sandbox.Errorf(sandbox.NotFound, "sandbox %s: it was removed, and its ports are closed", of.Name)
		case err != nil:
			continue
		}
		if err := mustForward(sb); err != nil {
			return err
		}
	}
}
