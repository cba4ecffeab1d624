package gvisor

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/gvisorbinaries"
)

// By its STRICT policy gVisor executes programs of a directory, which a
// variable names: a "prewarmer", and by that the sentry. Both are this binary.
const (
	sidecarsVariable = "GVISOR_SIDECAR_BINARIES_DIR"
	sentryName       = "gvisor_sentry"
	prewarmerName    = "gvisor-sentry-prewarmer"

	// sidecarsFD is the directory, in a launcher: a number that is always the
	// same, above those that gVisor comes to.
	sidecarsFD = 230
	selfExe    = "/proc/self/exe"
)

// sidecarsDir leads there past any directory that a sentry's user can't enter.
var sidecarsDir = "/proc/self/fd/" + strconv.Itoa(sidecarsFD)

// rolePrewarmer is what gVisor executes for a sentry.
var rolePrewarmer = sidecarsDir + "/" + prewarmerName

// afterPrewarmer returns the sentry's arguments of those of a prewarmer, which
// has the sentry's file in front of them. To be the sentry is quicker than to
// execute it, and comes to the same: no file is another than this one.
func afterPrewarmer(args []string) []string {
	if len(args) > 2 && args[0] == rolePrewarmer && args[1] == sidecarsDir+"/"+sentryName {
		return args[2:]
	}
	return args
}

// offerSidecars gives gVisor its directory: links to this binary, also where
// another has taken its place on disk, in a file system of this process's
// alone. That is mounted nowhere, is read-only, and ends with the process.
func offerSidecars() error {
	dir, err := linksToSelf(sentryName, prewarmerName)
	if err != nil {
		return fmt.Errorf("offer gvisor its programs: %w", err)
	}
	defer unix.Close(dir)
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, sidecarsFD)
	if err == nil && fd != sidecarsFD {
		unix.Close(fd)
		err = unix.EBUSY
	}
	if err != nil {
		return fmt.Errorf("offer gvisor its programs as descriptor %d: %w", sidecarsFD, err)
	}
	// gVisor looks at it once; the gofer is not to inherit it.
	if err := os.Setenv(sidecarsVariable, sidecarsDir); err != nil {
		return err
	}
	defer os.Unsetenv(sidecarsVariable)
	got, err := gvisorbinaries.Dir()
	if err == nil && got != sidecarsDir {
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
