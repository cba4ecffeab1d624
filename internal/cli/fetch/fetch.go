// Package fetch brings images to the daemon as the user of a command line: pulled, with
// what the user's own Docker configuration has for a registry, or sent from a path. It
// tells how far that is. It refuses what is at a path that can be no image, and
// shows nothing that a credential helper printed.
package fetch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/cli/archive"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Fetcher fetches images and tells how far it is.
type Fetcher struct {
	Console *console.Console
	Client  *client.Client
	// Login asks the user's own Docker configuration about a reference; nil: there is none.
	Login func(ctx context.Context, ref string) (order.Login, error)
	Quiet bool      // tell no progress
	News  io.Writer // where it is told with --json
}

// phaseSend is what the command line itself tells of an import.
const phaseSend = "send"

// Pull fetches ref with what the caller's own configuration has for its
// registry.
func (f *Fetcher) Pull(ctx context.Context, ref string) (*api.Image, error) {
	auth, err := f.credentials(ctx, ref)
	if err != nil {
		return nil, err
	}
	news := f.begin()
	defer news.end()
	return f.Client.PullImage(ctx, api.PullRequest{Ref: ref, Auth: auth}, news.report)
}

// CheckPath refuses what can't be imported before a daemon is started.
func CheckPath(c *console.Console, path string) error {
	if path == "-" {
		if c.Stdin == nil || console.IsTerminal(c.Stdin) {
			return usage.Errorf("import: - reads an archive from stdin, which is a terminal")
		}
		return nil
	}
	fi, err := statPath(path)
	switch {
	case err != nil:
		return usage.Path("import", path, err)
	case fi.IsDir():
		return nil
	case fi.Mode()&os.ModeDevice != 0:
		return usage.Errorf("import: %s is neither a file nor a directory", shell.Word(path))
	}
	f, err := beneath.OpenInput(path) // regular, or given to us open
	if err != nil {
		return usage.Path("import", path, err)
	}
	return f.Close()
}

// statPath looks at what a user's path leads to.
func statPath(path string) (fs.FileInfo, error) {
	f, err := beneath.OpenPath(path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only looked at
	return f.Stat()
}

// Import sends what is at path, "-" for stdin.
func (f *Fetcher) Import(ctx context.Context, path, name string) (*api.Image, error) {
	if err := CheckPath(f.Console, path); err != nil {
		return nil, err
	}
	if path == "-" {
		return f.send(ctx, name, f.Console.Stdin, 0)
	}
	file, err := beneath.OpenInput(path)
	if errors.Is(err, beneath.ErrNotRegular) {
		file, err = beneath.OpenPath(path, os.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return nil, usage.Path("import", path, err)
	}
	defer func() { _ = file.Close() }() // it is only read
	fi, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return f.send(ctx, name, file, fi.Size())
	}
	p, err := archive.NewImagePacker(file)
	if err != nil {
		return nil, usage.Path("import", path, err)
	}
	defer p.Close()
	if !p.Layout && name == "" {
		return nil, usage.Errorf("import: %s is a root file system, which has no name", shell.Word(path)).
			WithHint("carboy image import --name NAME %s", shell.Word(path))
	}
	return f.sendPacked(ctx, name, p)
}

// sendPacked sends a directory as the archive that p makes of it.
func (f *Fetcher) sendPacked(ctx context.Context, name string, p *archive.ImagePacker) (*api.Image, error) {
	var img *api.Image
	err := archive.Send(func(to io.Writer) error { return p.Pack(ctx, to) }, func(from io.Reader) (err error) {
		img, err = f.send(ctx, name, from, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, text := range p.LeftOut() {
		f.Console.NoteReason("left_out", "left out: "+text)
	}
	return img, nil
}

func (f *Fetcher) send(ctx context.Context, name string, r io.Reader, size int64) (*api.Image, error) {
	news := f.begin()
	defer news.end()
	sent := &tellingReader{r: r, tell: func(n int64) {
		news.report(api.ImageProgress{Phase: phaseSend, Done: n, Total: size})
	}}
	return f.Client.ImportImage(ctx, name, sent, func(p api.ImageProgress) {
		if p.Layer == "" && p.Phase == "download" {
			return // the other end of what is sent
		}
		news.report(p)
	})
}

// tellingReader tells how much was read, each time.
type tellingReader struct {
	r    io.Reader
	n    int64
	tell func(int64)
}

// Read reads and tells.
func (t *tellingReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.n += int64(n)
	t.tell(t.n)
	return n, err
}
