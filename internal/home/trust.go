package home

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

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

// Stat looks at what a way that nobody else can change leads to, and opens nothing.
func Stat(path string) (os.FileInfo, error) {
	at, err := walk(path, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return at.Stat()
}

// OpenTrusted opens a file that the user, or root, wrote: a regular one of theirs to
// which nobody else may write, nor to what leads there. It waits for nobody at a pipe's
// end. A link that leads nowhere is no missing file: it is Invalid.
func OpenTrusted(path string) (*os.File, error) { return openTrusted(path, unix.S_IFREG) }

// OpenTrustedDir opens a directory for its names, by the same rule.
func OpenTrustedDir(path string) (*os.File, error) { return openTrusted(path, unix.S_IFDIR) }

func openTrusted(path string, kind uint32) (*os.File, error) {
	at, err := walk(path, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	bad := func(what, hint string) (*os.File, error) {
		return nil, sandbox.Errorf(sandbox.Denied, "%s: %s", path, what).WithHint("%s", hint)
	}
	switch {
	case st.Mode&unix.S_IFMT != kind && kind == unix.S_IFREG:
		return bad("not a regular file", "write it as one")
	case st.Mode&unix.S_IFMT != kind:
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	case !ours(st.Uid):
		return bad("it belongs to another user", "use one of your own, or root's")
	case openToOthers(&st):
		return bad("others may write to it", "chmod go-w "+path)
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(fdPath(at), unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0) // the kernel's link to that file itself
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
