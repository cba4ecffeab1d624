package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Bounds are what CopyOut copies at most.
type Bounds struct {
	Entries      int      // files and directories
	Entry, Total int64    // bytes of one file, and of all
	Depth        int      // directories below one another
	Except       []string // names that are left out, with what is below them
}

const (
	maxListing = 8 << 20 // bytes of the listing of one directory
	maxFault   = 4 << 10 // bytes of a fault's text
	noFile     = "/dev/null/not-a-file"
)

// CopyOut copies what is in a directory of a volume of owner's, a path with
// slashes below its root, into the empty directory to. The volume's process
// reads it. What is neither a file nor a directory becomes a link that leads
// nowhere: a reader of the copy finds that it is there, and nothing behind it.
// It fails with NotFound where there is no such directory, and with Exhausted
// where there is more than b has.
func (s *Service) CopyOut(ctx context.Context, owner, id, dir string, to *os.Root, b Bounds) error {
	serve, err := s.serving(ctx, owner, id)
	if err != nil {
		return err
	}
	c := copying{serve: serve, from: path.Join("/", dir), to: to, b: b}
	return c.dir(ctx, ".", 0)
}

// serving returns what has a volume's process answer.
func (s *Service) serving(ctx context.Context, owner, id string) (func(w http.ResponseWriter, r *http.Request, operation string), error) {
	if err := s.Has(ctx, owner, id); err != nil {
		return nil, err
	}
	t, err := tree.Find(s.o.State, id)
	if err != nil {
		return nil, err
	}
	at := content.Target{ID: id, Owner: owner, Tree: t}
	return func(w http.ResponseWriter, r *http.Request, operation string) { s.content.Serve(w, r, at, operation) }, nil
}

// Look says what is at a path below the root of a volume of owner's, of which no part but the last is a link: "file",
// "directory", "symlink" and where it leads, or "unknown". The volume's process looks. It fails with NotFound where
// nothing is there.
func (s *Service) Look(ctx context.Context, owner, id, rel string) (kind, link string, err error) {
	serve, err := s.serving(ctx, owner, id)
	if err != nil {
		return "", "", err
	}
	return look(ctx, serve, rel)
}

func look(ctx context.Context, serve func(w http.ResponseWriter, r *http.Request, operation string), rel string) (kind, link string, err error) {
	c := copying{serve: serve, from: "/"}
	var text bytes.Buffer
	if err := c.ask(ctx, "/path", rel, url.Values{}, &text, maxListing); err != nil {
		return "", "", err
	}
	var e struct {
		Type   string `json:"type"`
		Target string `json:"target"`
	}
	if err := json.Unmarshal(text.Bytes(), &e); err != nil {
		return "", "", c.broken(rel)
	}
	return e.Type, e.Target, nil
}

// copying is one copy. serve has the volume's process answer.
type copying struct {
	serve   func(w http.ResponseWriter, r *http.Request, operation string)
	from    string
	to      *os.Root
	b       Bounds
	entries int
	total   int64
}

// listed is what is used of an entry of a listing.
type listed struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Mode uint32 `json:"mode"`
}

func (c *copying) dir(ctx context.Context, rel string, depth int) error {
	if depth > c.b.Depth {
		return sandbox.Errorf(sandbox.Exhausted, "%s: more than %d directories below one another", c.at(rel), c.b.Depth)
	}
	var text bytes.Buffer
	if err := c.ask(ctx, "/dir", rel, url.Values{"depth": {"1"}}, &text, maxListing); err != nil {
		return err
	}
	var all []listed
	if err := json.Unmarshal(text.Bytes(), &all); err != nil {
		return c.broken(rel)
	}
	for _, e := range all {
		if e.Name == "." || e.Name != filepath.Base(e.Name) || !filepath.IsLocal(e.Name) {
			return c.broken(rel)
		}
		if slices.Contains(c.b.Except, e.Name) {
			continue
		}
		if c.entries++; c.entries > c.b.Entries {
			return sandbox.Errorf(sandbox.Exhausted, "%s: more than %d files and directories", c.from, c.b.Entries)
		}
		if err := c.entry(ctx, e, path.Join(rel, e.Name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *copying) entry(ctx context.Context, e listed, rel string, depth int) error {
	switch e.Type {
	case "directory":
		if err := c.to.Mkdir(rel, 0o755); err != nil {
			return err
		}
		return c.dir(ctx, rel, depth+1)
	case "file":
		return c.file(ctx, rel, e.Mode&0o111 != 0)
	}
	return c.to.Symlink(noFile, rel)
}

func (c *copying) file(ctx context.Context, rel string, exec bool) error {
	mode := os.FileMode(0o644)
	if exec {
		mode = 0o755
	}
	f, err := c.to.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = c.ask(ctx, "/file", rel, url.Values{}, f, min(c.b.Entry, c.b.Total-c.total))
	if st, serr := f.Stat(); serr == nil {
		c.total += st.Size()
	}
	return errors.Join(err, f.Close())
}

func (c *copying) at(rel string) string { return path.Join(c.from, rel) }

func (c *copying) broken(rel string) error {
	return sandbox.Errorf(sandbox.Unavailable, "%.256q: the volume's process ended while it was read", c.at(rel)).WithHint("try again")
}

// ask has the volume's process answer, and writes what it says to w, which is
// at most that many bytes.
func (c *copying) ask(ctx context.Context, operation, rel string, q url.Values, w io.Writer, most int64) error {
	q.Set("path", c.at(rel))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://volume"+operation+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	out := answer{header: http.Header{}, w: w, left: most}
	c.serve(&out, r, operation)
	want, cerr := strconv.ParseInt(out.header.Get("Content-Length"), 10, 64)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case out.status != http.StatusOK:
		return out.fault(c.at(rel))
	case out.over:
		return sandbox.Errorf(sandbox.Exhausted, "%.256q: more than %d bytes, or all files have more than %d", c.at(rel), c.b.Entry, c.b.Total)
	case out.err != nil:
		return out.err
	case cerr == nil && want != out.wrote:
		return c.broken(rel)
	}
	return nil
}

// answer is a response that goes to w, up to a bound.
type answer struct {
	header http.Header
	status int
	w      io.Writer
	left   int64
	wrote  int64
	over   bool
	err    error
	text   bytes.Buffer // where status is no success
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK && a.status == 0 {
		a.status = status
	}
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.status != http.StatusOK {
		a.text.Write(p[:min(len(p), max(maxFault-a.text.Len(), 0))])
		return len(p), nil
	}
	if int64(len(p)) > a.left {
		a.over = true
		return 0, io.ErrShortWrite
	}
	n, err := a.w.Write(p)
	a.left, a.wrote, a.err = a.left-int64(n), a.wrote+int64(n), err
	return n, err
}

// fault says what a response says that is no success.
func (a *answer) fault(at string) error {
	var f struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(a.text.Bytes(), &f) != nil {
		f.Message = "it can't be read"
	}
	kind := sandbox.Unavailable
	switch a.status {
	case http.StatusNotFound:
		kind = sandbox.NotFound
	case http.StatusBadRequest, http.StatusConflict:
		kind = sandbox.Invalid
	case http.StatusTooManyRequests:
		kind = sandbox.Exhausted
	}
	return sandbox.Errorf(kind, "%.256q of a volume: %s", at, strings.ToValidUTF8(f.Message, "�"))
}
