package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

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

// Copy copies from one place to another, of which one is in a sandbox: NAME:PATH.
// "-" is an archive, on stdin or stdout.
func (c *Copier) Copy(ctx context.Context, from, to string) error {
	src, dst := parsePlace(from), parsePlace(to)
	switch {
	case src.path == "" || dst.path == "":
		return usage.Errorf("cp: a path is empty")
	case (src.name == "") == (dst.name == ""):
		return usage.Errorf("cp: one of SRC and DST must be in a sandbox, as NAME:PATH").
			WithHint("carboy cp ./src NAME:/workspace/src")
	case src.name == "" && src.path == "-" && console.IsTerminal(c.Stdin):
		return usage.Errorf("cp: - reads an archive from stdin, which is a terminal")
	case dst.name == "" && dst.path == "-" && console.IsTerminal(c.Stdout):
		return usage.Errorf("cp: - writes an archive to stdout, which is a terminal")
	}
	c.progress = c.NewProgress()
	defer c.progress.Stop()
	if dst.name != "" {
		if src.path == "-" {
			return c.connect(ctx, func() error { return c.inside(ctx, dst, c.upload(ctx, dst, c.progress.Reader(c.Stdin))) })
		}
		local, err := openLocal(src.path)
		if err != nil {
			return err
		}
		defer local.close()
		return c.connect(ctx, func() error { return c.copyIn(ctx, src, local, dst) })
	}
	return c.connect(ctx, func() error { return c.copyOut(ctx, src, dst) })
}

// Copier copies between this machine and sandboxes, as one user.
type Copier struct {
	*console.Console
	// Connect returns the client, and starts a daemon where none runs.
	Connect func(ctx context.Context) (*client.Client, error)
	User    string // whose rights are used inside; "": the sandbox's
	// Waits is called when a sandbox is written to, and stop when that is done.
	Waits func(ctx context.Context, svc *client.Client, name string) (stop func())

	svc      *client.Client
	progress *console.Progress
}

func (c *Copier) connect(ctx context.Context, f func() error) (err error) {
	if c.svc, err = c.Connect(ctx); err != nil {
		return err
	}
	return f()
}

// upload unpacks an archive in the directory dst.
func (c *Copier) upload(ctx context.Context, dst place, r io.Reader) error {
	if c.Waits != nil {
		defer c.Waits(ctx, c.svc, dst.name)()
	}
	return c.svc.Upload(ctx, dst.name, client.UploadOptions{
		Path: dst.path, User: c.User,
		Skipped: func(s client.Skip) { c.skipped(s.Name, s.Reason) },
	}, r)
}

// copyIn copies a file or directory of this machine into a sandbox.
func (c *Copier) copyIn(ctx context.Context, src place, local *local, dst place) error {
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
	in, name, err := landing(src, base, local.kind == directory, dst, there)
	if err != nil {
		return err
	}
	whole := dst
	dst.path = in
	return Send(
		func(w io.Writer) error { return pack(ctx, w, local, name, c.skipped) },
		func(r io.Reader) error { return c.inside(ctx, whole, c.upload(ctx, dst, c.progress.Reader(r))) },
	)
}

func (c *Copier) skipped(name, why string) {
	c.progress.Clear()
	c.NoteReason("left_out", "left out: "+name+": "+why)
}

// landing says where a copy goes: the directory that it is unpacked in, and
// the name that it gets there, "." for the directory itself.
func landing(src place, base string, srcDir bool, dst place, there kind) (dir, name string, err error) {
	clean := path.Clean(dst.path)
	switch {
	case srcDir && there == file:
		return "", "", usage.Errorf("cp: %s is a file, and SRC a directory", shell.Word(dst.path))
	case !srcDir && src.dir:
		return "", "", usage.Errorf("cp: %s is not a directory", shell.Word(src.path))
	case !srcDir && there == file && dst.dir:
		return "", "", usage.Errorf("cp: %s is not a directory", shell.Word(dst.path))
	case !srcDir && there == nothing && dst.dir:
		return "", "", usage.Errorf("cp: there is no directory %s", shell.Word(dst.path))
	case srcDir && src.tree && there == directory:
		return clean, ".", nil
	case there == directory:
		return clean, base, nil
	}
	return path.Dir(clean), path.Base(clean), nil
}

