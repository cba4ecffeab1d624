package skill

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	listFiles    = 200    // entries of a listing, where nothing else is asked for
	maxListFiles = 1000   // entries of a listing
	maxDirectory = 10_000 // entries of a directory that can be listed
	maxPath      = 1024   // bytes of a file's path in its package
)

// local returns a path below a package, without "." and doubled slashes.
func local(p string) (string, error) {
	p = strings.TrimSpace(p)
	if p == "" {
		p = "."
	}
	switch clean := path.Clean(p); {
	case strings.ContainsRune(p, 0) || !utf8.ValidString(p) || len(p) > maxPath:
		return "", invalid("path %.80q can't be one: it must be UTF-8 without NUL, of at most %d bytes", p, maxPath)
	case p[0] == '/':
		return "", invalid("path must be relative to the skill package root")
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", invalid("path must stay within the skill package root")
	default:
		return clean, nil
	}
}

// inside makes errors of a path that leads out of a package by a link, or
// nowhere, what callers know; what says what was looked for.
func (s *Store) inside(err error, what, rel string) error {
	switch {
	case err == nil:
		return nil
	case missing(err):
		return sandbox.Errorf(sandbox.NotFound, "%s not found: %s", what, describe(rel))
	case strings.Contains(err.Error(), "escapes from parent"):
		return invalid("path must stay within the skill package root")
	}
	return s.fault(strings.ToLower(what)+" "+describe(rel), err)
}

// Files lists a directory of a package, sorted by name.
func (s *Store) Files(ctx context.Context, name string, q FileQuery) (sessions.SkillFiles, error) {
	rel, err := local(q.Path)
	if err != nil {
		return sessions.SkillFiles{}, err
	}
	if q.Max < 0 {
		return sessions.SkillFiles{}, invalid("max_entries must be a positive integer: %d is none", q.Max)
	}
	if q.Max == 0 {
		q.Max = listFiles
	}
	out := sessions.SkillFiles{Skill: sessions.SkillRef{Name: name}, BasePath: rel, Entries: []sessions.SkillFile{}}
	err = s.with(ctx, name, func(dir *os.Root, f found, _ sessions.Skill) error {
		pkg, err := openBelow(dir, f.dir)
		if err != nil {
			return err
		}
		defer pkg.Close()
		entries, err := readDir(pkg, rel)
		if err != nil {
			return s.inside(err, "Skill directory", rel)
		}
		if !q.Hidden {
			entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
		}
		most := min(q.Max, maxListFiles)
		out.Truncated = len(entries) > most
		for _, e := range entries[:min(most, len(entries))] {
			if one, ok := fileOf(pkg, path.Join(rel, e.Name())); ok {
				out.Entries = append(out.Entries, one)
			}
		}
		return nil
	})
	if err != nil {
		return sessions.SkillFiles{}, s.inside(err, "Skill directory", rel)
	}
	return out, nil
}

// fileOf describes an entry; a link is what it leads to in the package, and
// one that leads nowhere or out is a file of no size. One that vanished
// meanwhile is none.
func fileOf(pkg *os.Root, rel string) (sessions.SkillFile, bool) {
	e := sessions.SkillFile{Name: path.Base(rel), Path: strings.ToValidUTF8(rel, "\ufffd")}
	e.Name = strings.ToValidUTF8(e.Name, "\ufffd")
	st, err := pkg.Stat(rel)
	if err != nil {
		if st, err = pkg.Lstat(rel); err != nil {
			return e, false
		}
	}
	if e.IsDir = st.IsDir(); !e.IsDir {
		size := st.Size()
		e.Size = &size
	}
	return e, true
}

func readDir(pkg *os.Root, rel string) ([]fs.DirEntry, error) {
	f, err := pkg.OpenFile(rel, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []fs.DirEntry
	for {
		some, err := f.ReadDir(1024)
		if all = append(all, some...); len(all) > maxDirectory {
			return nil, sandbox.Errorf(sandbox.Exhausted, "Skill directory exceeds the entry limit: more than %d", maxDirectory)
		}
		if err != nil || len(some) == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// Read returns a text file of a package.
func (s *Store) Read(ctx context.Context, name, file string) (sessions.SkillContent, error) {
	rel, err := local(file)
	if err != nil {
		return sessions.SkillContent{}, err
	}
	out := sessions.SkillContent{Skill: sessions.SkillRef{Name: name}, Path: rel}
	err = s.with(ctx, name, func(dir *os.Root, f found, _ sessions.Skill) error {
		pkg, err := openBelow(dir, f.dir)
		if err != nil {
			return err
		}
		defer pkg.Close()
		if st, err := pkg.Stat(rel); err == nil && !st.Mode().IsRegular() {
			return sandbox.Errorf(sandbox.NotFound, "Skill file not found: %s is no file", describe(rel))
		}
		out.Content, _, err = readText(pkg, rel, "Skill file "+describe(rel))
		return s.inside(err, "Skill file", rel)
	})
	if err != nil {
		return sessions.SkillContent{}, s.inside(err, "Skill file", rel)
	}
	return out, nil
}

// Write makes or replaces a text file of a package, and the directories
// above it. A reader sees the old one or the new one, whole.
func (s *Store) Write(ctx context.Context, name, file, content string) (sessions.SkillWritten, error) {
	rel, err := local(file)
	switch {
	case err != nil:
		return sessions.SkillWritten{}, err
	case rel == ".":
		return sessions.SkillWritten{}, invalid("path must name a file below the skill package root")
	case len(content) > maxText:
		return sessions.SkillWritten{}, invalid("Skill file %s exceeds the %d-byte limit", describe(rel), maxText)
	case !utf8.ValidString(content):
		return sessions.SkillWritten{}, invalid("Skill file %s is not valid UTF-8 text", describe(rel))
	}
	err = s.change(ctx, func(dir *os.Root) error {
		f, _, err := s.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		pkg, err := openBelow(dir, f.dir)
		if err != nil {
			return err
		}
		defer pkg.Close()
		return s.write(dir, pkg, rel, content)
	})
	if err != nil {
		return sessions.SkillWritten{}, s.inside(err, "Skill file", rel)
	}
	return sessions.SkillWritten{Skill: sessions.SkillRef{Name: name}, Path: rel, BytesWritten: int64(len(content))}, nil
}

func (s *Store) write(dir, pkg *os.Root, rel, content string) error {
	if above := path.Dir(rel); above != "." {
		if err := pkg.MkdirAll(above, 0o755); err != nil {
			if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTDIR) {
				return invalid("Skill directory %s can't be made: a part of it is not a directory", describe(above))
			}
			return s.inside(err, "Skill directory", above)
		}
	}
	mode := fs.FileMode(0o644)
	if st, err := pkg.Lstat(rel); err == nil {
		switch {
		case st.IsDir():
			return invalid("Skill file %s is a directory", describe(rel))
		case st.Mode().IsRegular():
			mode = plainMode(st.Mode())
		}
	}
	return s.inside(putFile(dir, pkg, rel, []byte(content), mode), "Skill file", rel)
}

// plainMode is one of the two modes that files of packages have.
func plainMode(m fs.FileMode) fs.FileMode {
	if m&0o111 != 0 {
		return 0o755
	}
	return 0o644
}
