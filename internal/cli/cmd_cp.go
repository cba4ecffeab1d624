package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/archive"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/shell"
)

func (a *app) cpCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp [flags] SRC NAME:DST | NAME:SRC DST",
		Short: "Copy files into or out of a sandbox",
		Args:  exactArgs("SRC", "DST"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.cp(ctx, args[0], args[1], user)
		}),
		ValidArgsFunction: a.completeCopy,
	}
	cmd.Flags().StringVar(&user, "user", "", "`USER` use that user's rights inside (default the sandbox's)")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `A file goes to DST, or into it where it is a directory. A directory becomes DST
where there is none, and goes into it where there is one; with SRC/. just what is
in it does. With - in the place of SRC or DST a tar archive is read from stdin and
unpacked in DST, or written to stdout.

What comes out of a sandbox is made by you, now, with the modes that it has there
but for set-id bits. Devices, and links that lead out of the copy, are left out.
On this machine no link is followed on the way to SRC or DST, for a sandbox may
have made it, except those of the system's own, such as /tmp. A relative path
inside starts where commands do. Write a local name that looks like NAME:PATH as
./NAME:PATH.`,
		examples: []string{
			"carboy cp ./src web:/workspace/src",
			"carboy cp web:/workspace/out ./out",
			"git archive HEAD | carboy cp - web:/workspace",
		},
		exits: exitDocsPlain[:],
	})
}

// place is one end of a copy.
type place struct {
	name string // the sandbox; "" for this machine
	path string
	tree bool // it ends in "/.": what is in the directory, not the directory
	dir  bool // it ends in "/": it must be a directory
}

// parsePlace tells a path inside a sandbox from one on this machine by what
// stands before its first colon.
func parsePlace(s string) place {
	var p place
	p.path = s
	if name, rest, ok := strings.Cut(s, ":"); ok && (sandbox.ValidName(name) || sandbox.ValidID(name)) {
		p.name, p.path = name, rest
		if rest == "" {
			p.path = "."
		}
	}
	p.tree = p.path == "." || strings.HasSuffix(p.path, "/.")
	p.dir = p.tree || strings.HasSuffix(p.path, "/")
	return p
}

func (a *app) cp(ctx context.Context, from, to, user string) error {
	src, dst := parsePlace(from), parsePlace(to)
	switch {
	case src.path == "" || dst.path == "":
		return usage.Errorf("cp: a path is empty")
	case (src.name == "") == (dst.name == ""):
		return usage.Errorf("cp: one of SRC and DST must be in a sandbox, as NAME:PATH").
			WithHint("carboy cp ./src NAME:/workspace/src")
	case src.name == "" && src.path == "-" && console.IsTerminal(a.Stdin):
		return usage.Errorf("cp: - reads an archive from stdin, which is a terminal")
	case dst.name == "" && dst.path == "-" && console.IsTerminal(a.Stdout):
		return usage.Errorf("cp: - writes an archive to stdout, which is a terminal")
	}
	c := &copier{a: a, user: user, progress: a.NewProgress()}
	defer c.progress.Stop()
	if dst.name != "" {
		if src.path == "-" {
			return c.connect(ctx, func() error { return c.inside(ctx, dst, c.upload(ctx, dst, c.progress.Reader(a.Stdin))) })
		}
		local, err := archive.OpenLocal(src.path)
		if err != nil {
			return err
		}
		defer local.Close()
		return c.connect(ctx, func() error { return c.copyIn(ctx, src, local, dst) })
	}
	return c.connect(ctx, func() error { return c.copyOut(ctx, src, dst) })
}

// copier is one run of cp.
type copier struct {
	a        *app
	svc      *client.Client
	user     string
	progress *console.Progress
}

func (c *copier) connect(ctx context.Context, f func() error) (err error) {
	if c.svc, err = c.a.service(ctx); err != nil {
		return err
	}
	return f()
}

// upload unpacks an archive in the directory dst.
func (c *copier) upload(ctx context.Context, dst place, r io.Reader) error {
	return c.svc.Upload(ctx, dst.name, client.UploadOptions{
		Path: dst.path, User: c.user,
		Skipped: func(s client.Skip) { c.skipped(s.Name, s.Reason) },
	}, r)
}

// copyIn copies a file or directory of this machine into a sandbox.
func (c *copier) copyIn(ctx context.Context, src place, local *archive.Local, dst place) error {
	base := filepath.Base(filepath.Clean(src.path))
	if base == "." || base == ".." || base == "/" {
		abs, err := filepath.Abs(src.path)
		if err != nil {
			return err
		}
		base = filepath.Base(abs)
	}
	there, err := c.stat(ctx, dst)
	if err != nil {
		return err
	}
	in, name, err := landing(src, base, local.Kind == archive.Directory, dst, there)
	if err != nil {
		return err
	}
	whole := dst
	dst.path = in
	return archive.Send(
		func(w io.Writer) error { return archive.Pack(ctx, w, local, name, c.skipped) },
		func(r io.Reader) error { return c.inside(ctx, whole, c.upload(ctx, dst, c.progress.Reader(r))) },
	)
}

