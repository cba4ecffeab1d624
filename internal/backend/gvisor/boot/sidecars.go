package boot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/gvisorbinaries"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
)

const selfExe = "/proc/self/exe"

// offerSidecars gives gVisor its directory: links to this binary, also where
// another has taken its place on disk, in a file system of this process's
// alone. That is mounted nowhere, is read-only, and ends with the process.
func offerSidecars() error {
	dir, err := linksToSelf(gvisor.SentryName, gvisor.PrewarmerName)
	if err != nil {
		return fmt.Errorf("offer gvisor its programs: %w", err)
	}
	defer unix.Close(dir)
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, gvisor.SidecarsFD)
	if err == nil && fd != gvisor.SidecarsFD {
		unix.Close(fd)
		err = unix.EBUSY
	}
	if err != nil {
		return fmt.Errorf("offer gvisor its programs as descriptor %d: %w", gvisor.SidecarsFD, err)
	}
	// gVisor looks at it once; the gofer is not to inherit it.
	const sidecarsVariable = "GVISOR_SIDECAR_BINARIES_DIR"
	if err := os.Setenv(sidecarsVariable, gvisor.SidecarsDir); err != nil {
		return err
	}
	defer os.Unsetenv(sidecarsVariable)
	got, err := gvisorbinaries.Dir()
	if err == nil && got != gvisor.SidecarsDir {
		err = fmt.Errorf("gvisor looks for its programs in %q", got)
	}
	return err
}

// linksToSelf is a new directory of links to this binary.
func linksToSelf(names ...string) (dir int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a file system: %w", err)
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{{"mode", "0555"}, {"size", "64k"}, {"nr_inodes", "8"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("set %s of a file system: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a file system: %w", err)
	}
	dir, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount a file system: %w", err)
	}
	for _, n := range names {
		if err == nil {
			err = unix.Symlinkat(selfExe, dir, n)
		}
	}
	if err == nil {
		err = unix.MountSetattr(dir, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		unix.Close(dir)
		return -1, fmt.Errorf("make links: %w", err)
	}
	return dir, nil
}
