package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// scratchPrefix begins the name of every scratch directory.
const scratchPrefix = ".carboy-doctor-"

// scratch is a directory of this run's own, where the state directory is or
// would be. It is locked as long as this process lives.
type scratch struct {
	path string
	lock *os.File
}

var errNoScratch = errors.New("there is no directory to try it in")

// openScratch makes a scratch directory, and removes what runs have left that
// were killed: their instances too.
func openScratch(ctx context.Context, o Options) (*scratch, error) {
	if o.DirsErr != nil {
		return nil, o.DirsErr
	}
	base, err := nearest(o.Dirs.State)
	if err != nil {
		return nil, err
	}
	return scratchIn(ctx, base, o)
}

// enterScratch makes one in the directory for temporary files where there is
// no state directory to be had: most checks can be made anywhere.
func (m *machine) enterScratch(ctx context.Context) {
	m.scratch, m.scratchErr = openScratch(ctx, m.opts)
	if m.scratchErr != nil {
		m.scratch, _ = scratchIn(ctx, os.TempDir(), Options{}) // the checks say that there is none
	}
}

func scratchIn(ctx context.Context, base string, o Options) (*scratch, error) {
	sweep(ctx, base, o)
	path, err := os.MkdirTemp(base, scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("%s can't be written: %w", base, bareErr(err))
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &scratch{path: path, lock: lock}, nil
}

// nearest returns dir, or the nearest directory above it that is there.
func nearest(dir string) (string, error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		switch {
		case err == nil && fi.IsDir():
			return at, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", at)
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%s: %w", at, bareErr(err))
		case at == filepath.Dir(at):
			return "", fmt.Errorf("%s: no directory above it is there", dir)
		}
	}
}

func bareErr(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(step("lock "+filepath.Base(path), err), f.Close())
	}
	return f, nil
}

// sweep removes scratch directories of ours that nobody locks. What it can't
// remove, the next run tries again.
func sweep(ctx context.Context, base string, o Options) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		path := filepath.Join(base, e.Name())
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		lock, err := lockDir(path)
		if err != nil {
			continue // a run that lives
		}
		for _, w := range o.Walls {
			sweepGates(ctx, o, path, w) // first: their instances' end is none of theirs
			sweepWall(ctx, w, path)
		}
		sweepGroups(ctx, scratchName(path))
		_ = removeAll(path)
		_ = lock.Close() // it was only read
	}
}

// sweepWall removes the instances that a killed run left behind a wall.
func sweepWall(ctx context.Context, w Wall, path string) {
	if _, err := os.Lstat(filepath.Join(path, "boxes")); err != nil {
		return // it did not come that far
	}
	b, err := w.Open(ctx, path)
	if err != nil {
		return
	}
	defer b.Close()
	ids, err := b.Instances(ctx)
	if err != nil {
		return
	}
	for _, id := range ids {
		_ = b.Remove(ctx, id)
	}
}

// dir makes a directory that a check has for itself.
func (s *scratch) dir(name string) (string, error) {
	if s == nil {
		return "", errNoScratch
	}
	path := filepath.Join(s.path, name)
	return path, os.Mkdir(path, 0o700)
}

// name is what tells this run from others, in lower case.
func (s *scratch) name() string {
	if s == nil {
		return fmt.Sprint(os.Getpid())
	}
	return scratchName(s.path)
}

func scratchName(path string) string { return strings.TrimPrefix(filepath.Base(path), scratchPrefix) }

// remove deletes the directory and all that was tried in it.
func (s *scratch) remove() error {
	if s == nil {
		return nil
	}
	return errors.Join(removeAll(s.path), s.lock.Close())
}

// removeAll deletes what overlays leave too: directories without any rights.
func removeAll(path string) error {
	err := beneath.RemoveAll(context.Background(), path)
	if err == nil {
		return nil
	}
	d, derr := beneath.OpenDir(path)
	if derr != nil {
		return err
	}
	defer d.Close()
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(path, p); e != nil && e.IsDir() && err != nil && rerr == nil {
			_ = d.Chmod(rel, 0o700) // where it can't be, removing it says so
		}
		return nil
	})
	return beneath.RemoveAll(context.Background(), path)
}
