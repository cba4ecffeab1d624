package main

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var kernelProbes = []probe{
	{name: "io-uring", run: ioURing},
	{name: "userfault", native: true, run: userfault},
	{name: "perf-events", native: true, run: perfEvents},
	{name: "bpf", native: true, run: bpf},
	{name: "watch-everything", native: true, run: watchEverything},
	{name: "file-handles", run: fileHandles},
	{name: "kernel-log", native: true, run: kernelLog},
	{name: "host-name", native: true, run: hostName},
	{name: "machine", run: machine},
	{name: "x32-calls", native: true, run: x32Calls},
	{name: "i386-calls", native: true, run: i386Calls},
	{name: "landlock", native: true, run: landlock},
}

// opened closes a descriptor that was got and says whether it was.
func opened(fd uintptr, err error) bool {
	if err != nil {
		return false
	}
	unix.Close(int(fd))
	return true
}

func ioURing(t *trial) {
	fd, err := raw(unix.SYS_IO_URING_SETUP, 1, pointer(make([]byte, 120)))
	if opened(fd, err) {
		t.find("a ring was made")
	}
	t.note("%v", err)
}

func userfault(t *trial) {
	const userModeOnly = 1
	for _, flags := range []uintptr{unix.O_CLOEXEC, unix.O_CLOEXEC | userModeOnly} {
		fd, err := raw(unix.SYS_USERFAULTFD, flags)
		if opened(fd, err) {
			t.find("userfaultfd(%#x) went through", flags)
		}
		t.note("%v", err)
	}
}

// perfEvents counts one's own instructions, which needs no right where the
// administrator did not ask for one.
func perfEvents(t *trial) {
	attr := make([]byte, 128)
	binary.NativeEndian.PutUint32(attr[0:], unix.PERF_TYPE_SOFTWARE)
	binary.NativeEndian.PutUint32(attr[4:], uint32(len(attr)))
	binary.NativeEndian.PutUint64(attr[40:], unix.PerfBitExcludeKernel|unix.PerfBitExcludeHv)
	self, all := uintptr(0), ^uintptr(0)
	fd, err := raw(unix.SYS_PERF_EVENT_OPEN, pointer(attr), self, all, all, unix.PERF_FLAG_FD_CLOEXEC)
	if opened(fd, err) {
		t.find("an event was opened")
	}
	t.note("%v", err)
}

func bpf(t *trial) {
	attr := make([]byte, 128)
	for i, v := range []uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 8, 1} {
		binary.NativeEndian.PutUint32(attr[4*i:], v)
	}
	fd, err := raw(unix.SYS_BPF, unix.BPF_MAP_CREATE, pointer(attr), uintptr(len(attr)))
	if opened(fd, err) {
		t.find("a map was made")
	}
	t.note("%v", err)
}

// watchEverything asks for a listener on whole file systems; a kernel gives
// one to anybody who wants no more than file handles.
func watchEverything(t *trial) {
	for _, flags := range []uintptr{unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC, unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC | unix.FAN_REPORT_FID} {
		fd, err := raw(unix.SYS_FANOTIFY_INIT, flags, unix.O_RDONLY)
		if opened(fd, err) {
			t.find("fanotify_init(%#x) went through", flags)
		}
		t.note("%v", err)
	}
}

// fileHandles opens by number what no path leads to: on a file system shared
// with the host, everything.
func fileHandles(t *trial) {
	for _, dir := range []string{"/", "/tmp", "/usr", "/workspace", facts.Tools} {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
		if err != nil {
			t.note("%s: %v", dir, err)
			continue
		}
		at, err := os.Open(dir)
		if err != nil {
			continue
		}
		fd, err := unix.OpenByHandleAt(int(at.Fd()), h, unix.O_RDONLY|unix.O_CLOEXEC)
		if err == nil {
			unix.Close(fd)
			t.find("a file of %s was opened by its handle", dir)
		}
		t.note("%s: %v", dir, err)
		at.Close()
	}
}

// kernelLog reads the host's.
func kernelLog(t *trial) {
	const readAll = 3
	buf := make([]byte, 4096)
	if n, err := unix.Klogctl(readAll, buf); err == nil && n > 0 {
		t.find("%d bytes of the host's kernel log were read", n)
	}
	for _, name := range []string{"/dev/kmsg", "/proc/kmsg"} {
		if n := readSome(name); n > 0 {
			t.find("%s gives %d bytes", name, n)
		}
	}
	t.note("it can't be read")
}

// hostName sets the name that is there.
func hostName(t *trial) {
	name, err := os.Hostname()
	if err != nil {
		t.note("%v", err)
	}
	if name == t.Hostname {
		t.find("the host's name is seen")
	}
	if err := unix.Sethostname([]byte(name)); err == nil {
		t.find("the name can be set")
	}
	t.note("the name is %q", name)
}

// machine makes the calls that stop or change a machine, in forms that do
// nothing if they go through.
func machine(t *trial) {
	var now unix.Timespec
	calls := []struct {
		name string
		call func() error
	}{
		{"reboot", func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) }},
		{"clock_settime", func() error {
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				return err
			}
			return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		}},
		{"swapoff", func() error { _, err := raw(unix.SYS_SWAPOFF, pointer(text("/none"))); return failedLater(err) }},
		{"acct", func() error { _, err := raw(unix.SYS_ACCT, pointer(text("/none"))); return failedLater(err) }},
		{"delete_module", func() error {
			_, err := raw(unix.SYS_DELETE_MODULE, pointer(text("no-such-module")), 0)
			return failedLater(err)
		}},
	}
	for _, c := range calls {
		if err := c.call(); err == nil {
			t.find("%s went through", c.name)
		}
	}
	t.note("the machine can't be changed")
}

// failedLater takes an error that comes after the question of rights for
// success.
func failedLater(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
