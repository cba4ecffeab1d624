package skill

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// List returns the packages, the newest first. Broken ones are left out.
func (s *Store) List(ctx context.Context) ([]sessions.Skill, error) {
	out := []sessions.Skill{}
	text := 0
	err := s.each(ctx, func(_ *os.Root, _ found, k sessions.Skill) error {
		text += len(k.Name) + len(k.DisplayName) + len(k.Description) + len(k.Instructions) + len(k.PackageRoot)
		if text > maxListText {
			return sandbox.Errorf(sandbox.Exhausted, "Skill listing exceeds the text limit: all together have more than %d bytes", maxListText).
				WithHint("move long instructions from SKILL.md to files beside it")
		}
		out = append(out, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, newest)
	return out, nil
}

func newest(a, b sessions.Skill) int { return strings.Compare(b.UpdatedAt, a.UpdatedAt) }

// Get returns one package, the newest where several have the name.
func (s *Store) Get(ctx context.Context, name string) (sessions.Skill, error) {
	var k sessions.Skill
	err := s.with(ctx, name, func(_ *os.Root, _ found, got sessions.Skill) error {
		k = got
		return nil
	})
	return k, err
}

// each calls fn with each package that is whole.
func (s *Store) each(ctx context.Context, fn func(dir *os.Root, f found, k sessions.Skill) error) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	return s.eachIn(ctx, dir, fn)
}

func (s *Store) eachIn(ctx context.Context, dir *os.Root, fn func(dir *os.Root, f found, k sessions.Skill) error) error {
	all, err := find(dir, search{depth: listDepth, skills: maxSkills, entries: maxSeen, skip: s.reserved})
	if err != nil {
		return err
	}
	for _, f := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k, err := load(dir, f, s.shown(f.dir))
		if err != nil {
			s.keep.log.Debug("a skill is broken", "namespace", s.ns, "directory", f.dir, "error", err)
			continue
		}
		if err := fn(dir, f, k); err != nil {
			return err
		}
	}
	return nil
}

// shown is a directory of the namespace as callers know it.
func (s *Store) shown(rel string) string { return filepath.Join(s.Root(), filepath.FromSlash(rel)) }

// with calls fn with the package of that name.
func (s *Store) with(ctx context.Context, name string, fn func(dir *os.Root, f found, k sessions.Skill) error) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	f, k, err := s.lookup(ctx, dir, name)
	if err != nil {
		return err
	}
	return fn(dir, f, k)
}

// lookup finds the package of that name; none is NotFound.
func (s *Store) lookup(ctx context.Context, dir *os.Root, name string) (found, sessions.Skill, error) {
	var at found
	var best *sessions.Skill
	err := s.eachIn(ctx, dir, func(_ *os.Root, f found, k sessions.Skill) error {
		if k.Name == name && (best == nil || newest(k, *best) < 0) {
			at, best = f, &k
		}
		return nil
	})
	if err != nil {
		return found{}, sessions.Skill{}, err
	}
	if best == nil {
		return found{}, sessions.Skill{}, notFound(name)
	}
	return at, *best, nil
}

// Scan returns the one package in or below a directory of the host, which
// is in the store, or outside where the caller may use what is there.
func (s *Store) Scan(ctx context.Context, path string, out Outside) (sessions.Skill, error) {
	var k sessions.Skill
	err := s.source(path, out, "scan path", func(dir *os.Root, shown string) error {
		f, err := one(dir, shown)
		if err != nil {
			return err
		}
		k, err = load(dir, f, filepath.Join(shown, filepath.FromSlash(f.dir)))
		if missing(err) {
			return invalid("No SKILL.md found in %s", describe(shown))
		}
		return err
	})
	if err != nil {
		return sessions.Skill{}, s.fault("scan "+describe(path), err)
	}
	return k, ctx.Err()
}

// one returns the only package of a directory.
func one(dir *os.Root, shown string) (found, error) {
	all, err := find(dir, search{depth: scanDepth, skills: maxSkills, entries: maxSeen})
	if err != nil {
		return found{}, err
	}
	switch len(all) {
	case 1:
		return all[0], nil
	case 0:
		return found{}, invalid("No SKILL.md found in %s or its subdirectories (max depth: %d)", describe(shown), scanDepth)
	}
	return found{}, invalid("Multiple skill directories found in %s. Please choose a more specific path: %s",
		describe(shown), candidates(all, func(f found) string { return filepath.Join(shown, f.dir) }))
}

// candidates lists what may be chosen from, the first twenty.
func candidates[T any](all []T, name func(T) string) string {
	var list []string
	for i, v := range all {
		if i == 20 {
			list = append(list, "…")
			break
		}
		list = append(list, describe(name(v)))
	}
	return strings.Join(list, ", ")
}

// source opens a directory of the host for what is to be taken in; what says
// which of a request's paths it is.
func (s *Store) source(path string, out Outside, what string, fn func(dir *os.Root, shown string) error) error {
	if !filepath.IsAbs(path) {
		return invalid("%s %.256q must be absolute: a directory of the runtime's host", what, path)
	}
	if rel, ok := s.within(path); ok {
		base, err := s.open()
		if err != nil {
			return err
		}
		defer base.Close()
		if top, _, _ := strings.Cut(rel, "/"); s.reserved(top) {
			return s.outside(what)
		}
		dir, err := openBelow(base, rel)
		if err != nil {
			return noDirectory(path)
		}
		defer dir.Close()
		return fn(dir, s.shown(rel))
	}
	if out == nil {
		return s.outside(what)
	}
	dir, err := out(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(dir, filepath.Clean(path))
}

func (s *Store) outside(what string) error {
	return sandbox.Errorf(sandbox.Denied, "%s must stay within the Workspace skill root", what).
		WithHint("the root is %s", s.Root())
}

func noDirectory(path string) error {
	return sandbox.Errorf(sandbox.NotFound, "Directory does not exist: %s", describe(path))
}
