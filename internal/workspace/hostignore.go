package workspace

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/ignore"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of what is read to learn what a directory ignores.
const (
	maxIgnoreFile = 1 << 20   // bytes of a .gitignore
	maxIgnoreText = 4 << 20   // bytes of all
	maxIndexFile  = 256 << 20 // bytes of an index
	maxIgnoreDirs = 200_000   // directories that are looked into
)

// IgnoreRules are what a base ignores.
type IgnoreRules struct {
	Filter sandbox.ChangesFilter // Ignore, Prefix and Tracked
	// Indexed are the paths that git tracks, as far as an index could be read.
	Indexed []string
	// Notes say what could not be read, each in a line that is safe to print.
	Notes []string
}

// IgnoreRules reads what the base ignores: .gitignore in every directory that is not
// itself ignored, and info/exclude of its repositories, which a rule from outside reaches
// only as a whole. Where the base lies in a repository, the files on the way to its top
// count, unless they ignore the base itself. Without a repository a .gitignore counts all the same.
// What an index names is never ignored. What core.excludesFile names has no part.
//
// These are the rules of the host's directory alone: what a sandbox writes into its
// .gitignore counts once it was applied. Links are not followed.
func (b *Base) IgnoreRules(ctx context.Context) (*IgnoreRules, error) {
	r := &rulesReader{ctx: ctx, base: b, out: &IgnoreRules{}}
	r.outside()
	if err := r.dir("."); err != nil {
		return nil, err
	}
	r.out.Filter.Ignore, r.out.Filter.Prefix = r.lines, r.prefix
	list := ignore.NewList(r.lines, r.prefix, nil)
	for _, p := range r.out.Indexed {
		if list.Has(p, false) {
			r.out.Filter.Tracked = append(r.out.Filter.Tracked, p)
		}
	}
	if err := CheckFilter(r.out.Filter); err != nil {
		r.out.Filter = sandbox.ChangesFilter{}
		r.note("there are too many rules, or files that are tracked and ignored: nothing is ignored")
	}
	return r.out, nil
}

type rulesReader struct {
	ctx    context.Context
	base   *Base
	out    *IgnoreRules
	prefix string // of the base in its repository
	lines  []string
	list   *ignore.List // of lines; nil: not made yet
	text   int
	dirs   int
}

// outside reads what a repository says in which the base lies.
func (r *rulesReader) outside() {
	if isRepository(r.base.dir) {
		return
	}
	at, err := filepath.Abs(r.base.name)
	if err != nil {
		return
	}
	var above []string // nearest first
	for dir := filepath.Dir(at); ; dir = filepath.Dir(dir) {
		above = append(above, dir)
		d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return
		}
		top := isRepository(d)
		d.Close()
		if top {
			r.above(above, at)
			return
		}
		if dir == "/" {
			return
		}
	}
}

// above reads what is on the way from the top of a repository to the base.
func (r *rulesReader) above(dirs []string, at string) {
	top := dirs[len(dirs)-1]
	prefix, err := filepath.Rel(top, at)
	if err != nil || checkPath(prefix) != nil {
		return
	}
	r.prefix = prefix
	d, err := os.OpenFile(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer d.Close()
	r.repository(d, top, "", prefix)
	for i := len(dirs) - 1; i >= 0; i-- {
		rel, err := filepath.Rel(top, dirs[i])
		if err != nil {
			return
		}
		if text, err := readSmall(d, path.Join(rel, ".gitignore"), maxIgnoreFile); err == nil {
			r.add(strings.TrimPrefix(rel, "."), text)
		}
	}
	if ignore.NewList(r.lines, "", nil).Has(prefix, true) { // it is no part of that repository
		*r = rulesReader{ctx: r.ctx, base: r.base, out: &IgnoreRules{}}
	}
}

// dir reads the rules of a directory of the base and of those below it.
func (r *rulesReader) dir(rel string) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	if r.dirs++; r.dirs > maxIgnoreDirs {
		if r.dirs == maxIgnoreDirs+1 {
			r.note("not every .gitignore was looked for: there are too many directories")
		}
		return nil
	}
	d, err := openBeneath(r.base.dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil // it is gone, another mount, or not to be read: what is in it is not ignored
	}
	defer d.Close()
	if isRepository(d) {
		if rel != "." { // rules from outside don't reach in
			r.add(r.place(rel), "!**\n")
		}
		r.repository(d, filepath.Join(r.base.name, rel), r.place(rel), "")
	}
	names, err := d.ReadDir(-1)
	if err != nil {
		return nil // as above
	}
	for _, n := range names {
		if n.Name() != ".gitignore" {
			continue
		}
		text, err := readSmall(d, ".gitignore", maxIgnoreFile)
		if err != nil && !errors.Is(err, unix.ELOOP) {
			r.note(joinPath(rel, ".gitignore") + ": it can't be read, and does not count")
		}
		r.add(r.place(rel), text)
	}
	for _, n := range names {
		p := joinPath(rel, n.Name())
		if !n.IsDir() || n.Name() == ".git" || r.ignores(p) {
			continue
		}
		if err := r.dir(p); err != nil {
			return err
		}
	}
	return nil
}

