package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var deviceProbes = []probe{
	{name: "devices", run: devices},
	{name: "make-devices", run: makeDevices},
	{name: "shared-device", run: sharedDevice},
}

func itoa(n int) string { return strconv.Itoa(n) }

// device is a character device's number.
type device struct{ major, minor uint32 }

// harmless are those that any program may have.
var harmless = []device{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}}

// emulated are those that gVisor's own kernel serves.
var emulated = []device{{10, 229}, {10, 200}}

func (t *trial) allows(st *unix.Stat_t) bool {
	d := device{unix.Major(st.Rdev), unix.Minor(st.Rdev)}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return false
	case slices.Contains(harmless, d), d.major >= 136 && d.major <= 143:
		return true
	}
	return !t.Native() && slices.Contains(emulated, d)
}

// devices looks at every node below /dev, and opens those of the host that
// would do most.
func devices(t *trial) {
	seen := 0
	_ = filepath.WalkDir("/dev", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeDevice == 0 {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil {
			return nil
		}
		seen++
		if !t.allows(&st) {
			t.find("%s is device %d:%d", p, unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		return nil
	})
	for _, n := range []string{
		"mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0", "nvme0n1", "loop0", "loop-control", "kvm", "vhost-net", "vhost-vsock", "vsock",
		"tty0", "console", "ttyS0", "input/event0", "fb0", "dri/card0", "mapper/control", "btrfs-control", "autofs", "uinput", "rfkill", "cuse", "userfaultfd",
	} {
		if fd, err := unix.Open("/dev/"+n, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			t.find("/dev/%s can be opened", n)
		}
	}
	t.note("%d devices, all harmless", seen)
}

// sharedDevice opens a device of the host's whose file is in a directory that
// its owner shares, and that anybody may open.
func sharedDevice(t *trial) {
	name := facts.ReadOnly + "/device"
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		t.find("%s can be opened", name)
	}
	t.note("%v", err)
}

// makeDevices makes nodes of its own and opens them.
func makeDevices(t *trial) {
	nodes := []struct {
		mode uint32
		dev  uint64
		what string
	}{
		{unix.S_IFCHR, unix.Mkdev(1, 1), "memory"},
		{unix.S_IFCHR, unix.Mkdev(1, 11), "the kernel's log"},
		{unix.S_IFBLK, unix.Mkdev(7, 0), "a loop device"},
		{unix.S_IFBLK, unix.Mkdev(254, 0), "a disk"},
		{unix.S_IFBLK, unix.Mkdev(8, 0), "a disk"},
	}
	for _, dir := range []string{"/tmp", "/dev", "/dev/shm", facts.Work, facts.Writable} {
		for i, n := range nodes {
			name := filepath.Join(dir, fmt.Sprintf("node-%d-%d", os.Getpid(), i))
			if unix.Mknod(name, n.mode|0o666, int(n.dev)) != nil {
				continue
			}
			t.find("%s was made as %s", name, n.what)
			if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				t.find("%s can be opened", name)
			}
			_ = os.Remove(name)
		}
	}
	t.note("no device can be made")
}
