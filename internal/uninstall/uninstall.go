// Package uninstall takes away what carboy keeps for one user: sandboxes, and all that
// lies in the user's home of carboy.
//
// It removes names that it knows, in the directories that the XDG variables lead to,
// and follows no link. What it does not know it leaves, and names. It may be killed
// at any moment: another one finds the rest.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Wall is what is asked of a sandbox.Backend.
type Wall interface {
	Name() string
	Instances(ctx context.Context) ([]string, error)
	Stop(ctx context.Context, id string) (lost []string, err error)
	Remove(ctx context.Context, id string) error
}

// Gate is what is asked of a sandbox.Gate.
type Gate interface {
	Gates(ctx context.Context) ([]string, error)
	Close(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
}

// Roles work on files that belong to the ids of sandboxes.
type Roles interface {
	// Delete deletes a directory, following no link.
	Delete(ctx context.Context, dir string) error
	// Measure counts what a file or directory takes on the disk, in bytes; after an error,
	// what could be seen.
	Measure(ctx context.Context, dir string) (int64, error)
}

// Home is one user's. The zero values of Roles, Walls and Gate are for where there
// are none: files are then deleted with the user's own rights.
type Home struct {
	Dirs  home.Dirs
	Roles Roles
	Walls []Wall
	Gate  Gate
}

// End ends all sandboxes and gates of the home, and with remove deletes what they
// kept. The home must be the caller's alone. It goes on after an error, and returns
// them all.
func (h Home) End(ctx context.Context, remove bool) error {
	var errs []error
	for _, w := range h.Walls {
		ids, err := w.Instances(ctx)
		errs = append(errs, about(err, "list the sandboxes of "+w.Name()))
		for _, id := range ids {
			if _, err := w.Stop(ctx, id); err != nil {
				errs = append(errs, about(err, "stop "+id))
				continue
			}
			if remove {
				errs = append(errs, about(w.Remove(ctx, id), "remove "+id))
			}
		}
	}
	if h.Gate != nil {
		ids, err := h.Gate.Gates(ctx)
		errs = append(errs, about(err, "list the gates"))
		for _, id := range ids {
			err := h.Gate.Close(ctx, id)
			if err == nil && remove {
				err = h.Gate.Remove(ctx, id)
			}
			errs = append(errs, about(err, "end the gate of "+id))
		}
	}
	return errors.Join(errs...)
}

func about(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Delete deletes what the home's directories have of carboy, and them, where nothing
// else is in them. Sandboxes must have ended: see End. It goes on after an error, and
// returns them all. With config, the configuration goes too.
func (h Home) Delete(ctx context.Context, config bool) error {
	var errs []error
	all := places(h.Dirs, config)
	for _, late := range []bool{false, true} {
		for _, p := range all {
			names, err := p.list()
			errs = append(errs, err)
			for _, name := range names {
				if p.owns(name) && last(name) == late {
					errs = append(errs, h.delete(ctx, filepath.Join(p.dir, name)))
				}
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err // the records stay, and the home can be used
		}
	}
	for _, p := range all {
		// One that has something else in it, or is a link, stays.
		if fi, err := os.Lstat(p.dir); err == nil && fi.IsDir() {
			_ = os.Remove(p.dir)
		}
	}
	return nil
}

// delete deletes a name. What it may be a link to stays as it is.
func (h Home) delete(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !fi.IsDir() {
		err = os.Remove(path)
	} else if err == nil && h.Roles != nil {
		err = h.Roles.Delete(ctx, path)
	} else if err == nil {
		err = beneath.RemoveAll(ctx, path)
	}
	if errors.Is(err, fs.ErrPermission) && h.Roles == nil && os.Geteuid() != 0 {
		return sandbox.Errorf(sandbox.Denied, "%s has files of subordinate ids, which can't be deleted without newuidmap and those ids", path).
			WithHint("carboy doctor")
	}
	return err
}

// list returns the names in a place, sorted; none where it is not there.
func (p place) list() ([]string, error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, nil
}
