package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// app is the name of carboy's directory in each of the bases.
const app = "carboy"

// Dirs are carboy's directories: absolute, clean, and not necessarily there.
type Dirs struct {
	State  string // records, and what sandboxes keep
	Run    string // sockets and what a reboot may lose
	Cache  string // what can be made again
	Config string // what the user wrote; never written by carboy
}

// variable is an XDG variable, and its value where it is set.
type variable struct{ name, value string }

// Find returns the directories of the user uid in the environment getenv.
//
// Each is "carboy" in the directory that its variable names. Where one is not
// set they are ~/.local/state, ~/.cache and ~/.config, and for Run
// /run/user/UID if that is the user's own, else a directory in Cache. For
// root without any of the variables they are the system's: /var/lib/carboy,
// /run/carboy, /var/cache/carboy and /etc/carboy. Nothing is created.
func Find(getenv func(string) string, uid int) (Dirs, error) {
	vars := map[string]string{}
	for _, name := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"} {
		value := getenv(name)
		if value == "" {
			continue
		}
		if err := mustBeAbsolute(variable{name, value}); err != nil {
			return Dirs{}, err
		}
		vars[name] = value
	}
	if uid == 0 && len(vars) == 0 {
		return Dirs{
			State: "/var/lib/" + app, Run: "/run/" + app, Cache: "/var/cache/" + app, Config: "/etc/" + app,
		}, nil
	}
	var d Dirs
	for _, p := range []struct {
		dst            *string
		variable, rest string
	}{
		{&d.State, "XDG_STATE_HOME", ".local/state"},
		{&d.Cache, "XDG_CACHE_HOME", ".cache"},
		{&d.Config, "XDG_CONFIG_HOME", ".config"},
	} {
		base := vars[p.variable]
		if base == "" {
			home := variable{"HOME", getenv("HOME")}
			if err := mustBeAbsolute(home); err != nil {
				return Dirs{}, err
			}
			base = filepath.Join(home.value, p.rest)
		}
		*p.dst = filepath.Join(base, app)
	}
	d.Run = runDir(vars["XDG_RUNTIME_DIR"], uid, d.Cache)
	return d, nil
}

func mustBeAbsolute(v variable) error {
	switch {
	case v.value == "":
		return sandbox.Errorf(sandbox.Invalid, "%s is not set", v.name).
			WithHint("set it, or all of XDG_STATE_HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME")
	case !filepath.IsAbs(v.value) || strings.ContainsRune(v.value, 0):
		return sandbox.Errorf(sandbox.Invalid, "%s is %q: not an absolute path", v.name, v.value).
			WithHint("the XDG variables must name absolute paths: unset it, or correct it")
	}
	return nil
}

func runDir(base string, uid int, cache string) string {
	if base == "" {
		base = "/run/user/" + strconv.Itoa(uid)
		var st unix.Stat_t
		err := unix.Lstat(base, &st)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != uid || st.Mode&0o077 != 0 {
			return filepath.Join(cache, "run")
		}
	}
	return filepath.Join(base, app)
}

// Create makes State, Run and Cache, with mode 0700, and what is missing above
// them. It refuses a directory that is there and is another user's, or that
// others can write to.
func (d Dirs) Create() error {
	for _, dir := range []string{d.State, d.Run, d.Cache} {
		if err := checkWay(dir); err != nil {
			return err
		}
		if err := mkdirAll(dir); err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		h, err := openPrivate(dir)
		if err != nil {
			return err
		}
		h.Close()
	}
	return nil
}

// mkdirAll is os.MkdirAll for paths of any length.
func mkdirAll(dir string) error {
	h, err := openDir(dir)
	if err == nil {
		return h.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent, name := filepath.Split(filepath.Clean(dir))
	if parent = filepath.Clean(parent); parent == filepath.Clean(dir) {
		return err
	}
	if err := mkdirAll(parent); err != nil {
		return err
	}
	if h, err = openDir(parent); err != nil {
		return err
	}
	defer h.Close()
	if err := unix.Mkdirat(int(h.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

// longest is how much of a path is given to the kernel at once.
const longest = unix.PathMax - 1

// openDir opens the directory path, of any length, as a handle: for it to be
// named, not read.
func openDir(path string) (*os.File, error) {
	at, rest := unix.AT_FDCWD, filepath.Clean(path)
	for {
		part, more := rest, ""
		if len(rest) > longest {
			i := strings.LastIndexByte(rest[:longest], '/')
			if i <= 0 {
				return nil, &os.PathError{Op: "open", Path: path, Err: unix.ENAMETOOLONG}
			}
			part, more = rest[:i], rest[i+1:]
		}
		fd, err := ignoringEINTR(func() (int, error) {
			return unix.Openat(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		})
		if at != unix.AT_FDCWD {
			unix.Close(at)
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		if more == "" {
			return os.NewFile(uintptr(fd), path), nil
		}
		at, rest = fd, more
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// openPrivate opens a directory in which nobody else, root apart, can put or
// replace anything.
func openPrivate(path string) (*os.File, error) {
	h, err := openDir(path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(h.Fd()), &st); err != nil {
		h.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		h.Close()
		return nil, sandbox.Errorf(sandbox.Denied, "%s belongs to another user", path).
			WithHint("use a directory of your own: set the XDG variables")
	}
	if st.Mode&0o022 != 0 {
		h.Close()
		return nil, sandbox.Errorf(sandbox.Denied, "%s can be written by other users", path).
			WithHint("chmod go-w %s", path)
	}
	return h, nil
}
