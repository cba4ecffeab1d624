package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/archive"
	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
)

func (a *app) volumeImportCommand() *cobra.Command {
	var size, inodes int64
	cmd := &cobra.Command{
		Use:   "import [flags] DIR NAME",
		Short: "Make a volume that begins as a copy of a directory",
		Args:  exactArgs("DIR", "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.volumeImport(ctx, svc, args[0], api.VolumeRequest{Name: args[1], Size: size, Inodes: inodes})
		}),
		ValidArgsFunction: completeDirs,
	}
	addVolumeSize(cmd.Flags(), &size, &inodes)
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `DIR stays as it is. What sandboxes change in the volume is shown by carboy volume diff,
and taken into DIR by carboy volume apply. Devices, sockets, other file systems below DIR, and what
you may not read, are not copied.`,
		examples: []string{"carboy volume import ./src src", "carboy volume import --size 20g . tree && carboy create --volume tree:/workspace"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) volumeImport(ctx context.Context, svc *client.Client, dir string, req api.VolumeRequest) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return usage.Path("the directory", dir, err)
	}
	req.From = abs
	progress := a.NewFileProgress("the directory is being copied")
	v, err := svc.ImportVolume(ctx, req, func(ev api.VolumeEvent) {
		if ev.Copied != nil {
			progress.Set(ev.Copied.Files, ev.Copied.Bytes)
		}
	})
	progress.Stop()
	return a.volumeMade(v, err)
}

func (a *app) volumeDiffCommand() *cobra.Command {
	var o changes.DiffOptions
	cmd := &cobra.Command{
		Use:   "diff [flags] NAME [PATH...]",
		Short: "Show what was changed in a volume since it was imported",
		Args:  nameThenPaths,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.volumeReviewer().Diff(ctx, o, args[0], changes.Paths(args[1:]))
		}),
		ValidArgsFunction: a.completeVolume(),
	}
	a.addDiffFlags(cmd.Flags(), &o)
	return setHelp(cmd, docs{
		long: `The changes of all sandboxes that have the volume are compared with the directory as it is
now, as carboy diff does for a sandbox's own: it has the rules of what is shown. A sandbox that
writes meanwhile may be shown half way: carboy workspace lock has it wait.`,
		examples: []string{"carboy volume diff src", "carboy volume diff --names src lib"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) volumeApplyCommand() *cobra.Command {
	var o changes.ApplyOptions
	cmd := &cobra.Command{
		Use:   "apply [flags] NAME [PATH...]",
		Short: "Take what was changed in a volume into the directory",
		Args:  nameThenPaths,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.volumeReviewer().Apply(ctx, o, args[0], changes.Paths(args[1:]))
		}),
		ValidArgsFunction: a.completeVolume(),
	}
	a.addApplyFlags(cmd.Flags(), &o)
	return setHelp(cmd, docs{
		long: `It goes as carboy apply goes for a sandbox's own changes, which has the rules of what is
held back and when nothing is taken. A sandbox that writes meanwhile may be taken half way:
carboy workspace lock has it wait.`,
		examples: []string{"carboy volume apply src", "carboy volume apply --dry-run src lib"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) volumeExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export NAME DIR",
		Short: "Write all that a volume holds to a directory",
		Args:  exactArgs("NAME", "DIR"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.volumeExport(ctx, svc, args[0], args[1])
		}),
		ValidArgsFunction: a.completeVolume(),
	}
	return setHelp(cmd, docs{
		long: `DIR is made; one that is there must be empty. - writes an archive to stdout. Sandboxes
wrote what it holds, and nothing is held back, git's hooks neither: don't work in DIR, take from it. Links that
lead out are left out, and so are owners and times; an archive has them.`,
		examples: []string{"carboy volume export src ./src-of-agents", "carboy volume export src - | tar -tv"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) volumeExport(ctx context.Context, svc *client.Client, name, dir string) error {
	stream, err := svc.ExportVolume(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // it was read to its end, or failed
	return (&archive.Copier{Console: a.Console, Connect: a.service}).Receive(ctx, stream, name, dir)
}
