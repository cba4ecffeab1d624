package cli

import (
	"context"
	"path"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/fetch"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) createCommand() *cobra.Command {
	var spec launch.Spec
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "create [flags]",
		Short: "Make a sandbox that stays, and print its name",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !cmd.Flags().Changed("name") {
				return usage.Errorf("create: unexpected argument %s", shell.Word(args[0])).WithHint("for a sandbox of that name: carboy create --name %s", shell.Word(args[0]))
			}
			return exactArgs()(cmd, args)
		},
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			if err := a.fromProject(ctx, cmd.Flags(), &spec); err != nil {
				return err
			}
			return a.create(ctx, &spec)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addSpec(cmd.Flags(), &spec)
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `It runs until carboy stop or carboy rm, or until its --ttl is over. A limit that
was asked for and can't be enforced is an error; carboy inspect shows by what
means each one holds.`,
		examples: []string{
			"carboy create --name web --memory 1g --cpus 2",
			"carboy create --workspace . --ttl 2h",
			"carboy create --name web -p 3000",
			"carboy create --image debian:12 --isolation process,gvisor",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) create(ctx context.Context, spec *launch.Spec) error {
	repo := a.elsewhere(ctx, spec)
	req, err := spec.Request(a.LookupEnv, a.Note)
	if err != nil {
		return err
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	sb, err := a.makeWith(ctx, svc, req, repo)
	if err != nil {
		return err
	}
	a.giveRepository(ctx, svc, sb, repo)
	return a.Answer(sb, sb.Name)
}

// makeSandbox makes a sandbox as the user of this command line.
func (a *app) makeSandbox(ctx context.Context, svc *client.Client, req *launch.Request) (*api.Sandbox, error) {
	news, stop := a.createNews()
	defer stop()
	l := a.launcher(svc)
	l.News = news
	return l.Create(ctx, req)
}

// createNews shows what is told of a sandbox that is made or set up, until stop is called.
func (a *app) createNews() (news func(api.CreateEvent), stop func()) {
	progress := a.NewFileProgress("the workspace is being copied")
	var status *console.Progress
	return func(ev api.CreateEvent) {
			switch {
			case ev.Copied != nil:
				progress.Set(ev.Copied.Files, ev.Copied.Bytes)
			case ev.Step == nil:
			case ev.Step.Mended != "":
				a.mended(ev.Step.Mended)
			case !ev.Step.Done:
				if status == nil {
					progress.Stop()
					status = a.NewStatus()
				}
				status.Say("setting up: " + ev.Step.Do + " " + ev.Step.What)
			case ev.Step.Note != "" && ev.Step.Do != bottle.DoCA:
				a.NoteReason("setup", ev.Step.Do+" "+ev.Step.What+": "+ev.Step.Note)
			}
		}, func() {
			if status == nil {
				progress.Stop()
			} else {
				status.Stop()
			}
		}
}

// mended tells of what was moved aside in a home.
func (a *app) mended(file string) {
	a.NoteReason("mended", console.Escape(file)+" was no file any more: what was there is beside it, as "+console.Escape(path.Base(file))+".was-…, and the agent has a new one")
}

func (a *app) launcher(svc *client.Client) *launch.Launcher {
	return &launch.Launcher{
		Service: svc, Images: &fetch.Fetcher{Console: a.Console, Client: svc, Login: a.env.Login, News: a.Stderr}, LookupEnv: a.LookupEnv, Note: a.NoteReason,
	}
}
