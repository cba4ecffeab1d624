package cli

import (
	"archive/tar"
	"context"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
)

// What the tests outside this package look at from inside.
var (
	ParseSize      = parseSize
	FormatSize     = formatSize
	ParseWorkspace = parseWorkspace
	ParseMount     = parseMount
	ParseEnvArg    = parseEnvArg
	ParseEnvFile   = parseEnvFile
	ParseLabel     = parseLabel
	QuoteArg       = quoteArg
	EditDistance   = editDistance
	Nearest        = nearest
	Words          = words
	ExitOf         = exitOf
	ExitCode       = exitCode
	IsImagePath    = isImagePath
	PathName       = pathName
	ArgvOf         = argvOf
	ParseIsolation = parseIsolation
	CredentialsErr = credentialsError
	SplitWords     = splitWords
	RefusedText    = refusedText
	Proposable     = proposable
)

type (
	WorkspaceArg = workspaceArg
	MountArg     = mountArg
	LineCounter  = lineCounter
)

// Place is what parsePlace makes of an argument.
func Place(s string) (name, path string, tree, dir bool) {
	p := parsePlace(s)
	return p.name, p.path, p.tree, p.dir
}

// ParseSecret is what --secret makes of an argument.
func ParseSecret(s string) (name, env, file string, err error) {
	g, err := parseSecret(s)
	return g.name, g.env, g.file, err
}

// Counts are what a LineCounter counted.
func (c *LineCounter) Counts() (added, removed int) { return c.added, c.removed }

// NewEscapeWriter is what a command's output to a terminal goes through.
func NewEscapeWriter(w io.Writer) (_ io.Writer, end func()) {
	e := &escapeWriter{w: w}
	return e, func() { flush(e) }
}

// Unpack unpacks an archive as copying out of a sandbox does, and returns what
// was left out.
func Unpack(ctx context.Context, r io.Reader, dir, name string) (skipped []string, err error) {
	u := &unpacker{r: tar.NewReader(r), skipped: func(name, _ string) { skipped = append(skipped, name) }}
	if err := u.first(); err != nil {
		return nil, err
	}
	err = u.unpack(ctx, dir, name)
	return skipped, err
}

// Pack packs a file or directory as copying into a sandbox does.
func Pack(ctx context.Context, w io.Writer, local, name string) error {
	return (&packer{w: tar.NewWriter(w), skipped: func(string, string) {}}).pack(ctx, local, name)
}

// PackImage packs a directory as importing an image does. uid is whose files
// become root's. It returns what was left out.
func PackImage(ctx context.Context, w io.Writer, dir string, uid int) (left []string, err error) {
	p, err := newImagePacker(dir)
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
	return l.frame(size{cols, rows})
}

// Table is what a table of these rows looks like.
func Table(rows [][]string) string {
	var t table
	for _, r := range rows {
		t.row(append([]string{}, r...)...)
	}
	var b strings.Builder
	_ = t.write(&b) // it never fails
	return b.String()
}

// Elide is elide.
func Elide(s string, n int) string { return elide(s, n) }

// HomeIn is homeIn.
func HomeIn(dir string, homes []string) string { return homeIn(dir, homes) }

// PasswdHomes is passwdHomes.
func PasswdHomes(r io.Reader) []string { return passwdHomes(r) }
