package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// maxLinks bounds the links on one path.
const maxLinks = 40

// checkWay refuses a path on which somebody else, root apart, could put another
// directory or a link: by a directory of theirs, one that others may write to,
// or a link that they made. It looks from the top down, so what it has found
// good nobody changes behind it. What is not there yet is good.
func checkWay(path string) error {
	if weak.On(weak.WaysOfOthers) {
		return nil
	}
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; ; {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return &os.PathError{Op: "stat", Path: at, Err: err}
		}
		if !ours(st.Uid) && !unmapped(st.Uid) {
			return sandbox.Errorf(sandbox.Denied, "%s: %s, which is on its way, belongs to another user", path, at).
				WithHint("use a directory of your own: set the XDG variables")
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(at), to)
			}
			at, rest = "/", append(strings.Split(filepath.Clean(to), "/"), rest...)
			continue
		case openToOthers(&st) && st.Mode&unix.S_ISVTX == 0:
			return sandbox.Errorf(sandbox.Denied, "%s: %s, which is on its way, can be written by other users", path, at).
				WithHint("chmod go-w %s", at)
		}
		for len(rest) > 0 && rest[0] == "" {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		if len(at) > longest {
			return nil // which no call takes; it is made beneath what was looked at
		}
	}
}

// ours reports whether uid is trusted: root, and this process's own user.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// openToOthers reports whether others may write. A group that has its owner's
// number is the owner's alone: where users have such groups, what they make is
// writable by them.
func openToOthers(st *unix.Stat_t) bool {
	return st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && st.Gid != st.Uid
}

// unmapped reports whether uid stands for all that a user namespace does not
// map, the machine's root among them: nobody there can tell whose it is.
func unmapped(uid uint32) bool {
	raw, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil || strings.TrimSpace(string(raw)) != strconv.FormatUint(uint64(uid), 10) {
		return false
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(ids)), " ") != allMapped
}

// allMapped is the map of a machine's own user namespace.
const allMapped = "0 0 4294967295"

// OpenTrusted opens a file that the user, or root, wrote: a regular one of
// theirs to which nobody else may write, nor to what leads there. It waits for nobody at a pipe's end.
func OpenTrusted(path string) (*os.File, error) {
	if err := checkWay(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	bad := func(what, hint string) (*os.File, error) {
		f.Close()
		return nil, sandbox.Errorf(sandbox.Denied, "%s: %s", path, what).WithHint("%s", hint)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return bad("not a regular file", "write it as one")
	case !ours(st.Uid):
		return bad("it belongs to another user", "use a file of your own, or root's")
	case openToOthers(&st):
		return bad("others may write to it", "chmod go-w "+path)
	}
	if err := checkWay(path); err != nil { // where it is a link
		f.Close()
		return nil, err
	}
	return f, nil
}
