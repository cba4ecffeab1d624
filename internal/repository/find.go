// Package repository finds the git repository that a directory belongs to, and says
// what a sandbox needs for git to work in a view of it: also where the repository's
// own files lie outside the tree, as those of a linked worktree, of a submodule and
// of a separate git directory do.
//
// It reads files by what git documents of them, with the caller's rights, and asks
// git itself for nothing but the user's name, where there is a git: no command of it
// that runs hooks, filters or monitors. It writes nothing.
//
// What lies in a tree may be the work of who means harm, and decides on nothing outside.
// A .git that names a repository elsewhere is refused where that repository does not say
// itself that the tree is its own, and objects of others are taken from what is a
// repository's alone. So is a .git that names none, and neither a home nor the root
// directory is taken for the tree of a directory below it, nor what a stranger made of a
// directory above.
package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Inside is where a sandbox shows the tree.
const Inside = "/workspace"

// Repository is what a directory belongs to.
type Repository struct {
	Top   string // the tree's highest directory, without links; without a repository the directory itself
	Below string // where in Top the directory is, with slashes; "": it is Top
	// GitDir and CommonDir are where the repository's files lie, without links; "": there
	// is no repository. They differ for a linked worktree alone.
	GitDir, CommonDir string
	// Outside says that a view of Top does not show them where .git says.
	Outside bool

	Name, Email string // the user's, as git says for this repository; "": it says none
	Branch      string // "": none, as of a commit that was checked out
	Commits     bool   // HEAD is a commit
	Files       int    // how many the index has
	// Partial says that objects are fetched as they are needed: no commits can be taken
	// into it that were made elsewhere.
	Partial bool

	named     string   // where .git leads in a sandbox, if it is a file or a link
	alternate []shared // objects of others
	notes     []string
}

// shared is a directory of objects, and where a sandbox is to show it.
type shared struct{ host, inside string }

// Is reports whether there is a repository.
func (r *Repository) Is() bool { return r.GitDir != "" }

// Cwd is the directory inside a sandbox that shows Top.
func (r *Repository) Cwd() string { return path.Join(Inside, r.Below) }

// Find returns what dir belongs to. Without a repository that is dir itself.
func Find(ctx context.Context, dir string) (*Repository, error) {
	start, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	r := &Repository{Top: start}
	if err := r.discover(start); err != nil {
		return nil, err
	}
	if r.Is() {
		if err := r.read(); err != nil {
			return nil, fmt.Errorf("read the repository %s: %w", r.Top, err)
		}
	}
	r.identify(ctx)
	return r, nil
}

// resolve returns dir by its whole path without links.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the current directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(real)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return real, err
}

// discover looks for a repository in start and above it, on one file system, as git does.
func (r *Repository) discover(start string) error {
	home := ""
	if h := os.Getenv("HOME"); h != "" {
		home, _ = resolve(h)
	}
	device, err := deviceOf(start)
	if err != nil {
		return err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if dir != start && (dir == home || dir == "/") {
			return nil // a repository of somebody's whole home, and not of this directory
		}
		if dir != start && !ours(filepath.Join(dir, ".git"), start) {
			continue // git takes no stranger's either
		}
		if now, err := deviceOf(dir); err != nil || now != device {
			return nil //nolint:nilerr // who can't look there has no repository there
		}
		found, err := r.at(dir)
		switch {
		case err != nil:
			return err
		case found:
			r.Top = dir
			below, err := filepath.Rel(dir, start)
			if err == nil && below != "." {
				r.Below = filepath.ToSlash(below)
			}
			return err
		case isGitDir(dir, dir), dir == "/": // a bare repository has no tree
			return nil
		}
	}
}

func deviceOf(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	}
	return st.Dev, nil
}

// at reports whether dir is the top of a tree, and notes where its repository is.
func (r *Repository) at(dir string) (bool, error) {
	dot := filepath.Join(dir, ".git")
	fi, err := os.Lstat(dot)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return false, nil
	case err != nil:
		return false, err
	case fi.IsDir():
		if !isGitDir(dot, dot) {
			return false, nil
		}
		r.GitDir, r.CommonDir = dot, dot
		return true, nil
	}
	named, relative, err := gitFile(dot)
	if err != nil {
		return false, err
	}
	r.named = filepath.Clean(named)
	if rel, err := filepath.Rel(dir, named); relative && err == nil {
		r.named = path.Join(Inside, filepath.ToSlash(rel))
	}
	r.GitDir, err = filepath.EvalSymlinks(named)
	if err != nil {
		return false, notThere(dot, named)
	}
	r.CommonDir = r.GitDir
	if common := firstLine(filepath.Join(r.GitDir, "commondir")); common != "" {
		if r.CommonDir, err = filepath.EvalSymlinks(from(r.GitDir, common)); err != nil {
			return false, notThere(dot, named)
		}
	}
	if !isGitDir(r.GitDir, r.CommonDir) {
		return false, notThere(dot, named)
	}
	r.Outside = !relative || !within(r.GitDir, dir) || !within(r.CommonDir, dir)
	if r.Outside {
		return true, r.belongs(dir)
	}
	return true, nil
}

// gitFile returns which directory .git names: by a line of text, or as a link.
func gitFile(dot string) (dir string, relative bool, err error) {
	if target, err := os.Readlink(dot); err == nil {
		if fi, err := os.Stat(dot); err != nil || fi.IsDir() {
			return from(filepath.Dir(dot), target), !filepath.IsAbs(target), nil
		}
	}
	text, ok := strings.CutPrefix(firstLine(dot), "gitdir:")
	if text = strings.TrimSpace(text); !ok || text == "" {
		return "", false, fmt.Errorf("%s names no repository: git would say the same", dot)
	}
	return from(filepath.Dir(dot), text), !filepath.IsAbs(text), nil
}

func notThere(dot, named string) error {
	return fmt.Errorf("%s names %s, which is no repository: was it moved? git worktree repair mends that of a worktree", dot, named)
}

// isGitDir reports whether git would take dir for a repository whose shared files are in
// common.
func isGitDir(dir, common string) bool {
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if fi, err := os.Stat(filepath.Join(common, name)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// from is p as dir has it.
func from(dir, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

// within reports whether p is dir or lies below it. Both are without links.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
