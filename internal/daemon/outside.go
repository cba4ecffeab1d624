package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// sources are the directories from which owners may take skills.
type sources struct {
	roots   *hostroot.Roots
	runtime *session.Runtime
	volumes *volume.Service // nil: there are none
	dir     string          // of copies, which last as long as they are read
}

// maxSourceDepth is how many directories of a volume below one another are
// copied.
const maxSourceDepth = 32

// open opens a directory for an owner. It is a langbot.OutsideFunc: path is as the
// owner's host knows it, a directory of this machine that the owner may be shown,
// or one in a workspace of the owner's that is a volume, of which a copy is made.
func (s sources) open(ctx context.Context, owner, path string) (*os.Root, func(), error) {
	dir, err := s.shared(owner, path)
	if err == nil || sandbox.KindOf(err) == sandbox.Internal {
		return dir, nil, err
	}
	at, found, verr := s.inVolume(ctx, owner, path)
	switch {
	case verr != nil:
		return nil, nil, verr
	case !found:
		return nil, nil, err
	}
	return s.copyOf(ctx, owner, at)
}

// shared opens a directory of this machine. The daemon's own user has all that
// may be mounted; a workspace of several has what is its own below the default
// workspace, whose name only the runtime and its host make.
func (s sources) shared(owner, path string) (*os.Root, error) {
	rel, base := ".", path
	if owner != ownUID() {
		ns, ok := strings.CutPrefix(owner, "box:")
		if !ok || !filepath.IsLocal(ns) || s.roots.DefaultWorkspace() == "" {
			return nil, notTheirs()
		}
		base = filepath.Join(s.roots.DefaultWorkspace(), "tenants", ns)
		var err error
		if rel, err = filepath.Rel(base, path); err != nil || !filepath.IsLocal(rel) {
			return nil, notTheirs()
		}
	}
	dir, err := s.roots.Open(base, hostroot.Access{})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.File().Fd()))
	if err != nil || rel == "." {
		return root, err
	}
	defer root.Close()
	below, err := root.OpenRoot(rel) // links in it lead nowhere else
	if err != nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "Directory does not exist: %.256q", path)
	}
	return below, nil
}

func notTheirs() error {
	return sandbox.Errorf(sandbox.Denied, "the path must stay within the Workspace, or the Workspace skill root")
}

// ownedPlace is a place in a volume that is there.
type ownedPlace struct{ volume, dir string }

// inVolume finds the volume that has what the owner's host knows as path.
func (s sources) inVolume(ctx context.Context, owner, path string) (ownedPlace, bool, error) {
	if s.volumes == nil {
		return ownedPlace{}, false, nil
	}
	vols := sessionVolumes{s.volumes}
	for _, p := range s.runtime.OwnedPlaces(owner, path) {
		v, err := vols.find(ctx, sandbox.Caller{Owner: owner}, p.Volume)
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound:
			continue
		case err != nil:
			return ownedPlace{}, false, err
		}
		return ownedPlace{volume: v.ID, dir: p.Dir}, true, nil
	}
	return ownedPlace{}, false, nil
}

// copyOf copies a directory of a volume, as far as a skill may be.
func (s sources) copyOf(ctx context.Context, owner string, at ownedPlace) (*os.Root, func(), error) {
	copied, err := os.MkdirTemp(s.dir, "source-")
	if err != nil {
		return nil, nil, fmt.Errorf("copy from a volume: %w", err)
	}
	done := func() { _ = os.RemoveAll(copied) } // the daemon's next start removes what is left
	to, err := os.OpenRoot(copied)
	if err == nil {
		b := volume.Bounds{Depth: maxSourceDepth}
		b.Entries, b.Entry, b.Total, b.Except = skill.Bounds()
		if err = s.volumes.CopyOut(ctx, owner, at.volume, at.dir, to, b); err != nil {
			_ = to.Close()
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return to, done, nil
}

// emptied makes a directory that is the daemon's alone, without what an earlier
// daemon left in it. One that is there takes no room, so that a daemon can be
// started on a full disk.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o700)
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return fmt.Errorf("empty the directory of copies: %w", sandbox.DiskError(err, "the disk of "+dir))
	}
	return nil
}
