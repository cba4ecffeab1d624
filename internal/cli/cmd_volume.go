package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) volumeCommand() *cobra.Command {
	cmd := a.nounCommand("volume", "Look after disks that outlive sandboxes", "carboy volume ls")
	cmd.AddCommand(
		a.volumeCreateCommand(), volumeListing().command(a), a.volumeRmCommand(),
		a.volumeImportCommand(), a.volumeDiffCommand(), a.volumeApplyCommand(), a.volumeExportCommand(),
	)
	return setHelp(cmd, docs{
		long: `A volume is a disk of its own. --volume NAME:PATH of run and create shows it in a
sandbox, and in as many as want it at a time: what one writes, all see at once.
It stays when they are removed.

One that began as a copy of a directory can be compared with that, and what was changed
in it taken back: so several sandboxes work on one tree, and the directory stays as it is until then.`,
		examples: []string{"carboy volume create data", "carboy run --volume data:/data -- touch /data/here"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) volumeCreateCommand() *cobra.Command {
	var size, inodes int64
	cmd := &cobra.Command{
		Use:   "create [flags] NAME",
		Short: "Make an empty volume",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.volumeCreate(ctx, svc, api.VolumeRequest{Name: args[0], Size: size, Inodes: inodes})
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addVolumeSize(cmd.Flags(), &size, &inodes)
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long:     "It takes room on the host's disk only as it is filled.",
		examples: []string{"carboy volume create data", "carboy volume create --size 20g models"},
		exits:    exitDocsPlain[:],
	})
}

func addVolumeSize(fs *pflag.FlagSet, size, inodes *int64) {
	fs.Var(sizeValue{size}, "size", "`SIZE` how much it can hold, such as 512m or 20g (default the daemon's)")
	fs.Var(countValue{inodes}, "inodes", "`N` how many files (default one for each 16k)")
}

func (a *app) volumeCreate(ctx context.Context, svc *client.Client, req api.VolumeRequest) error {
	return a.volumeMade(svc.CreateVolume(ctx, req))
}

// volumeMade answers with a volume that was made.
func (a *app) volumeMade(v *api.Volume, err error) error {
	if err != nil {
		return err
	}
	for _, what := range v.Skipped {
		a.NoteReason("left_out", "left out: "+what)
	}
	if !v.Enforced {
		a.Note("volume " + v.Name + ": its size is not kept to: " + v.Reason)
	}
	return a.Answer(v, v.Name)
}

func volumeListing() *listing[api.Volume] {
	return &listing[api.Volume]{
		noun:  "volume",
		short: "List volumes",
		long: `SIZE is how much it can hold, USED what it takes on the host's disk, and SANDBOXES
are those, running or stopped, that have it. KEEPS says of which directory it began as a
copy, or keeps the caches of builds, by --cache, or what a program has in its home, by --home and the commands
of agents: all sandboxes of that directory share a home, one after the other. A directory
that is gone leaves both: carboy prune --homes removes them.`,
		get:     (*client.Client).Volumes,
		columns: []string{"NAME", "SIZE", "USED", "CREATED", "KEEPS", "SANDBOXES"},
		row: func(v *api.Volume, now time.Time) []string {
			size := term.FormatSize(v.Size)
			if !v.Enforced {
				size = "(not kept to)"
			}
			return []string{v.Name, size, roundSize(v.Used), console.Ago(v.CreatedAt, now), keepsText(v), strings.Join(v.Sandboxes, " ")}
		},
	}
}

// keepsText says what a volume keeps, and of which directory.
func keepsText(v *api.Volume) string {
	if v.From != "" {
		return "copy of " + v.From
	}
	if v.CacheOf == "" {
		return ""
	}
	text := "caches of "
	if v.HomeOf != "" {
		text = "home of " + v.HomeOf + " for "
	}
	text += v.CacheOf
	if isGone(v.CacheOf) {
		text += " (gone)"
	}
	return text
}

// isGone reports whether there is nothing at a path of this machine's, for sure.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// roundSize is a size in whole MiB, which term.FormatSize has a word for.
func roundSize(n int64) string {
	const mib = 1 << 20
	return term.FormatSize((n + mib - 1) / mib * mib)
}

func (a *app) volumeRmCommand() *cobra.Command {
	return removal{
		noun:     "volume",
		arg:      "NAME",
		example:  "data",
		short:    "Delete volumes and what they hold",
		long:     "One that a sandbox has, running or stopped, stays: remove the sandbox first.",
		remove:   (*client.Client).RemoveVolume,
		complete: a.completeVolume(),
	}.command(a)
}

// completeVolume completes the name of a volume.
func (a *app) completeVolume() completer {
	return completing(a, (*client.Client).Volumes, func(v *api.Volume) string { return v.Name })
}
