package repository

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// belongs refuses a git directory outside the tree dir that does not say itself that the
// tree is its own: what .git names is the word of the tree alone.
func (r *Repository) belongs(dir string) error {
	dot := filepath.Join(dir, ".git")
	switch {
	case within(r.GitDir, dir):
		return fmt.Errorf("%s names %s, which is in the tree, in a way that leads out of it: let it be a file with the line gitdir: ./PATH", dot, r.GitDir)
	case !strict(r.GitDir, r.CommonDir, dir):
		return fmt.Errorf("%s names %s, which is not taken for a repository: its HEAD, objects and refs must be there, no links, and yours or root's", dot, r.GitDir)
	case r.CommonDir != r.GitDir:
		back := firstLine(filepath.Join(r.GitDir, "gitdir"))
		if filepath.Dir(r.GitDir) != filepath.Join(r.CommonDir, "worktrees") || back == "" || !same(filepath.Dir(from(r.GitDir, back)), dir) {
			return fmt.Errorf("%s names the repository %s, which has no worktree here: was it moved? git worktree repair mends that, run in the repository", dot, r.CommonDir)
		}
	default:
		tree := ""
		for _, name := range []string{"config", "config.worktree"} {
			if v := configValue(readText(filepath.Join(r.GitDir, name)), "core.worktree"); v != "" {
				tree = v
			}
		}
		if tree == "" || !same(from(r.GitDir, tree), dir) {
			return fmt.Errorf("%s names the repository %s, which does not say that this is its tree: if it is yours, let its core.worktree say so, by git config core.worktree %s", dot, r.GitDir, dir)
		}
	}
	return nil
}

// strict reports whether dir is a git directory beyond doubt, with shared files in common:
// nothing of it is a link, and it belongs to the caller, to root or to who owns the tree.
func strict(dir, common, tree string) bool {
	for p, is := range map[string]func(fs.FileMode) bool{
		filepath.Join(dir, "HEAD"): fs.FileMode.IsRegular, dir: fs.FileMode.IsDir, common: fs.FileMode.IsDir,
		filepath.Join(common, "objects"): fs.FileMode.IsDir, filepath.Join(common, "refs"): fs.FileMode.IsDir,
	} {
		if fi, err := os.Lstat(p); err != nil || !is(fi.Mode()) || !ours(p, tree) {
			return false
		}
	}
	return true
}

// ours reports whether p belongs to the caller, to root or to who owns the tree; what is
// not there is nobody else's.
func ours(p, tree string) bool {
	fi, err := os.Lstat(p)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	trusted := []uint32{0, uint32(os.Geteuid())} //nolint:gosec // a uid has 32 bits
	if t, err := os.Stat(tree); err == nil {
		trusted = append(trusted, t.Sys().(*syscall.Stat_t).Uid)
	}
	return slices.Contains(trusted, fi.Sys().(*syscall.Stat_t).Uid)
}

// same reports whether two paths lead to one file.
func same(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// borrowed notes the directories of objects that this repository borrows from. What is no
// repository's objects is refused: it may be anything that the caller can read.
func (r *Repository) borrowed() error {
	first := shared{filepath.Join(r.CommonDir, "objects"), Inside + "/.git/objects"}
	if r.Outside {
		first.inside = objectsInside
	} else if rel, err := filepath.Rel(r.Top, first.host); err == nil {
		first.inside = filepath.Join(Inside, rel)
	}
	seen := []shared{first}
	for i := 0; i < len(seen); i++ {
		list := filepath.Join(seen[i].host, "info/alternates")
		for line := range strings.Lines(readText(list)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			host, err := filepath.EvalSymlinks(from(seen[i].host, line))
			other := shared{host, from(seen[i].inside, line)}
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), slices.Contains(seen, other): // git passes over it as well
			case len(seen) > maxAlternates:
				r.notes = append(r.notes, fmt.Sprintf("the repository borrows objects of more than %d others: git inside will miss some", maxAlternates))
				return nil
			case err != nil || !r.lends(host):
				return fmt.Errorf("%s names %s, which is not taken for the objects of a repository: git repack -a -d makes the repository whole, and then that file can go", list, from(seen[i].host, line))
			case within(other.inside, Inside): // the view shows it
				seen = append(seen, other)
			case within(host, r.Top), !mountable(other.inside):
				r.notes = append(r.notes, fmt.Sprintf("the repository borrows objects of %s, which can't be shown inside: git will miss them; git repack -a -d makes it whole", host))
			default:
				seen = append(seen, other)
				r.alternate = append(r.alternate, other)
			}
		}
	}
	return nil
}

// maxObjectNames is how much an objects directory has in it at most: 256 directories, and few more.
const maxObjectNames = 512

// objectName matches what git has in an objects directory that is no directory, or not for long.
var objectName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(tmp_obj.*|incoming-.*|maintenance\.lock|loose-object-idx)$`)
})

// objectDir matches the directories that git has there.
var objectDir = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(pack|info|[0-9a-f]{2})$`) })

// lends reports whether dir, which is without links, is the objects directory of a
// repository and has nothing else in it.
func (r *Repository) lends(dir string) bool {
	git := filepath.Dir(dir)
	if filepath.Base(dir) != "objects" || !strict(git, git, r.Top) {
		return false
	}
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	entries, err := f.ReadDir(maxObjectNames)
	if err != nil && !errors.Is(err, io.EOF) || len(entries) == maxObjectNames {
		return false
	}
	for _, e := range entries {
		if !objectName().MatchString(e.Name()) && !(e.IsDir() && objectDir().MatchString(e.Name())) {
			return false
		}
	}
	return true
}

// mountable reports whether a sandbox can show a directory of the host at that path, for
// its user to read.
func mountable(p string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	own := []string{"", "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "usr"}
	return !slices.Contains(own, top) && !strings.ContainsAny(p, ":\n")
}
