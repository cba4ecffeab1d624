package beneath

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// OpenNamed opens for reading what a name of somebody else's leads to, and never one of this process's own descriptors:
// those below /proc/self lead past directories that who named it can't enter.
func OpenNamed(name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}
