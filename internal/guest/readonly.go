package guest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// systemPlaces never stay writable under a read-only root, nor does what holds
// one of them: an account may have its home there.
var systemPlaces = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
}

// writable lists the directories below root, itself an absolute path, that
// stay writable where the root does not. What the host names must be there.
// /var/tmp and the home are made where they are missing, and left out where a
// link of the image stands for them.
func writable(c control.Config, root string) ([]string, error) {
	if !c.ReadOnlyRoot {
		return nil, nil
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(dir)
	list := slices.Clone(c.Writable)
	for _, p := range append(list, "/tmp", "/dev/shm") {
		if err := isDir(dir, p); err != nil {
			return nil, fmt.Errorf("keep %s writable: %w", p, err)
		}
	}
	list = append(list, "/tmp", "/dev/shm")
	if makeShared(dir, "/var/tmp") == nil {
		list = append(list, "/var/tmp")
	}
	user, err := account.Lookup(root, c.User)
	if err != nil || !ownPlace(user.Home) { // it has no home to write to, and its commands say so
		return minimal(list), nil
	}
	if user.UID == account.UserID {
		err = makeDir(dir, user.Home, int(user.UID), int(user.GID))
	}
	if err == nil && isDir(dir, user.Home) == nil {
		list = append(list, path.Clean(user.Home))
	}
	return minimal(list), nil
}

// minimal leaves out what lies in another: that is writable as it is.
func minimal(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(p string) bool {
		return slices.ContainsFunc(list, func(dir string) bool { return strings.HasPrefix(p, dir+"/") })
	})
}

// ownPlace reports whether a home neither is nor holds anything of the
// system's.
func ownPlace(home string) bool {
	home = path.Clean(home)
	if home == "/" || home == "/var" {
		return false
	}
	return !slices.ContainsFunc(systemPlaces, func(p string) bool {
		return home == p || strings.HasPrefix(home, p+"/")
	})
}

// isDir reports whether a path leads to a directory through no link.
func isDir(root int, p string) error {
	fd, err := beneath.OpenNoLinks(root, strings.TrimPrefix(p, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// makeShared makes a directory that everybody may write to, unless something
// has its name.
func makeShared(root int, p string) error {
	err := isDir(root, p)
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	parent, err := openDirs(root, strings.TrimPrefix(path.Dir(p), "/"), 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, path.Base(p), 0o755); err != nil {
		return err
	}
	return unix.Fchmodat(parent, path.Base(p), 0o1777, 0)
}
