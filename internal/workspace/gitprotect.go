package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Protect is a path that a wall covers with a mount of its own when the agent
// gets the real tree: a mount can't be renamed or removed from inside.
type Protect struct {
	Path     string // relative to the root; no component is a symlink
	ReadOnly bool   // else the mount only pins the path
	Dir      bool
	// Shallow says that ReadOnly is the directory's own: what is protected
	// below it and not ReadOnly stays writable.
	Shallow bool
	// Missing says that nothing is there yet, and that git would obey what
	// the agent puts there. The wall makes it on the host before it mounts: a
	// directory, or a file that holds Content. All of these leave the
	// repository as it is for git.
	Missing bool
	Content string
}

// maxScan bounds the entries that ProtectedGitPaths looks at.
const maxScan = 4 << 20

// ProtectedGitPaths returns what of the repositories at and below root git on
// the host would execute or obey, in the order in which to mount it: parents
// first. That is, of each repository (a .git directory, a bare root, a
// submodule's directory in .git/modules, what a .git file names in the tree):
// config, config.worktree, hooks, info, commondir, objects/info/alternates, of
// each linked worktree its commondir, gitdir and config.worktree, any .git
// file, and what config names inside the tree by core.hooksPath and
// include.path. In modules and worktrees no repository can be added, nor where
// .gitmodules has a submodule that is not there. A .git directory itself is
// pinned, and so is each directory that leads to any of these.
//
// Where one of these is a symlink it can't be protected, since a mount would
// cover its target and leave the link: that is an Unsupported error. New
// repositories that the agent makes elsewhere in the tree are not prevented.
func ProtectedGitPaths(root *os.File) ([]Protect, error) {
	g := &gitScan{base: newBase(root), seen: map[string]int{}, done: map[string]bool{}, read: map[[2]string]bool{}}
	defer g.base.forget() // root stays the caller's
	var err error
	if g.top, err = os.Readlink(fdPath(root)); err != nil {
		return nil, err
	}
	err = g.scan(".", 0)
	if err == nil && g.isRepository(".") {
		err = g.repository(".", ".")
	}
	if err != nil {
		if _, ok := errors.AsType[*sandbox.Error](err); ok {
			return nil, err
		}
		return nil, fmt.Errorf("look for git repositories: %w", err)
	}
	slices.SortFunc(g.out, func(a, b Protect) int { return comparePaths(a.Path, b.Path) })
	return g.out, nil
}

type gitScan struct {
	base    *Base
	top     string // the root's own path, for what git names by its whole path
	out     []Protect
	seen    map[string]int     // path → its place in out
	done    map[string]bool    // repositories
	read    map[[2]string]bool // configuration files, each with its worktree
	scanned int
}

