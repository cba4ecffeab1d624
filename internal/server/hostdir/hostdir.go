// Package hostdir turns paths of the host that a caller named into
// directories that the caller is entitled to, with the caller's own rights.
//
// Every decision is made about an open directory: what the name leads to
// when the kernel resolves it for that caller. A path's text decides nothing,
// so links and renames under way can't lead past a rule. It refuses the
// machine's own directories, the daemon's, and what the caller can't enter.
package hostdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Identity is whose rights count: a process on the other end of a socket.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Rules say what a caller may name.
type Rules struct {
	// As is with whose rights directories are opened; nil: this process's.
	As *Identity
	// Below are absolute paths. What is opened must be one of them or lie
	// below one; nil: anywhere, an empty one: nowhere.
	Below []string
	// Blind is a caller without rights of its own on this machine. It learns of
	// no path what is there: what is not written as one of Below or below one is
	// not opened, and of the rest, all that can't be named has one answer.
	Blind bool
	// Deny are directories of the daemon. Nothing in them may be named, nor
	// anything that holds them.
	Deny []string
}

var (
	// system are directories that no sandbox is given, nor anything below
	// them. What holds one of them, as "/" does, is refused too.
	system = []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32",
		"/proc", "/run", "/sbin", "/sys", "/usr", "/var/log", "/var/run",
	}
	// whole are refused as a whole: what lies below may be somebody's work.
	whole = []string{"/home", "/var", "/var/lib"}
	// sources are where some keep work below a system directory.
	sources = []string{"/usr/src", "/usr/local/src"}
)

// isSystem reports whether path, resolved, is the machine's own.
func isSystem(path string) bool {
	if slices.Contains(whole, path) {
		return true
	}
	for _, d := range sources {
		if path != d && within(path, d) {
			return false
		}
	}
	return slices.ContainsFunc(system, func(d string) bool {
		d, ok := resolve(d)
		return ok && (within(path, d) || within(d, path))
	})
}

// Open resolves path, which must be absolute, and says which directory it is.
// write asks for one that the caller may also write to.
func Open(rules Rules, path string, write bool) (sandbox.HostDir, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) || len(path) > unix.PathMax {
		return sandbox.HostDir{}, sandbox.Errorf(sandbox.Invalid, "host path %q: not an absolute path", cut(path))
	}
	if !rules.Blind || weak.On(weak.HostPathsTold) {
		return rules.open(path, write)
	}
	path = filepath.Clean(path)
	if !slices.ContainsFunc(rules.Below, func(d string) bool { return within(path, filepath.Clean(d)) }) {
		return sandbox.HostDir{}, rules.noSuch(path, nil)
	}
	dir, err := rules.open(path, write)
	if err != nil {
		return sandbox.HostDir{}, rules.noSuch(path, err)
	}
	return dir, nil
}

func (r Rules) open(path string, write bool) (sandbox.HostDir, error) {
	var dir sandbox.HostDir
	err := as(r.As, func() error {
		f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if dir, err = describe(f); err != nil {
			return err
		}
		mode := uint32(unix.R_OK | unix.X_OK)
		if write {
			mode |= unix.W_OK
		}
		return unix.Faccessat2(int(f.Fd()), ".", mode, unix.AT_EACCESS)
	})
	if err != nil {
		return sandbox.HostDir{}, openError(path, write, err)
	}
	return dir, r.check(dir)
}

// noSuch is what a blind caller is told; why is for the log.
func (r Rules) noSuch(path string, why error) error {
	e := sandbox.Errorf(sandbox.Denied, "host path %q: no directory that may be named", cut(path)).WithHint("%s", belowHint(r.Below))
	e.Err = why
	return e
}

// describe says which directory f is, by a path without links.
func describe(f *os.File) (sandbox.HostDir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return sandbox.HostDir{}, fmt.Errorf("look at directory: %w", err)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()))
	if err != nil {
		return sandbox.HostDir{}, fmt.Errorf("find the directory's path: %w", err)
	}
	// A directory that was deleted has a name that leads elsewhere or nowhere.
	var again unix.Stat_t
	if err := unix.Lstat(real, &again); err != nil || again.Dev != st.Dev || again.Ino != st.Ino {
		return sandbox.HostDir{}, unix.ENOENT
	}
	return sandbox.HostDir{Path: real, Dev: st.Dev, Ino: st.Ino, Born: beneath.Born(f), UID: st.Uid, GID: st.Gid}, nil
}

