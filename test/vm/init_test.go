package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// allWell is the last line of a machine in which everything went well.
const allWell = "vm: all well"

// insideEnv tells a test that it runs in the machine.
const insideEnv = "CARBOY_VM"

// gvisorEnv asks for gVisor's wall as well: emulated, on a machine that is busy,
// a sandbox of it takes about as long to start as carboy waits for one.
const (
	gvisorEnv = "CARBOY_VM_GVISOR"
	gvisorArg = "gvisor"
)

func TestMain(m *testing.M) {
	if os.Getpid() == 1 {
		if err := first(); err != nil {
			fmt.Println("vm:", err)
		} else {
			fmt.Println(allWell)
		}
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(m.Run())
}

// first is the first program of the machine.
func first() error {
	if err := loadModules(); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	env := []string{
		"PATH=/bin", "HOME=/root", insideEnv + "=1", "CARBOY_BIN=/carboy",
		"CARBOY_PROJECT_SYSTEMS=xfs=/mnt/xfs,ext4=/mnt/ext4",
	}
	if slices.Contains(os.Args, gvisorArg) {
		env = append(env, gvisorEnv+"=1")
	}
	for _, argv := range [][]string{
		{"/project.test", "-test.v", "-test.timeout=8m", "-test.run=^TestProject"},
		{"/vm.test", "-test.v", "-test.timeout=8m", "-test.run=^TestBox"},
	} {
		if err := child(argv, env); err != nil {
			return err
		}
	}
	return nil
}

func loadModules() error {
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open(filepath.Join("/modules", name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// enterRoot makes the first disk the root, with all that belongs there.
func enterRoot() error {
	type mount struct{ from, to, kind, options string }
	list := []mount{{"dev", "/dev", "devtmpfs", ""}, {"/dev/vda", "/root", "ext4", ""}}
	for _, m := range list {
		if err := unix.Mount(m.from, m.to, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	if err := unix.Mount("/dev", "/root/dev", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	for _, m := range []mount{
		{"proc", "/proc", "proc", ""},
		{"sys", "/sys", "sysfs", ""},
		{"cgroup", "/sys/fs/cgroup", "cgroup2", ""},
		{"run", "/run", "tmpfs", "mode=755"},
		{"tmp", "/tmp", "tmpfs", ""},
		{"/dev/vdb", "/mnt/xfs", "xfs", "prjquota"},
		{"/dev/vdc", "/mnt/ext4", "ext4", "prjquota"},
	} {
		if err := unix.Mount(m.from, m.to, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	return nil
}

// loopback has the machine reach itself.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// child runs a program to its end, and sees to what others leave behind.
func child(argv, env []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if pid == cmd.Process.Pid {
			if status != 0 {
				return fmt.Errorf("%s ended with %v", argv[0], status)
			}
			return nil
		}
	}
}
