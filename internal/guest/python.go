package guest

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// commandPath is where commands are looked for unless the environment says.
const commandPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// namePython has an image that knows Python as python3 alone know it as python
// too, which is what programs for sandboxes call it: by a link beside the
// first that searched, a PATH, finds, or in the directory into. What has that
// name already is kept.
func namePython(root, searched, into string) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(dir)
	home := ""
	for _, d := range filepath.SplitList(searched) {
		switch {
		case !path.IsAbs(d):
		case hasCommand(dir, path.Join(d, "python")):
			return nil
		case home == "" && hasCommand(dir, path.Join(d, "python3")):
			home = d
		}
	}
	if home == "" {
		return nil
	}
	to := "python3"
	if into != "" {
		home, to = into, path.Join(home, to)
	}
	at, err := beneath.OpenInRoot(dir, home, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %s: %w", home, err)
	}
	defer unix.Close(at)
	if err := unix.Symlinkat(to, at, "python"); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("link %s/python: %w", home, err)
	}
	return nil
}

// hasCommand reports whether a program is there.
func hasCommand(root int, name string) bool {
	fd, err := beneath.OpenInRoot(root, name, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}
