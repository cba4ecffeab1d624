package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// workspaceArg is what --workspace says.
type workspaceArg struct {
	Dir  string // as it was typed
	Mode string // "cow", "ro" or "rw"
}

// parseWorkspace reads DIR[:rw|:ro]. Only those two endings are taken off: a
// colon elsewhere belongs to the name.
func parseWorkspace(s string) (workspaceArg, error) {
	w := workspaceArg{Dir: s, Mode: "cow"}
	for _, mode := range []string{"rw", "ro"} {
		if dir, ok := strings.CutSuffix(s, ":"+mode); ok {
			w = workspaceArg{Dir: dir, Mode: mode}
			break
		}
	}
	if mode, ok := otherMode(w.Dir); ok && w.Dir == s {
		return workspaceArg{}, fmt.Errorf("%s: there is no mode %s: use DIR, whose changes are kept apart, DIR:ro or DIR:rw", shell.Word(s), shell.Word(mode))
	}
	if w.Dir == "" || strings.ContainsRune(w.Dir, 0) {
		return workspaceArg{}, fmt.Errorf("%q is not a workspace: use DIR, DIR:ro or DIR:rw", s)
	}
	return w, nil
}

// otherMode returns what stands in a mode's place behind a directory that is there, where what
// is meant with it is none.
func otherMode(s string) (mode string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || strings.ContainsAny(s, "\x00") || strings.Contains(s[i:], "/") {
		return "", false
	}
	if _, err := os.Stat(s); err == nil {
		return "", false // a directory may have a colon
	}
	fi, err := os.Stat(s[:i])
	return s[i+1:], err == nil && fi.IsDir()
}

// WorkspaceDir is the directory that --workspace names, as it was typed; false where
// that is no workspace.
func WorkspaceDir(s string) (dir string, ok bool) {
	w, err := parseWorkspace(s)
	return w.Dir, err == nil
}

// mountArg is what one --mount says.
type mountArg struct {
	Host     string // as it was typed
	Guest    string // absolute and clean
	ReadOnly bool
}

// parseMount reads HOST:GUEST[:ro]. GUEST starts at the last colon that a
// slash follows, so that HOST may have colons of its own.
func parseMount(s string) (mountArg, error) {
	bad := func(why string) error {
		return fmt.Errorf("%q is not a mount: %s; use HOST:GUEST or HOST:GUEST:ro", s, why)
	}
	rest, ro := strings.CutSuffix(s, ":ro")
	i := strings.LastIndex(rest, ":/")
	switch {
	case strings.ContainsRune(s, 0):
		return mountArg{}, bad("it holds a NUL byte")
	case i < 0:
		return mountArg{}, bad("GUEST must be an absolute path")
	case i == 0:
		return mountArg{}, bad("HOST is empty")
	}
	guest := rest[i+1:]
	if _, mode, ok := strings.Cut(guest, ":"); ok {
		return mountArg{}, bad(fmt.Sprintf("GUEST can't hold a colon, and %q is no mode", mode))
	}
	if path.Clean(guest) == "/" {
		return mountArg{}, bad("GUEST can't be the root directory")
	}
	for part := range strings.SplitSeq(guest, "/") {
		if part == ".." {
			return mountArg{}, bad(`GUEST can't hold ".."`)
		}
	}
	return mountArg{Host: rest[:i], Guest: path.Clean(guest), ReadOnly: ro}, nil
}

// ParseVolume reads NAME:PATH[:ro].
func ParseVolume(s string) (api.Mount, error) {
	name, _, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsRune(name, '/') {
		return api.Mount{}, fmt.Errorf("%q is not a volume and its place: use NAME:PATH or NAME:PATH:ro", s)
	}
	arg, err := parseMount(s)
	if err != nil || arg.Host != name {
		return api.Mount{}, fmt.Errorf("%q is not a volume and its place: PATH is absolute; use NAME:PATH or NAME:PATH:ro", s)
	}
	return api.Mount{Volume: name, Target: arg.Guest, ReadOnly: arg.ReadOnly}, nil
}

// Meets returns the flag that has something shown at a place inside, in it or around it; "": none has.
// What can't be parsed is left to Request, which refuses it.
func (s *Spec) Meets(at string) (flag string, around bool) {
	places := map[string][]string{}
	for _, m := range s.Mounts {
		if arg, err := parseMount(m); err == nil {
			places["--mount "+shell.Word(m)] = []string{arg.Guest}
		}
	}
	for _, v := range s.Volumes {
		if arg, err := ParseVolume(v); err == nil {
			places["--volume "+shell.Word(v)] = []string{arg.Target}
		}
	}
	for _, h := range s.Homes {
		_, paths, _ := strings.Cut(h, "=")
		places["--home "+shell.Word(h)] = strings.Split(paths, ",")
	}
	for _, flag := range slices.Sorted(maps.Keys(places)) {
		for _, p := range places[flag] {
			p = path.Clean(p)
			if around = at == p || strings.HasPrefix(at, p+"/"); around || strings.HasPrefix(p, at+"/") {
				return flag, around
			}
		}
	}
	return "", false
}

// hostDir makes dir absolute and checks that it is a directory, so that a
// mistyped name is refused before a daemon is started. What the name leads to
// is decided by the daemon, with the caller's rights.
func hostDir(flag, dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", usage.Errorf("%s: %s is meant from the current directory, which was deleted", flag, dir).WithHint("cd to one that is there, or give an absolute path")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	fi, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", usage.Errorf("%s: there is no directory %s", flag, shell.Word(dir))
	case err != nil:
		return "", usage.Errorf("%s: %v", flag, err)
	case !fi.IsDir():
		return "", usage.Errorf("%s: %s is not a directory", flag, shell.Word(dir))
	}
	return abs, nil
}
