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
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
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

// text is a file that was read.
type text struct {
	file   string
	origin origin
	bytes  []byte
}

// listed are the names in a directory that are of one of kinds, in order. A directory that
// is not there has none.
func listed(dir *os.File, what string, p *problems, kinds ...string) []string {
	names, err := dir.Readdirnames(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		p.add(Place{File: what}, "", "%v", usage.Pathless(err))
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

// readConfig reads the files of one directory of the configuration.
func readConfig(dir string, p *problems) (list []text) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.add(Place{File: dir}, "", "%v", usage.Pathless(err))
		return nil
	}
	defer f.Close()
	for _, name := range listed(f, dir, p, ".md", ".json") {
		if t := readOwn(filepath.Join(dir, name), p); t != nil {
			list = append(list, *t)
		}
	}
	return list
}

// readOwn reads a file that the user has written; nil where that is a mistake. A link on its
// way that a sandbox could have made is one.
func readOwn(file string, p *problems) *text {
	f, err := beneath.OpenInput(file)
	if err != nil {
		p.add(Place{File: file}, "", "%v", usage.Pathless(err))
		return nil
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		p.add(Place{File: file}, "", "%v", err)
		return nil
	}
	// Who writes a bottle says what may be reached, and by which keys.
	if st.Mode&unix.S_IFMT == unix.S_IFREG && (int(st.Uid) != os.Geteuid() && st.Uid != 0 || st.Mode&0o002 != 0) {
		p.add(Place{File: file}, "it has to be yours, and nobody else's to write", "others may write to it")
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = unix.EFBIG
	}
	return readAs(text{file, ofUser, b}, err, p)
}

func readAs(t text, err error, p *problems) *text {
	switch {
	case errors.Is(err, unix.EFBIG):
		p.add(Place{File: t.file}, "", "larger than 1 MiB")
	case err != nil:
		p.add(Place{File: t.file}, "", "%v", usage.Pathless(err))
	default:
		return &t
	}
	return nil
}

// readRepository reads the agents that a repository ships. It may have come from anybody:
// nothing outside of it is opened, nor what is no plain file.
func readRepository(top string, p *problems) (list []text, notes []string) {
	dir, err := beneath.OpenDir(top)
	if err != nil {
		p.add(Place{File: top}, "", "%v", usage.Pathless(err))
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
		p.add(Place{File: shown}, "", "%v", usage.Pathless(err))
		return nil, notes
	}
	defer f.Close()
	for _, name := range listed(f, shown, p, ".md") {
		b, err := dir.ReadFile(path.Join(at, name), maxFile)
		if t := readAs(text{filepath.Join(shown, name), ofRepository, b}, err, p); t != nil {
			list = append(list, *t)
		}
	}
	return list, notes
}

// readConfigFile reads a file of the configuration that need not be there.
func readConfigFile(file string, p *problems) *text {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return readOwn(file, p)
}
