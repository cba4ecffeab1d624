package cli

import (
	"archive/tar"
	"context"
	"io"
	"os"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// What the tests outside this package look at from inside.
var (
	EditDistance   = editDistance
	Nearest        = nearest
	ExitOf         = exitOf
	ExitCode       = exitCode
	CredentialsErr = credentialsError
	SplitWords     = splitWords
	RefusedText    = refusedText
	Proposable     = proposable
)

type (
	LineCounter = lineCounter
)

// Place is what parsePlace makes of an argument.
func Place(s string) (name, path string, tree, dir bool) {
	p := parsePlace(s)
	return p.name, p.path, p.tree, p.dir
}

// Counts are what a LineCounter counted.
func (c *LineCounter) Counts() (added, removed int) { return c.added, c.removed }

// Unpack unpacks an archive as copying out of a sandbox does, and returns what
// was left out.
func Unpack(ctx context.Context, r io.Reader, dir, name string) (skipped []string, err error) {
	u := &unpacker{r: tar.NewReader(r), skipped: func(name, _ string) { skipped = append(skipped, name) }}
	if err := u.first(); err != nil {
		return nil, err
	}
	to, err := beneath.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	err = u.unpack(ctx, to, name)
	return skipped, err
}

// Pack packs a file or directory as copying into a sandbox does.
func Pack(ctx context.Context, w io.Writer, local, name string) error {
	l, err := openLocal(local)
	if err != nil {
		return err
	}
	defer l.close()
	return (&packer{w: tar.NewWriter(w), skipped: func(string, string) {}}).pack(ctx, l.dir, l.name, name)
}

// UnpackTo unpacks an archive at a path, as copying to it does.
func UnpackTo(ctx context.Context, r io.Reader, path string) error {
	u := &unpacker{r: tar.NewReader(r), skipped: func(string, string) {}}
	if err := u.first(); err != nil {
		return err
	}
	to, err := openTarget(path)
	if err != nil {
		return err
	}
	defer to.close()
	return u.unpack(ctx, to.dir, to.name)
}

// PackImage packs a directory as importing an image does. uid is whose files
// become root's. It returns what was left out.
func PackImage(ctx context.Context, w io.Writer, dir string, uid int) (left []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	p, err := newImagePacker(f)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.uid = uid
	err = p.pack(ctx, w)
	return p.leftOut(), err
}

// Frame is what a terminal of that size shows once all of news came.
func Frame(cols, rows uint32, news ...api.ImageProgress) []string {
	var l layerList
	for _, p := range news {
		l.put(p)
	}
	return l.frame(console.Size{Cols: cols, Rows: rows})
}