// stat tells what is at a place in a sandbox. What can't be looked at is taken
// for nothing: the guest never puts a file in a directory's place, nor the
// other way round, so that the upload then says what is wrong. A link is taken
// for a directory: the upload fails if it leads to none, and would replace the
// link if it were taken for a file.
func (c *Copier) stat(ctx context.Context, p place) (kind, error) {
	h, err := c.header(ctx, p.name, path.Clean(p.path))
	switch {
	case err != nil && (ctx.Err() != nil || sandbox.KindOf(err) == sandbox.Unavailable || !c.known(ctx, p.name)):
		return nothing, err
	case err != nil:
		return nothing, nil
	case h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeSymlink:
		return directory, nil
	}
	return file, nil
}

// inside has an error of a sandbox's side name the place, which the guest's own
// words do in part. That there is no such sandbox says enough.
func (c *Copier) inside(ctx context.Context, p place, err error) error {
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
func (c *Copier) known(ctx context.Context, name string) bool {
	_, err := c.svc.Get(ctx, name)
	return err == nil
}

// header returns the header of the first entry of a download.
func (c *Copier) header(ctx context.Context, name, path string) (*tar.Header, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the download
	r, err := c.svc.Download(ctx, name, path, c.User)
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
func (c *Copier) copyOut(ctx context.Context, src, dst place) error {
	r, err := c.svc.Download(ctx, src.name, path.Clean(src.path), c.User)
	if err != nil {
		return c.inside(ctx, src, err)
	}
	defer func() { _ = r.Close() }() // it is read to its end, or failed
	if err := c.receive(ctx, c.progress.Reader(r), src, dst); err != nil {
		return err
	}
	c.leftThere(r)
	return nil
}

// Receive makes a directory of an archive of one, which is called name; "-" passes it on to stdout. What is there already, and is no empty directory,
// is a Conflict.
func (c *Copier) Receive(ctx context.Context, archive io.Reader, name, to string) error {
	dst := parsePlace(to)
	if dst.name != "" {
		dst = place{path: to}
	}
	switch {
	case dst.path == "":
		return usage.Errorf("the directory to write to has no name")
	case dst.path == "-" && console.IsTerminal(c.Stdout):
		return usage.Errorf("- writes an archive to stdout, which is a terminal")
	case dst.path != "-":
		if err := checkFree(dst.path); err != nil {
			return err
		}
	}
	c.progress = c.NewProgress()
	defer c.progress.Stop()
	return c.receive(ctx, c.progress.Reader(archive), place{path: name, tree: true, dir: true}, dst)
}

// checkFree refuses a path at which there is something.
func checkFree(path string) error {
	there, err := openTarget(path)
	if err != nil {
		return err
	}
	defer there.close()
	taken := there.kind == file
	if there.kind == directory {
		names, err := there.dir.Names(".")
		if err != nil {
			return usage.Path("look into", path, err)
		}
		taken = len(names) > 0
	}
	if taken {
		return sandbox.Errorf(sandbox.Conflict, "%s: there is something already", shell.Word(path)).WithHint("name a directory that is not there, or is empty")
	}
	return nil
}

// receive writes an archive to a place on this machine.
func (c *Copier) receive(ctx context.Context, in io.Reader, src, dst place) error {
	if dst.path == "-" {
		_, err := io.Copy(c.Stdout, in)
		return err
	}
	u, err := newUnpacker(in, c.skipped)
	if err != nil {
		return fmt.Errorf("read the archive of %s: %w", shell.Word(src.path), err)
	}
	there, err := openTarget(dst.path)
	if err != nil {
		return err
	}
	defer there.close()
	base := path.Base(path.Clean(src.path))
	if base == "." || base == ".." || base == "/" {
		base = path.Base(u.root)
	}
	srcDir := u.isDir()
	if base == "." || base == ".." || base == "/" {
		src.tree = true // the directory has no name; there is only what is in it
	}
	_, name, err := landing(src, base, srcDir, dst, there.kind)
	if err != nil {
		return err
	}
	shown := dst.path
	if there.kind != directory {
		shown, name = filepath.Dir(filepath.Clean(dst.path)), there.name
	}
	if err := u.unpack(ctx, there, shown, name); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(in, maxTail)); err != nil {
		return fmt.Errorf("read the archive of %s: %w", shell.Word(src.path), err)
	}
	return nil
}

// maxTail is how much may follow an archive before its end is no longer
// waited for.
const maxTail = 1 << 20

// leftThere tells what the guest did not put into the archive r, which was
// read to its end.
func (c *Copier) leftThere(r io.Reader) {
	if a, ok := r.(interface{ Skipped() []client.Skip }); ok {
		for _, s := range a.Skipped() {
			c.skipped(s.Name, s.Reason)
		}
	}
}