// scan looks for .git in every directory below dir.
func (g *gitScan) scan(dir string, depth int) error {
	if depth > MaxDepth {
		return nil
	}
	d, err := g.base.openDir(dir)
	if err != nil {
		if gone(err) || errors.Is(err, os.ErrPermission) || errors.Is(err, errMount) {
			return nil
		}
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	if g.scanned += len(entries); g.scanned > maxScan {
		return sandbox.Errorf(sandbox.Exhausted, "look for git repositories: more than %d files", maxScan).
			WithHint("mount a smaller directory, or use a copy-on-write view: leave out :rw")
	}
	for _, e := range entries {
		p := joinPath(dir, e.Name())
		switch {
		case foldName(e.Name()) == ".git":
			err = g.dotGit(dir, p)
		case e.IsDir():
			err = g.scan(p, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *gitScan) dotGit(worktree, p string) error {
	st, err := g.base.stat(p)
	if err != nil || st == nil {
		return err
	}
	switch kind, _ := kindOf(st); kind {
	case Dir:
		g.add(Protect{Path: p, Dir: true})
		err = g.repository(worktree, p)
	case File:
		g.add(Protect{Path: p, ReadOnly: true})
		err = g.named(worktree, p)
	default:
		return unprotectable(p)
	}
	if err != nil {
		return err
	}
	return g.absent(worktree)
}

func unprotectable(p string) error {
	return sandbox.Errorf(sandbox.Unsupported, "%s is a symbolic link: git's configuration can't be protected", term.Escape(p)).
		WithHint("use a copy-on-write view: leave out :rw")
}

// add protects p, and pins what leads to it. Of two ways to protect a path the
// stronger one counts.
func (g *gitScan) add(p Protect) {
	if i, ok := g.seen[p.Path]; ok {
		was := &g.out[i]
		was.Missing = was.Missing || p.Missing
		if p.ReadOnly {
			was.ReadOnly, was.Shallow = true, p.Shallow && (was.Shallow || !was.ReadOnly)
		}
		return
	}
	g.seen[p.Path] = len(g.out)
	g.out = append(g.out, p)
	if up, _ := splitPath(p.Path); up != "." {
		g.add(Protect{Path: up, Dir: true})
	}
}

// isRepository reports whether git would take dir for a repository.
func (g *gitScan) isRepository(dir string) bool {
	bits := 0
	for _, n := range bareNames {
		if st, err := g.base.stat(joinPath(dir, n.name)); err == nil && st != nil {
			bits |= n.bit
		}
	}
	return isBare(bits)
}

// repository protects one git directory and those of its submodules.
func (g *gitScan) repository(worktree, dir string) error {
	for _, name := range []string{"config", "config.worktree"} {
		if err := g.configured(worktree, joinPath(dir, name)); err != nil {
			return err
		}
	}
	if g.done[dir] {
		return nil
	}
	g.done[dir] = true
	for _, p := range []Protect{
		{Path: "config"},
		{Path: "config.worktree"},
		{Path: "hooks", Dir: true},
		{Path: "info", Dir: true},
		// git reads config and hooks from where this file points, if there
		// is one; "." is where they are anyway.
		{Path: "commondir", Content: ".\n"},
	} {
		p.Path, p.ReadOnly = joinPath(dir, p.Path), true
		if err := g.protect(p); err != nil {
			return err
		}
	}
	if err := g.within(joinPath(dir, "objects/info/alternates"), false); err != nil {
		return err
	}
	if err := g.worktrees(joinPath(dir, "worktrees")); err != nil {
		return err
	}
	return g.modules(joinPath(dir, "modules"), 0)
}

// protect adds p as what is there, or as missing.
func (g *gitScan) protect(p Protect) error {
	st, err := g.base.stat(p.Path)
	if err != nil {
		return err
	}
	if st == nil {
		p.Missing = true
		g.add(p)
		return nil
	}
	switch kind, _ := kindOf(st); {
	case kind == Symlink:
		return unprotectable(p.Path)
	case kind == Dir:
		p.Dir = true
	default:
		p.Dir = false
	}
	p.Content = ""
	g.add(p)
	return nil
}

// children returns the names of the directories in dir, none if there is none.
func (g *gitScan) children(dir string) ([]string, error) {
	st, err := g.base.stat(dir)
	if err != nil || st == nil {
		return nil, err
	}
	switch kind, _ := kindOf(st); kind {
	case Symlink:
		return nil, unprotectable(dir)
	case Dir:
	default:
		return nil, nil
	}
	d, err := g.base.openDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	var names []string
	for _, e := range entries {
		switch {
		case e.IsDir():
			names = append(names, e.Name())
		case e.Type()&os.ModeSymlink != 0:
			return nil, unprotectable(joinPath(dir, e.Name()))
		}
	}
	return names, err
}

// closed protects a directory in which nothing is to be added.
func (g *gitScan) closed(dir string) error {
	return g.protect(Protect{Path: dir, Dir: true, ReadOnly: true, Shallow: true})
}

// worktrees protects what a repository has of its linked worktrees, and of
// their submodules.
func (g *gitScan) worktrees(dir string) error {
	if err := g.closed(dir); err != nil {
		return err
	}
	names, err := g.children(dir)
	for _, name := range names {
		if err := g.modules(path.Join(dir, name, "modules"), 0); err != nil {
			return err
		}
		for _, file := range []string{"commondir", "gitdir", "config.worktree"} {
			if err := g.protect(Protect{Path: path.Join(dir, name, file), ReadOnly: true}); err != nil {
				return err
			}
		}
	}
	return err
}

// modules protects the submodules' directories: a submodule's name may have
// slashes, so that they lie at any depth.
func (g *gitScan) modules(dir string, depth int) error {
	if depth > MaxDepth {
		return nil
	}
	if err := g.closed(dir); err != nil {
		return err
	}
	names, err := g.children(dir)
	for _, name := range names {
		p := joinPath(dir, name)
		if g.isRepository(p) {
			// Pinned, so that it can't be swapped for another.
			g.add(Protect{Path: p, Dir: true})
			err = g.repository(g.worktreeOf(p), p)
		} else {
			err = g.modules(p, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return err
}
