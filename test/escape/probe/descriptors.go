package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var descriptorProbes = []probe{
	{name: "descriptors", run: descriptors},
	{name: "environment", run: environment},
	{name: "terminal-input", native: true, run: terminalInput},
}

// descriptors looks at what this process was started with. The probe's parent
// makes its own, which are closed on exec; what came from outside is not.
func descriptors(t *trial) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.note("/proc/self/fd: %v", err)
	}
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || fd <= 2 && ordinary(to) {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // the Go runtime's own
		}
		t.find("descriptor %d is %s", fd, to)
		if up, err := unix.Openat(fd, "../../../../../.."+t.SecretFile, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			t.find("from there the host's files can be opened")
			unix.Close(up)
		}
	}
	t.note("none but the first three")
}

// ordinary tells what a command's first three descriptors may lead to.
func ordinary(to string) bool {
	return to == "/dev/null" || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "/dev/pts/")
}

func environment(t *trial) {
	for _, kv := range os.Environ() {
		if strings.Contains(kv, t.Marker) || strings.HasPrefix(kv, t.EnvName+"=") {
			t.find("the daemon's variable %.40q", kv)
		}
	}
	for _, p := range processes() {
		b, _ := os.ReadFile(p.file("environ"))
		if strings.Contains(string(b), t.EnvName+"=") {
			t.find("the daemon's environment is process %d's", p.pid)
		}
	}
	t.note("%d variables, none of the daemon's", len(os.Environ()))
}

// terminalInput types into its own terminal, which a program that outlives
// its terminal's owner does to have commands run.
func terminalInput(t *trial) {
	master, slave, err := terminal()
	if err != nil {
		t.note("no terminal: %v", err)
		return
	}
	defer master.Close()
	defer slave.Close()
	signal.Ignore(unix.SIGHUP) // the terminal's end
	_, _ = unix.Setsid()
	_ = unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0)
	if _, err := raw(unix.SYS_IOCTL, slave.Fd(), unix.TIOCSTI, pointer([]byte("x"))); err == nil {
		t.find("TIOCSTI types into a terminal")
	} else {
		t.note("TIOCSTI: %v", err)
	}
	// On a terminal that is no console the kernel says ENOTTY; a filter EPERM.
	if _, err := raw(unix.SYS_IOCTL, slave.Fd(), unix.TIOCLINUX, pointer([]byte{6})); !errors.Is(err, unix.EPERM) {
		t.find("TIOCLINUX reaches the kernel: %v", err)
	}
}

// terminal opens a pair.
func terminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, slave, nil
}
