// Package target finds out what a path of a shared workspace really is, as it is seen
// inside, from an open directory of the host's, or from who has the workspace open: links are followed by hand, each part
// opened beneath that directory, and a link that leads out of it is an error. Nobody's word inside for a path counts,
// and no name is looked up twice in a different way.
//
// What is not there yet is taken by its name, below what is there. It refuses "..", there, which
// would be another directory by the time that it is made.
package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// ErrOutside says that a path leads out of the workspace.
var ErrOutside = errors.New("it leads out of the workspace")

// maxLinks bounds the links on one path, as the kernel does.
const maxLinks = 40

// Entry is what is at a path.
type Entry struct {
	Link string // where it leads; "": it is no link
	Dir  bool   // it is a directory
}

// Tree is files that somebody has open.
type Tree interface {
	// Look says what is at a path below the top, of which no part but the last is a link. Its error is an fs.ErrNotExist
	// where nothing is.
	Look(ctx context.Context, rel string) (Entry, error)
}

// Workspace is a tree of files, and where it is seen inside.
type Workspace struct {
	tree  Tree
	close func() error
	at    []string
}

// Of is the workspace that a tree is, seen at a clean absolute path inside.
func Of(t Tree, at string) *Workspace {
	return &Workspace{tree: t, close: func() error { return nil }, at: parts(at)}
}

// Open opens the workspace that lies in a directory of the host's, whose name nobody untrusted
// can change, and is seen at a clean absolute path inside. The host's own tree is the
// directory "/", at "/".
func Open(dir, at string) (*Workspace, error) {
	if !path.IsAbs(at) || path.Clean(at) != at {
		return nil, sandbox.Errorf(sandbox.Invalid, "a workspace can't be at %q: it needs a clean absolute path", at)
	}
	d, err := beneath.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	w := Of(opened{d}, at)
	w.close = d.Close
	return w, nil
}

// Close closes the directory.
func (w *Workspace) Close() error { return w.close() }

// parts are the names of a path, without empty ones and ".".
func parts(p string) (out []string) {
	for name := range strings.SplitSeq(p, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// Resolve is the path by which what p leads to is seen inside, without links. Its error is
// ErrOutside for one that leads out, and one for people otherwise.
func (w *Workspace) Resolve(ctx context.Context, _ string, p string) (string, error) {
	if !path.IsAbs(p) {
		return "", sandbox.Errorf(sandbox.Invalid, "scope.target must be absolute: %s", scope.Shown(p))
	}
	rest, err := w.inside(p)
	if err != nil {
		return "", err
	}
	walk := walker{w: w, rest: rest}
	for len(walk.rest) > 0 {
		if err := walk.step(ctx); err != nil {
			return "", err
		}
	}
	return "/" + strings.Join(append(append([]string{}, w.at...), walk.done...), "/"), nil
}

// inside takes the way to the workspace off an absolute path.
func (w *Workspace) inside(p string) ([]string, error) {
	all := parts(p)
	if len(all) < len(w.at) {
		return nil, ErrOutside
	}
	for i, name := range w.at {
		if all[i] != name {
			return nil, ErrOutside
		}
	}
	return all[len(w.at):], nil
}

// walker is on its way along a path.
type walker struct {
	w     *Workspace
	done  []string // names that are no links, from the workspace on
	rest  []string
	links int
	gone  bool // what done names is not there, and so is all below
}

// step takes the next part.
func (k *walker) step(ctx context.Context) error {
	name := k.rest[0]
	k.rest = k.rest[1:]
	if name == ".." {
		return k.up()
	}
	next := append(append([]string{}, k.done...), name)
	if k.gone {
		k.done = next
		return nil
	}
	e, err := k.w.tree.Look(ctx, strings.Join(next, "/"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.gone = true
	case err != nil:
		return failed("/"+strings.Join(append(append([]string{}, k.w.at...), next...), "/"), err)
	case e.Link != "":
		return k.follow(e.Link)
	}
	k.done = next
	return nil
}

// failed says of a path why it can't be looked at.
func failed(shown string, err error) error {
	e := sandbox.Errorf(sandbox.Invalid, "failed to resolve scope target %s: %s", scope.Shown(shown), unwrap(err))
	e.Err = err
	return e
}

func unwrap(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

func (k *walker) up() error {
	switch {
	case k.gone:
		return sandbox.Errorf(sandbox.Invalid, "failed to resolve scope target: there is a \"..\" below /%s, which is not there", scope.Shown(strings.Join(append(append([]string{}, k.w.at...), k.done...), "/"))).
			WithHint("make the directory first, or name it without ..")
	case len(k.done) > 0:
		k.done = k.done[:len(k.done)-1]
	case len(k.w.at) > 0:
		return ErrOutside
	}
	return nil // above the root is the root
}

// follow goes where a link leads, from the directory that it is in.
func (k *walker) follow(link string) error {
	if k.links++; k.links > maxLinks {
		return failed("/"+strings.Join(k.done, "/"), unix.ELOOP)
	}
	names := parts(link)
	if path.IsAbs(link) {
		var err error
		if names, err = k.w.inside(link); err != nil {
			return err
		}
		k.done = nil
	}
	k.rest = append(append([]string{}, names...), k.rest...)
	return nil
}

// opened is a directory of the host's.
type opened struct{ dir *beneath.Dir }

// Look implements Tree. What has something below it has to be a directory.
func (o opened) Look(_ context.Context, rel string) (Entry, error) {
	fd, err := beneath.OpenNoLinks(o.dir.Fd(), rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return Entry{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Entry{}, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return Entry{Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return Entry{}, fmt.Errorf("read link: %w", err)
	}
	if n == 0 {
		return Entry{}, unix.ENOENT
	}
	return Entry{Link: string(buf[:n])}, nil
}