// place is a directory of the base from where lines are compared: the top of the repository, or the
// base.
func (r *rulesReader) place(rel string) string {
	if rel = path.Join(r.prefix, rel); rel == "." {
		return ""
	}
	return rel
}

func (r *rulesReader) ignores(rel string) bool {
	if r.list == nil {
		r.list = ignore.NewList(r.lines, r.prefix, nil)
	}
	return r.list.Enter(rel, true, false) // what is around it is not ignored
}

// add adds the lines of a file in directory dir.
func (r *rulesReader) add(dir, text string) {
	if text == "" {
		return
	}
	if r.text += len(text); r.text > maxIgnoreText {
		r.note("not every .gitignore counts: they are too long")
		return
	}
	for _, line := range ignore.Lines(text) {
		if p, ok := ignore.ParseLine(line); ok {
			r.lines = append(r.lines, p.Within(dir))
		}
	}
	r.list = nil
}

func (r *rulesReader) note(text string) {
	if len(r.out.Notes) < 10 {
		r.out.Notes = append(r.out.Notes, text)
	}
}

// repository reads what the repository in directory d, whose path is at, says beside its
// .gitignore. It lies at place, and below is the part of it that the base is; "": all of it is in the base.
func (r *rulesReader) repository(d *os.File, at, place, below string) {
	dir, common := gitDirs(d, at)
	if dir == nil {
		return
	}
	defer dir.Close()
	defer common.Close()
	if text, err := readSmall(common, "info/exclude", maxIgnoreFile); err == nil {
		r.add(place, text)
	}
	text, err := readSmall(dir, "index", maxIndexFile)
	if errors.Is(err, unix.ENOENT) {
		return
	}
	var paths []string
	if err == nil {
		paths, err = ignore.IndexPaths([]byte(text))
	}
	if err != nil {
		r.note("the index of a git repository can't be read: what it tracks may be among the ignored")
		return
	}
	inBase := strings.TrimPrefix(strings.TrimPrefix(place, r.prefix), "/")
	for _, p := range paths {
		switch rest, ok := strings.CutPrefix(p, below+"/"); {
		case below == "":
			p = path.Join(inBase, p)
		case ok:
			p = rest
		default:
			continue
		}
		if checkPath(p) == nil {
			r.out.Indexed = append(r.out.Indexed, p)
		}
	}
}

// isRepository reports whether directory d has a .git.
func isRepository(d *os.File) bool {
	_, err := statAt(d, ".git")
	return err == nil
}

// gitDirs returns the directory of the repository in d, whose path is given, and the one that it shares with other work trees,
// or nils. A .git that is a file says where they are.
func gitDirs(d *os.File, path string) (dir, common *os.File) {
	dir, err := openDirAt(d, ".git")
	if err != nil {
		text, err := readSmall(d, ".git", maxPath)
		at, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
		if err != nil || !ok {
			return nil, nil
		}
		if !filepath.IsAbs(at) {
			at = filepath.Join(path, at)
		}
		if dir, err = os.OpenFile(at, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			return nil, nil
		}
		if text, err = readSmall(dir, "commondir", maxPath); err == nil {
			if common, err = os.OpenFile(filepath.Join(at, strings.TrimSpace(text)), unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
				return dir, common
			}
		}
	}
	if common, err = openDirAt(dir, "."); err != nil {
		dir.Close()
		return nil, nil
	}
	return dir, common
}

// readSmall reads a regular file beneath d, to which no link leads.
func readSmall(d *os.File, rel string, limit int64) (string, error) {
	parent, name := splitPath(rel)
	in, err := openBeneath(d, parent, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer in.Close()
	f, st, err := openFileAt(in, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st.Size > limit {
		return "", unix.EFBIG
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return string(b), err
}
