package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// errNotRefused says that what had to be refused was not.
var errNotRefused = errors.New("it was allowed all the same")

// probeRoot does what only root of a user namespace can.
func probeRoot(io.Reader, []string) error {
	return step("set a host name in namespaces of one's own", unix.Sethostname([]byte("probe")))
}

// private keeps what is mounted here from being seen outside.
func private() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("the root directory is no mount point, as in a plain chroot: %w", err)
	}
	return step("make mounts private", err)
}

// probeMount takes a root of its own over the directory it is given.
func probeMount(_ io.Reader, args []string) error {
	if err := private(); err != nil {
		return err
	}
	at := args[0]
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=755"); err != nil {
		return step("mount a tmpfs", err)
	}
	if err := os.WriteFile(filepath.Join(at, "own"), nil, 0o600); err != nil {
		return step("write to a tmpfs", err)
	}
	if err := os.Chdir(at); err != nil {
		return step("enter a tmpfs", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return step("pivot into a new root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return step("leave the old root", err)
	}
	_, err := os.Stat("/own")
	return step("look around in the new root", err)
}

// overlayOptions are those of instances.
const overlayOptions = "redirect_dir=nofollow,metacopy=off,index=off"

// probeOverlay changes a file and removes one over a read-only layer. Its
// arguments are an empty directory and further mount options.
func probeOverlay(_ io.Reader, args []string) error {
	if err := private(); err != nil {
		return err
	}
	if err := os.Chdir(args[0]); err != nil {
		return step("enter the directory", err)
	}
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return step("make layers", err)
		}
	}
	for _, f := range []string{"lower/changed", "lower/removed"} {
		if err := os.WriteFile(f, []byte("lower"), 0o644); err != nil {
			return step("make layers", err)
		}
	}
	opts := "lowerdir=lower,upperdir=upper,workdir=work," + overlayOptions + args[1]
	if err := unix.Mount("overlay", "merged", "overlay", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return step("mount an overlay", err)
	}
	if err := os.WriteFile("merged/changed", []byte("upper"), 0o644); err != nil {
		return step("change a file in an overlay", err)
	}
	if err := os.Remove("merged/removed"); err != nil {
		return step("remove a file in an overlay", err)
	}
	below, err := os.ReadFile("lower/changed")
	if err == nil && string(below) != "lower" {
		err = errors.New("the change reached the layer below")
	}
	return step("look below an overlay", err)
}

// probeProc mounts a /proc of its own, as process 1.
func probeProc(_ io.Reader, args []string) error {
	if err := private(); err != nil {
		return err
	}
	if err := unix.Mount("proc", args[0], "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return step("mount a new /proc", err)
	}
	self, err := os.Readlink(filepath.Join(args[0], "self"))
	if err == nil && self != "1" {
		err = fmt.Errorf("it shows this process as %s", self)
	}
	return step("look into a new /proc", err)
}

// probeDisk makes a small disk image, mounts it and fills it. Its argument is
// an empty directory.
func probeDisk(_ io.Reader, args []string) error {
	if err := private(); err != nil {
		return err
	}
	ctx := context.Background()
	img, at := filepath.Join(args[0], "images", "disk.img"), filepath.Join(args[0], "at")
	err := disk.New(filepath.Join(args[0], "cache")).Make(ctx, img, disk.Size{Bytes: disk.MinBytes, Inodes: 64})
	if err != nil {
		return step("make a disk image", err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return step("make a mount point", err)
	}
	if _, err := disk.Mount(ctx, img, at, disk.Options{}); err != nil {
		return step("mount a disk image", err)
	}
	err = os.WriteFile(filepath.Join(at, "full"), make([]byte, 2*disk.MinBytes), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		err = errors.Join(err, errNotRefused)
	} else {
		err = nil
	}
	return errors.Join(step("fill a disk image", err), step("unmount a disk image", unix.Unmount(at, 0)))
}

// probeSeccomp has the kernel refuse a call that it allows without a filter.
func probeSeccomp(io.Reader, []string) error {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	if err != nil {
		return step("make a file in memory", err)
	}
	if err := unix.Fchmod(fd, unix.S_ISUID|0o700); err != nil {
		return step("set a set-user-id bit before there is a filter", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("set no_new_privs", err)
	}
	if err := seccomp.Refuse(seccomp.Options{}); err != nil {
		return step("install a system call filter", err)
	}
	if err := unix.Fchmod(fd, unix.S_ISUID|0o700); !errors.Is(err, unix.EPERM) {
		return step("have a call refused by a filter", errors.Join(err, errNotRefused))
	}
	return nil
}

// probeNoNewPrivs gives up the rights of set-id programs, for good.
func probeNoNewPrivs(io.Reader, []string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("set no_new_privs", err)
	}
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err == nil && on != 1 {
		err = errors.New("it is not set")
	}
	if err == nil && unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == nil {
		err = errors.New("it could be taken back")
	}
	return step("keep no_new_privs", err)
}

// probePtrace starts a child that stops for its tracer.
func probePtrace(io.Reader, []string) error {
	p, end, err := role.Stopped(roleProbe, []string{"wait"}, syscall.SysProcAttr{})
	if err != nil {
		return step("trace a child", err)
	}
	defer end()
	var ws syscall.WaitStatus
	_, err = syscall.Wait4(p.Pid, &ws, 0, nil)
	if err == nil && !ws.Stopped() {
		err = fmt.Errorf("it did not stop, but ended (%#x)", uint32(ws))
	}
	return step("trace a child", err)
}

// probeBecome waits until ids are mapped, and then becomes root of its user
// namespace and the last of the mapped users.
func probeBecome(in io.Reader, _ []string) error {
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return step("wait for ids", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return step("drop groups", err)
	}
	for _, id := range []int{0, subIDs - 1} {
		if err := errors.Join(syscall.Setresgid(id, id, 0), syscall.Setresuid(id, id, 0)); err != nil {
			return step(fmt.Sprintf("become id %d", id), err)
		}
	}
	return nil
}

// probeWait does nothing until its input ends.
func probeWait(in io.Reader, _ []string) error {
	_, err := io.Copy(io.Discard, in)
	return step("wait", err)
}
