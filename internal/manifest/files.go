package manifest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Where files lie, in the configuration and in a repository.
const (
	bottlesDir = "bottles"
	agentsDir  = "agents"
	bothFile   = "manifest.json" // bottles and agents in one, of the configuration
	repoDir    = ".carboy"
)

// Bounds.
const (
	maxFile  = 1 << 20
	maxFiles = 1000 // of one directory
	maxNames = 4000 // looked at in one
)

// text is a file that was read, or why it could not be.
type text struct {
	file   string
	origin origin
	bytes  []byte
	err    *Error
	// missing says that err is that there is no such file.
	missing bool
}

// listed are the names in a directory that are of one of kinds, in order.
func listed(dir *os.File, what string, p *problems, kinds ...string) []string {
	names, err := dir.Readdirnames(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err(unread(what, err))
		return nil
	}
	if len(names) > maxNames {
		p.add(Place{File: what}, "", "more than %d names in one directory", maxNames)
		return nil
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.HasPrefix(n, ".") || !slices.Contains(kinds, path.Ext(n))
	})
	if len(names) > maxFiles {
		p.add(Place{File: what}, "", "%d files: %d are the most", len(names), maxFiles)
		return nil
	}
	slices.Sort(names)
	return names
}

// readConfig reads the files of a directory of the configuration, which need not be there.
func readConfig(dir string, p *problems) (list []text) {
	f, err := home.OpenTrustedDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.err(unread(dir, err))
		return nil
	}
	defer f.Close()
	for _, name := range listed(f, dir, p, ".md", ".json") {
		list = append(list, readOwn(filepath.Join(dir, name)))
	}
	return list
}

// readOwn reads a file of the configuration: who writes a bottle says what may be reached, and by
// which keys.
func readOwn(file string) text {
	f, err := home.OpenTrusted(file)
	if err != nil {
		return text{file: file, origin: ofUser, err: unread(file, err), missing: errors.Is(err, fs.ErrNotExist)}
	}
	defer f.Close()
	return readAll(text{file: file, origin: ofUser}, f)
}

// readNamed reads a file that was named, wherever it lies.
func readNamed(file string) text {
	t := text{file: file, origin: ofFile}
	f, err := beneath.OpenInput(file)
	if err != nil {
		t.err = unread(file, err)
		return t
	}
	defer f.Close()
	return readAll(t, f)
}

func readAll(t text, f *os.File) text {
	var err error
	t.bytes, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(t.bytes) > maxFile {
		err = unix.EFBIG
	}
	t.err = unread(t.file, err)
	return t
}

// unread says why a file or directory can't be read; nil where it can.
func unread(file string, err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Place: Place{File: file}, Problem: usage.Pathless(err).Error()}
	link, ok := errors.AsType[*beneath.LinkError](err)
	said, trust := errors.AsType[*sandbox.Error](err)
	switch {
	case ok && filepath.Base(link.Path) == filepath.Base(file):
		e.Problem = "it is a link, which is not followed: a sandbox may have made it"
	case errors.Is(err, unix.EFBIG):
		e.Problem = "larger than 1 MiB"
	case trust:
		e.Problem, e.Hint = strings.TrimPrefix(said.Msg, file+": "), said.Hint
	}
	return e
}

// readRepository reads the agents that a repository ships. It may have come from anybody:
// nothing outside of it is opened, nor what is no plain file.
func readRepository(top string, p *problems) (list []text, notes []string) {
	dir, err := beneath.OpenDir(top)
	if err != nil {
		p.err(unread(top, err))
		return nil, nil
	}
	defer dir.Close()
	if _, err := dir.Lstat(path.Join(repoDir, bottlesDir)); err == nil {
		notes = append(notes, filepath.Join(top, repoDir, bottlesDir)+": not read: bottles come from your own configuration alone")
	}
	at := path.Join(repoDir, agentsDir)
	f, err := dir.Open(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notes
	}
	shown := filepath.Join(top, at)
	if err != nil {
		p.err(unread(shown, err))
		return nil, notes
	}
	defer f.Close()
	for _, name := range listed(f, shown, p, ".md") {
		t := text{file: filepath.Join(shown, name), origin: ofRepository}
		b, err := dir.ReadFile(path.Join(at, name), maxFile)
		t.bytes, t.err = b, unread(t.file, err)
		list = append(list, t)
	}
	return list, notes
}
