package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// maxPasswd bounds an account file that is added to, in bytes.
const maxPasswd = 1 << 20

// furnish gives an image that was not made for a sandbox what commands expect:
// an entry for their user, its home, and the directory where they start. What
// the image has is kept. No link of the image is followed; where one stands in
// the way, that thing is left as it is.
func furnish(root string, cfg control.Config) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(dir)
	user, err := account.Lookup(root, account.User)
	if err != nil {
		return err
	}
	entry := fmt.Sprintf("%s:x:%d:%d::%s:%s\n", user.Name, user.UID, user.GID, user.Home, shellOf(dir, user.Shell))
	group := fmt.Sprintf("%s:x:%d:\n", user.Name, user.GID)
	errs := []error{
		appendEntry(dir, "etc/passwd", user.Name, user.UID, entry),
		appendEntry(dir, "etc/group", user.Name, user.GID, group),
		makeDir(dir, user.Home, int(user.UID), int(user.GID)),
	}
	if cfg.Cwd != "" {
		errs = append(errs, makeDir(dir, cfg.Cwd, int(user.UID), int(user.GID)))
	}
	return errors.Join(errs...)
}

// shellOf prefers the bash that an image may have.
func shellOf(root int, shell string) string {
	fd, err := beneath.OpenInRoot(root, "/bin/bash", unix.O_PATH)
	if err != nil {
		return shell
	}
	_ = unix.Close(fd)
	return "/bin/bash"
}

// appendEntry adds a line to an account file that has neither that name nor
// that id.
func appendEntry(root int, file, name string, id uint32, line string) error {
	etc, err := openDirs(root, path.Dir(file), 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(etc)
	flags := unix.O_RDWR | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(etc, path.Base(file), flags, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxPasswd {
		return fmt.Errorf("%s is no ordinary account file", file)
	}
	has, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for entry := range strings.Lines(string(has)) {
		fields := strings.Split(strings.TrimRight(entry, "\n"), ":")
		if fields[0] == name || len(fields) > 2 && fields[2] == fmt.Sprint(id) {
			return nil
		}
	}
	if len(has) > 0 && has[len(has)-1] != '\n' {
		line = "\n" + line
	}
	_, err = f.WriteString(line)
	return err
}

// makeDir makes a directory for uid, and those above it for root.
func makeDir(root int, dir string, uid, gid int) error {
	rel := strings.TrimPrefix(path.Clean(dir), "/")
	if rel == "" {
		return nil
	}
	fd, err := openDirs(root, rel, uid, gid)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openDirs opens a directory and makes what is missing of it. The last one is
// given to uid if it was made.
func openDirs(root int, rel string, uid, gid int) (int, error) {
	at, err := unix.Openat(root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	parts := strings.Split(rel, "/")
	for i, name := range parts {
		merr := unix.Mkdirat(at, name, 0o755)
		next, err := beneath.OpenNoLinks(at, name, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil && merr == nil && i == len(parts)-1 {
			err = unix.Fchownat(next, "", uid, gid, unix.AT_EMPTY_PATH)
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("make /%s: %w", path.Join(parts[:i+1]...), err)
		}
		at = next
	}
	return at, nil
}