func (c *copier) skipped(name, why string) {
	c.progress.Clear()
	c.a.NoteReason("left_out", "left out: "+name+": "+why)
}

// landing says where a copy goes: the directory that it is unpacked in, and
// the name that it gets there, "." for the directory itself.
func landing(src place, base string, srcDir bool, dst place, there archive.Kind) (dir, name string, err error) {
	clean := path.Clean(dst.path)
	switch {
	case srcDir && there == archive.File:
		return "", "", usage.Errorf("cp: %s is a file, and SRC a directory", shell.Word(dst.path))
	case !srcDir && src.dir:
		return "", "", usage.Errorf("cp: %s is not a directory", shell.Word(src.path))
	case !srcDir && there == archive.File && dst.dir:
		return "", "", usage.Errorf("cp: %s is not a directory", shell.Word(dst.path))
	case !srcDir && there == archive.Nothing && dst.dir:
		return "", "", usage.Errorf("cp: there is no directory %s", shell.Word(dst.path))
	case srcDir && src.tree && there == archive.Directory:
		return clean, ".", nil
	case there == archive.Directory:
		return clean, base, nil
	}
	return path.Dir(clean), path.Base(clean), nil
}

// stat tells what is at a place in a sandbox. What can't be looked at is taken
// for nothing: the guest never puts a file in a directory's place, nor the
// other way round, so that the upload then says what is wrong. A link is taken
// for a directory: the upload fails if it leads to none, and would replace the
// link if it were taken for a file.
func (c *copier) stat(ctx context.Context, p place) (archive.Kind, error) {
	h, err := c.header(ctx, p.name, path.Clean(p.path))
	switch {
	case err != nil && (ctx.Err() != nil || sandbox.KindOf(err) == sandbox.Unavailable || !c.known(ctx, p.name)):
		return archive.Nothing, err
	case err != nil:
		return archive.Nothing, nil
	case h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeSymlink:
		return archive.Directory, nil
	}
	return archive.File, nil
}

// inside has an error of a sandbox's side name the place, which the guest's own
// words do in part. That there is no such sandbox says enough.
func (c *copier) inside(ctx context.Context, p place, err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind == sandbox.Unavailable || !c.known(ctx, p.name) {
		return err
	}
	said := sandbox.Errorf(e.Kind, "cp: %s in the sandbox: %s", shell.Word(p.name+":"+p.path), e.Msg).WithHint("%s", e.Hint)
	said.Err = err
	return said
}

// known reports whether the sandbox itself is there, so that a path which is
// not can be told from it.
func (c *copier) known(ctx context.Context, name string) bool {
	_, err := c.svc.Get(ctx, name)
	return err == nil
}

// header returns the header of the first entry of a download.
func (c *copier) header(ctx context.Context, name, path string) (*tar.Header, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the download
	r, err := c.svc.Download(ctx, name, path, c.user)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it is left early
	h, err := tar.NewReader(r).Next()
	if err != nil {
		return nil, fmt.Errorf("read the archive of %s: %w", shell.Word(path), err)
	}
	return h, nil
}

// copyOut copies a file or directory out of a sandbox.
func (c *copier) copyOut(ctx context.Context, src, dst place) error {
	r, err := c.svc.Download(ctx, src.name, path.Clean(src.path), c.user)
	if err != nil {
		return c.inside(ctx, src, err)
	}
	defer func() { _ = r.Close() }() // it is read to its end, or failed
	in := c.progress.Reader(r)
	if dst.path == "-" {
		if _, err := io.Copy(c.a.Stdout, in); err != nil {
			return err
		}
		c.leftThere(r)
		return nil
	}
	u, err := archive.NewUnpacker(in, c.skipped)
	if err != nil {
		return fmt.Errorf("read the archive of %s: %w", shell.Word(src.path), err)
	}
	there, err := archive.OpenTarget(dst.path)
	if err != nil {
		return err
	}
	defer there.Close()
	base := path.Base(path.Clean(src.path))
	if base == "." || base == ".." || base == "/" {
		base = path.Base(u.Root())
	}
	srcDir := u.IsDir()
	if base == "." || base == ".." || base == "/" {
		src.tree = true // the directory has no name; there is only what is in it
	}
	_, name, err := landing(src, base, srcDir, dst, there.Kind)
	if err != nil {
		return err
	}
	shown := dst.path
	if there.Kind != archive.Directory {
		shown, name = filepath.Dir(filepath.Clean(dst.path)), there.Name
	}
	if err := u.Unpack(ctx, there, shown, name); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(in, maxTail)); err != nil {
		return fmt.Errorf("read the archive of %s: %w", shell.Word(src.path), err)
	}
	c.leftThere(r)
	return nil
}

// maxTail is how much may follow an archive before its end is no longer
// waited for.
const maxTail = 1 << 20

// leftThere tells what the guest did not put into the archive r, which was
// read to its end.
func (c *copier) leftThere(r io.Reader) {
	if a, ok := r.(interface{ Skipped() []client.Skip }); ok {
		for _, s := range a.Skipped() {
			c.skipped(s.Name, s.Reason)
		}
	}
}
