package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var namespaceProbes = []probe{
	{name: "host-namespaces", native: true, run: hostNamespaces},
	{name: "user-map", native: true, run: userMap},
	{name: "make-namespaces", native: true, run: makeNamespaces},
	{name: "enter-namespaces", run: enterNamespaces},
	{name: "change-root", run: changeRoot},
}

var namespaceFlags = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER},
	{"mnt", unix.CLONE_NEWNS},
	{"pid", unix.CLONE_NEWPID},
	{"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"cgroup", unix.CLONE_NEWCGROUP},
	{"time", unix.CLONE_NEWTIME},
}

// hostNamespaces compares one's own with the host's. There is one time
// namespace for all: a box has the host's clock.
func hostNamespaces(t *trial) {
	for name, host := range t.Namespaces {
		if strings.HasPrefix(name, "time") {
			continue
		}
		to, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			t.note("%s: %v", name, err)
		} else if to == host {
			t.find("the %s namespace is the host's", name)
		}
	}
	t.note("none is the host's")
}

// userMap wants nobody inside to be somebody on the host.
func userMap(t *trial) {
	for _, name := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.find("%s: %v", name, err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) == 3 && f[0] == f[1] && (f[0] == "0" || !t.Rootless) {
				t.find("%s: id %s is the host's own", name, f[0])
			}
		}
		t.note("%s: %s", name, strings.Join(strings.Fields(string(b)), " "))
	}
}

// makeNamespaces asks for each kind, alone and as root of a user namespace.
func makeNamespaces(t *trial) {
	for _, ns := range namespaceFlags {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread dies
			_, err := raw(unix.SYS_UNSHARE, ns.flag)
			done <- err
		}()
		if err := <-done; err == nil {
			t.find("unshare makes a %s namespace", ns.name)
		}
		for _, flags := range []uintptr{ns.flag, ns.flag | unix.CLONE_NEWUSER} {
			cmd := exec.Command("/proc/self/exe", "euid")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			if cmd.Run() == nil {
				t.find("clone makes a %s namespace with flags %#x", ns.name, flags)
			}
			if clone3(flags) == nil {
				t.find("clone3 makes a %s namespace with flags %#x", ns.name, flags)
			}
		}
	}
	t.note("none can be made")
}

// enterNamespaces joins those of other processes.
func enterNamespaces(t *trial) {
	for _, p := range foreign() {
		for _, ns := range namespaceFlags {
			name := p.file("ns/" + ns.name)
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if _, err := raw(unix.SYS_SETNS, uintptr(fd), ns.flag); err == nil {
				t.find("%s was entered", name)
			}
			unix.Close(fd)
		}
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			if _, err := raw(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNS); err == nil {
				t.find("the mounts of process %d were entered", p.pid)
			}
			unix.Close(fd)
		}
	}
	t.note("none was entered")
}

// changeRoot leaves a chroot by the way that a directory outside it gives,
// which needs the right to chroot.
func changeRoot(t *trial) {
	dir, err := os.MkdirTemp("/tmp", "root-*")
	if err != nil {
		t.note("%v", err)
		return
	}
	defer os.RemoveAll(dir)
	here, err := os.Open("/")
	if err != nil {
		t.note("%v", err)
		return
	}
	defer here.Close()
	if err := unix.Chroot(dir); err != nil {
		t.note("chroot: %v", err)
		return
	}
	if os.Getuid() != 0 {
		t.find("chroot went through")
	}
	_ = here.Chdir()
	for range 32 {
		_ = os.Chdir("..")
	}
	if digest(strings.TrimPrefix(t.SecretFile, "/")) == t.SecretSHA256 {
		t.find("outside of a chroot lies the host's root")
	}
	_ = unix.Chroot(".")
	if _, err := os.Stat(filepath.Join("/", "run/carboy/agent.sock")); err == nil {
		t.find("outside of a chroot lies the agent's directory")
	}
	t.note("what lies outside of a chroot is the box's root")
}
