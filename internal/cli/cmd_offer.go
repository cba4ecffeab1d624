package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) offerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offer [flags] NAME SERVICE TARGET",
		Short: "Have a sandbox call a program of this machine, until Ctrl-C",
		Args:  exactArgs("NAME", "SERVICE", "TARGET"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.offer(ctx, svc, args[0], args[1], args[2])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What the sandbox sends to http://gate.carboy.internal/SERVICE/ goes to TARGET, which is
http://HOST:PORT, with a path or without, https:// or unix:PATH; where nothing listens
there, that is said, and calls are answered with 503 until something does. The program
is told who calls in the header Carboy-Sandbox, which nobody inside can set.

The sandbox has to be made with --allow service:SERVICE, or set so, and needs no other
network. One that has none is linked to its gate at its next start.

It goes on where the daemon or the gate is started again, and waits where the sandbox
is stopped and started. Meanwhile a call is answered with 503. One program at a time
serves under a name. Ctrl-C ends it, with exit code 0.`,
		examples: []string{
			"carboy create --name web --allow service:docs", "carboy offer web docs http://127.0.0.1:8000",
			"carboy set old --allow service:docs && carboy stop old && carboy start old",
		},
		exits: exitDocsPlain[:],
	})
}

// offered is what offer writes.
type offered struct {
	Sandbox string `json:"sandbox"`
	Service string `json:"service"`
	URL     string `json:"url"` // inside
	Target  string `json:"target"`
}

func (a *app) offer(ctx context.Context, svc *client.Client, name, service, to string) error {
	if !policy.ValidService(service) {
		return usage.Errorf("offer: %s is no name of a service", shell.Word(service)).
			WithHint("a to z, 0 to 9 and single -, a letter first, at most 32")
	}
	target, err := offer.ParseTarget(to)
	if err != nil {
		return usage.Errorf("offer: %v", err).WithHint("http://127.0.0.1:8000 or unix:/run/program.sock")
	}
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return err
	}
	what := offered{sb.Name, service, fmt.Sprintf("http://%s/%s/", policy.GateHost, service), to}
	absent := offer.Listens(ctx, target) // it may come yet: what is offered may be started after
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stands := func() error {
		err := a.Answer(what, fmt.Sprintf("%s of %s is %s", what.URL, sb.Name, to))
		if absent != nil {
			a.NoteReason("target", fmt.Sprintf("nothing listens at %s yet: %v; calls are answered with 503 until something does", shell.Word(to), absent))
		}
		return err
	}
	err = svc.Offer(ctx, sb.ID, service, offer.To(target), a.tellOffer(stands, cancel))
	if _, gone := svc.Get(ctx, sb.ID); err != nil && client.KindOf(gone) == client.NotFound {
		return sandbox.Errorf(sandbox.NotFound, "sandbox %s: it was removed, and %s is no longer offered", shell.Word(sb.Name), service)
	}
	if err != nil {
		return usage.Named(err, sb.ID, sb.Name)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, relay.ErrInterrupted) {
		return cause
	}
	a.NoteReason("interrupted", "interrupted: "+service+" is no longer offered")
	return nil
}

// tellOffer returns what tells how an offer fares: stands once it does for the first time, which
// ends it where that fails, and each reason why it does not, once.
func (a *app) tellOffer(stands func() error, cancel context.CancelCauseFunc) func(error) {
	var first sync.Once
	told := ""
	return func(err error) {
		if err == nil {
			first.Do(func() {
				if err := stands(); err != nil {
					cancel(err)
				}
			})
			if told != "" {
				a.NoteReason("offer", "offered again")
			}
			told = ""
			return
		}
		if text := err.Error(); text != told {
			told = text
			a.NoteReason("offer", text+"; trying again")
		}
	}
}
