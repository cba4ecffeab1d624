// Package home knows where carboy keeps its things, and opens the unix sockets
// that lie there.
//
// Every place follows from the XDG variables, so that two homes are two
// worlds: nothing is shared between them, and nothing is looked for elsewhere.
// It refuses relative values, directories that other users could write to, and
// sockets that belong to someone else.
//
// A socket's path may have any length. The kernel's own bound of 107 bytes is
// passed by handles: the directory is opened once, and the socket is reached
// through /proc/self/fd.
package home

import (
	"errors"
	"fmt"
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
// others can write to, and a way to one that others could change. Without root it refuses one
// that a sandbox's processes could not enter, too: see enterable.
func (d Dirs) Create() error {
	for _, dir := range []string{d.State, d.Run, d.Cache} {
		h, err := walk(dir, 0o700)
		if err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		err = private(h)
		h.Close()
		if err != nil {
			return err
		}
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		return nil
	}
	if err := enterable(d.State, uid, gid); err != nil {
		return err
	}
	return enterable(d.Cache, uid, gid)
}

// enterable refuses a directory, or one on the way to it, that is closed to others and has
// a group which a user namespace of uid and gid does not have: the root of such a namespace,
// as which sandboxes are started, has no more rights there than any other user. A further group
// of the user's is none of the namespace's.
func enterable(dir string, uid, gid int) error {
	for p := dir; p != "/"; p = filepath.Dir(p) {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return &os.PathError{Op: "stat", Path: p, Err: err}
		}
		if int(st.Uid) == uid && int(st.Gid) != gid && st.Mode&0o001 == 0 {
			return sandbox.Errorf(sandbox.Denied, "%s has the group %d, and yours is %d: as others may not enter it, no sandbox can be started below it", p, st.Gid, gid).
				WithHint("chgrp %d %s", gid, p)
		}
	}
	return nil
}

// openPrivate opens a directory in which nobody else, root apart, can put or
// replace anything, and to which nobody else can lead another way.
func openPrivate(path string) (*os.File, error) {
	h, err := walk(path, 0)
	if err != nil {
		return nil, err
	}
	if err := private(h); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func private(h *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(h.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: h.Name(), Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &os.PathError{Op: "open", Path: h.Name(), Err: unix.ENOTDIR}
	case !ours(st.Uid):
		return sandbox.Errorf(sandbox.Denied, "%s belongs to another user", h.Name()).WithHint(ownDirectory)
	case st.Mode&0o022 != 0:
		return sandbox.Errorf(sandbox.Denied, "%s can be written by other users", h.Name()).
			WithHint("chmod go-w %s", h.Name())
	}
	return nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
