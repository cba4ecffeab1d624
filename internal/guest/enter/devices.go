package enter

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// devices are those that any program may open. They are the host's own nodes:
// a user namespace can't make any.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

const ttyGroup = 5 // who owns terminals, by custom

// makeDevices fills dev below the working directory.
func makeDevices(shmBytes int64, terminals uint64) error {
	if weak.On(weak.HostDevices) {
		return unix.Mount("/dev", "dev", "", unix.MS_BIND|unix.MS_REC, "")
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NOEXEC)
	if err := unix.Mount("tmpfs", "dev", "tmpfs", flags, "mode=0755,size=64k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range devices {
		if err := bindDevice(name); err != nil {
			return fmt.Errorf("show /dev/%s: %w", name, err)
		}
	}
	if err := mountTerminals(terminals); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := mountShm(shmBytes); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, "dev/"+name); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	// The nodes keep working; nothing is added any more.
	return unix.Mount("", "dev", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
}

func bindDevice(name string) error {
	f, err := os.OpenFile("dev/"+name, os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	f.Close()
	return unix.Mount("/dev/"+name, "dev/"+name, "", unix.MS_BIND, "")
}

func mountTerminals(most uint64) error {
	if err := os.Mkdir("dev/pts", 0o755); err != nil {
		return err
	}
	opts := "newinstance,ptmxmode=0666,mode=0620,gid=" + strconv.Itoa(ttyGroup)
	if most > 0 {
		opts += ",max=" + strconv.FormatUint(most, 10)
	}
	return unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, opts)
}

func mountShm(bytes int64) error {
	if err := os.Mkdir("dev/shm", 0o755); err != nil {
		return err
	}
	if weak.On(weak.HostShm) {
		return unix.Mount("/dev/shm", "dev/shm", "", unix.MS_BIND, "")
	}
	return unix.Mount("tmpfs", "dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		"mode=1777,size="+strconv.FormatInt(bytes, 10))
}
