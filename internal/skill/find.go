package skill

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Limits of looking for packages and of reading them.
const (
	maxText     = 1 << 20  // bytes of a text file, a SKILL.md too
	maxSkills   = 1000     // packages
	maxSeen     = 10_000   // entries looked at
	maxListText = 16 << 20 // bytes of text of a listing
	listDepth   = 6        // directories below a namespace
	scanDepth   = 2        // directories below one that was named
)

var entryNames = []string{"SKILL.md", "skill.md"}

var pythonNames = []string{"requirements.txt", "pyproject.toml", "setup.py", "setup.cfg"}

// found is a package's directory, and its entry file.
type found struct{ dir, entry string }

// search bounds a search for packages.
type search struct {
	depth, skills, entries int
	skip                   func(name string) bool // of the top's entries
}

// find looks for packages below dir, the nearest first, without entering one.
// No link is followed to a directory.
func find(dir *os.Root, q search) ([]found, error) {
	type place struct {
		rel   string
		depth int
	}
	var out []found
	seen := 0
	for queue := []place{{".", 0}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if entry := entryOf(dir, at.rel); entry != "" {
			if len(out) == q.skills {
				return nil, sandbox.Errorf(sandbox.Exhausted, "Skill discovery exceeded the package limit: more than %d", q.skills)
			}
			out = append(out, found{at.rel, entry})
			continue
		}
		if at.depth >= q.depth {
			continue
		}
		names, n, err := subdirs(dir, at.rel, q.entries-seen)
		if err != nil {
			return nil, err
		}
		seen += n
		for _, name := range names {
			if at.rel != "." || q.skip == nil || !q.skip(name) {
				queue = append(queue, place{path.Join(at.rel, name), at.depth + 1})
			}
		}
	}
	return out, nil
}

// subdirs lists the directories of a directory, and counts all its entries,
// of which there may be limit. A directory that can't be read has none.
func subdirs(dir *os.Root, rel string, limit int) ([]string, int, error) {
	f, err := dir.OpenFile(rel, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, nil
	}
	defer f.Close()
	var names []string
	for n := 0; ; {
		entries, err := f.ReadDir(256)
		if n += len(entries); n > limit {
			return nil, n, sandbox.Errorf(sandbox.Exhausted, "Skill discovery exceeded the entry limit: more than %d", maxSeen)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if err != nil || len(entries) == 0 {
			slices.Sort(names)
			return names, n, nil
		}
	}
}

// entryOf returns the name of a package's entry file, or "".
func entryOf(dir *os.Root, rel string) string {
	for _, name := range entryNames {
		if st, err := dir.Stat(path.Join(rel, name)); err == nil && st.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// load reads a package; shown is its directory as callers know it.
func load(dir *os.Root, f found, shown string) (sessions.Skill, error) {
	pkg, err := openBelow(dir, f.dir)
	if err != nil {
		return sessions.Skill{}, err
	}
	defer pkg.Close()
	text, st, err := readText(pkg, f.entry, "Skill entry file "+f.entry)
	if err != nil {
		return sessions.Skill{}, err
	}
	meta, instructions, err := ParseFrontMatter(text)
	if err != nil {
		return sessions.Skill{}, err
	}
	name, err := checkName(cmp.Or(meta.Name, path.Base(shown)))
	if err != nil {
		return sessions.Skill{}, err
	}
	created := st.ModTime()
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		created = time.Unix(sys.Ctim.Unix())
	}
	return sessions.Skill{
		Name:          name,
		DisplayName:   strings.TrimSpace(cmp.Or(meta.DisplayName, name)),
		Description:   strings.TrimSpace(meta.Description),
		Instructions:  instructions,
		PackageRoot:   shown,
		EntryFile:     f.entry,
		PythonProject: python(pkg),
		CreatedAt:     stamp(created),
		UpdatedAt:     stamp(st.ModTime()),
	}, nil
}

// stamp is a time as Python's isoformat writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// python reports whether a package says what it needs of Python, or has it.
func python(pkg *os.Root) bool {
	for _, name := range pythonNames {
		if st, err := pkg.Stat(name); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	st, err := pkg.Stat(".venv")
	return err == nil && st.IsDir()
}

// readText reads a text file; what names it in messages.
func readText(dir *os.Root, rel, what string) (string, fs.FileInfo, error) {
	f, err := dir.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	if !st.Mode().IsRegular() {
		return "", nil, invalid("%s is no file", what)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case err != nil:
		return "", nil, err
	case len(text) > maxText:
		return "", nil, invalid("%s exceeds the %d-byte limit", what, maxText)
	case !utf8.Valid(text):
		return "", nil, invalid("%s is not valid UTF-8 text", what)
	}
	return string(text), st, nil
}

// missing reports whether a path leads nowhere in its directory, or out of it.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
