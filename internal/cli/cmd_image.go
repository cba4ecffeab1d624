package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/fetch"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := a.nounCommand("image", "Look after root file systems to run in", "carboy image ls")
	cmd.AddCommand(a.imagePullCommand(), a.imageImportCommand(), imageListing().command(a), a.imageRmCommand(), a.imageGCCommand())
	return setHelp(cmd, docs{
		long: `An image is what --image of run and create names. The daemon keeps each layer
once, unpacked; names are yours alone.`,
		examples: []string{"carboy image pull debian:12", "carboy run --image debian:12 -- cat /etc/os-release"},
		exits:    exitDocsPlain[:],
	})
}

// addImageWork adds the flags of commands that take their time.
func (a *app) addImageWork(fs *pflag.FlagSet, quiet *bool) {
	fs.BoolVarP(quiet, "quiet", "q", false, "tell no progress")
	fs.BoolVar(&a.JSON, "json", false, "write JSON: a line for each piece of news, and the image on the last")
}

func (a *app) imagePullCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "pull [flags] REF",
		Short: "Fetch an image from a registry",
		Args:  exactArgs("REF"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.fetchImage(ctx, quiet, func(f *fetch.Fetcher) (*api.Image, error) {
				return f.Pull(ctx, args[0])
			})
		}),
		ValidArgsFunction: a.completeImage(1),
	}
	a.addImageWork(cmd.Flags(), &quiet)
	return setHelp(cmd, docs{
		long: `REF is REPOSITORY[:TAG] or REPOSITORY@sha256:DIGEST; a digest is checked. What
the registry wants to be shown comes from your own Docker configuration and its
credential helpers, which carboy runs as you; the daemon keeps none of it.
A pull that was cut short goes on where it was.`,
		examples: []string{"carboy image pull debian:12", "carboy image pull --json registry.example/team/tool:1"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) imageImportCommand() *cobra.Command {
	var quiet bool
	var name string
	cmd := &cobra.Command{
		Use:   "import [flags] PATH",
		Short: "Make an image of an archive or a directory",
		Args:  exactArgs("PATH"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			if err := fetch.CheckPath(a.Console, args[0]); err != nil {
				return err
			}
			return a.fetchImage(ctx, quiet, func(f *fetch.Fetcher) (*api.Image, error) {
				return f.Import(ctx, args[0], name)
			})
		}),
		ValidArgsFunction: completeCommand,
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` call it that; else, as the archive does")
	a.addImageWork(cmd.Flags(), &quiet)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `PATH is what docker save wrote, an OCI archive or layout directory, a tar archive
of a root file system, or a directory that is one; - is an archive on stdin. It
is read with your rights. Devices and sockets of a directory are left out, and so
is what is mounted below it. Owners are kept if you are root; otherwise what is
yours becomes root's.`,
		examples: []string{
			"docker save tool:1 | carboy image import -",
			"carboy image import --name rescue ./rootfs",
		},
		exits: exitDocsPlain[:],
	})
}

// fetchImage is what pull and import have in common.
func (a *app) fetchImage(ctx context.Context, quiet bool, f func(*fetch.Fetcher) (*api.Image, error)) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	w := &fetch.Fetcher{Console: a.Console, Client: svc, Login: a.env.Login, Quiet: quiet, News: a.Stdout}
	img, err := f(w)
	if err != nil {
		return err
	}
	for _, n := range img.Notes {
		a.NoteReason("left_out", n)
	}
	if a.JSON {
		return console.WriteJSONLine(a.Stdout, api.ImageEvent{Image: img})
	}
	return a.PrintLine(launch.ImageName(img))
}

func imageListing() *listing[api.Image] {
	return &listing[api.Image]{
		noun:    "image",
		short:   "List images",
		long:    "All of yours are listed. Layers that images share are counted in the size of each.",
		get:     (*client.Client).Images,
		columns: []string{"NAME", "DIGEST", "SIZE", "CREATED"},
		row: func(img *api.Image, now time.Time) []string {
			name, _, _ := strings.Cut(img.Name, "@")
			return []string{name, shortDigest(img.Digest), term.FormatSize(img.Size), console.Ago(img.CreatedAt, now)}
		},
	}
}

// shortDigest is the start of a digest, by which an image is found as well.
func shortDigest(digest string) string {
	const digits = 12
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(digits, len(hex))]
}

func (a *app) imageRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm [flags] REF...",
		Short:             "Take the name of an image away",
		Args:              someArgs(1, "REF"),
		RunE:              a.asking(a.imageRm),
		ValidArgsFunction: a.completeImage(-1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Sandboxes that were made of it are not affected. The files of what nobody needs
any more go with carboy image gc.`,
		examples: []string{"carboy image rm debian:12"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) imageRm(ctx context.Context, svc *client.Client, refs []string) error {
	return each(a, refs, func(ref string) (*api.Image, error) {
		img, err := svc.Image(ctx, ref)
		if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.NotFound {
			return nil, e.WithHint("carboy image ls") // to pull it would not help
		}
		if err != nil {
			return nil, err
		}
		return img, svc.RemoveImage(ctx, ref)
	}, nil)
}

func (a *app) imageGCCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "gc [flags]",
		Short:             "Delete what no image and no sandbox needs",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.imageGC(ctx, svc) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What any name leads to stays, of whomever, and so does what is being pulled and
what a sandbox uses, a stopped one too. Only the daemon's own user and root may.`,
		examples: []string{"carboy image gc"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) imageGC(ctx context.Context, svc *client.Client) error {
	gone, err := svc.CollectImages(ctx)
	if err != nil {
		return err
	}
	return a.Answer(gone, "deleted "+console.Count(len(gone.Removed), "image")+", "+term.FormatSize(gone.Bytes))
}

// completeImage completes an image's name.
func (a *app) completeImage(n int) completer {
	return upTo(n, cobra.ShellCompDirectiveNoFileComp, a.imageNames)
}

// completeImageFlag completes --image: an image's name, or a file.
func (a *app) completeImageFlag(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	if strings.ContainsAny(word, "/.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return append([]string{sandbox.DefaultImage}, a.imageNames(cmd.Context())...), cobra.ShellCompDirectiveDefault
}

// imageNames returns the names of the caller's images.
func (a *app) imageNames(ctx context.Context) (names []string) {
	for _, one := range listed(ctx, a, (*client.Client).Images) {
		if one.Name != "" {
			names = append(names, one.Name)
		}
	}
	return names
}