func openError(path string, write bool, err error) error {
	kind, what := sandbox.Internal, "can't be opened"
	switch {
	case errors.Is(err, unix.ENOENT):
		kind, what = sandbox.NotFound, "no such directory"
	case errors.Is(err, unix.ENOTDIR):
		kind, what = sandbox.Invalid, "not a directory"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		kind, what = sandbox.Denied, "you may not read it"
		if write {
			what = "you may not write to it"
		}
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		kind, what = sandbox.Invalid, "not a usable path"
	}
	e := sandbox.Errorf(kind, "host path %q: %s", cut(path), what)
	e.Err = err
	return e
}

// check applies the rules to a directory that was opened.
func (r Rules) check(dir sandbox.HostDir) error {
	if isSystem(dir.Path) {
		return sandbox.Errorf(sandbox.Denied, "host path %q: the machine's own directories stay outside", cut(dir.Path)).
			WithHint("the host image has the machine's programs already")
	}
	for _, d := range r.Deny {
		if d, ok := resolve(d); ok && (within(dir.Path, d) || within(d, dir.Path)) {
			return sandbox.Errorf(sandbox.Denied, "host path %q: it holds carboy's own state", cut(dir.Path))
		}
	}
	if r.Below != nil && !slices.ContainsFunc(r.Below, func(d string) bool {
		d, ok := resolve(d)
		return ok && within(dir.Path, d)
	}) {
		return sandbox.Errorf(sandbox.Denied, "host path %q: not below a directory that may be named", cut(dir.Path)).
			WithHint("%s", belowHint(r.Below))
	}
	// A sandbox acts on the host as a directory's owner. The daemon must not
	// lend a caller the rights of somebody else.
	if r.As != nil && r.As.UID != 0 && r.As.UID != dir.UID {
		return sandbox.Errorf(sandbox.Denied, "host path %q: it is not yours", cut(dir.Path)).
			WithHint("name a directory that you own")
	}
	return nil
}

func belowHint(below []string) string {
	if len(below) == 0 {
		return "this key may name no path of the host"
	}
	return "allowed: " + strings.Join(below, ", ")
}

// resolve returns the path of a rule's directory without links. One that is
// not there rules nothing.
func resolve(dir string) (string, bool) {
	real, err := filepath.EvalSymlinks(dir)
	return real, err == nil
}

// within reports whether path, resolved, is dir, resolved, or lies below it.
// Both are what the kernel made of names, not what a caller wrote.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

func cut(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// OpenFile opens a plain file for reading, with the rights that rules.As has: what who asks can
// read, they may have read. A caller without rights of its own on this machine opens none.
func OpenFile(rules Rules, name string) (f *os.File, err error) {
	if rules.Blind {
		return nil, sandbox.Errorf(sandbox.Denied, "host path %q: this key may name no file of the host", cut(name))
	}
	if !filepath.IsAbs(name) || strings.ContainsRune(name, 0) || len(name) > unix.PathMax {
		return nil, sandbox.Errorf(sandbox.Invalid, "host path %q: not an absolute path", cut(name))
	}
	err = as(rules.As, func() error {
		f, err = beneath.OpenNamed(name)
		return err
	})
	if err != nil {
		return nil, fileError(name, err)
	}
	fi, err := f.Stat()
	if err == nil && fi.Mode().IsRegular() {
		return f, nil
	}
	_ = f.Close() // it was only opened
	return nil, sandbox.Errorf(sandbox.Invalid, "host path %q: not a plain file", cut(name))
}

func fileError(name string, err error) error {
	kind, what := sandbox.Internal, "can't be opened"
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		kind, what = sandbox.NotFound, "no such file"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		kind, what = sandbox.Denied, "you may not read it"
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		kind, what = sandbox.Invalid, "not a usable path"
	}
	e := sandbox.Errorf(kind, "host path %q: %s", cut(name), what)
	e.Err = err
	return e
}
