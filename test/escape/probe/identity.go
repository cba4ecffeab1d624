package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var identityProbes = []probe{
	{name: "identity", run: identity},
	{name: "groups", run: groups},
	{name: "capabilities", run: capabilities},
	{name: "become-root", run: becomeRoot},
	{name: "no-new-privs", run: noNewPrivs},
	{name: "filter-present", run: filterPresent},
	{name: "set-id-bits", run: setIDBits},
	{name: "set-id-run", run: setIDRun},
	{name: "set-id-image", run: setIDImage},
	{name: "file-capabilities", run: fileCapabilities},
}

// status returns the fields of /proc/PID/status.
func status(pid string) map[string]string {
	fields := map[string]string{}
	b, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			fields[k] = strings.TrimSpace(v)
		}
	}
	return fields
}

func identity(t *trial) {
	want := 1000
	if t.User == "root" {
		want = 0
	}
	for _, k := range []string{"Uid", "Gid"} {
		for _, id := range strings.Fields(status("self")[k]) {
			if id != strconv.Itoa(want) {
				t.find("%s: %s, and %d was asked for", k, status("self")[k], want)
				break
			}
		}
	}
	t.note("uid %d", os.Getuid())
}

func groups(t *trial) {
	gs, err := os.Getgroups()
	if err != nil {
		t.find("getgroups: %v", err)
	}
	for _, g := range gs {
		if g != os.Getgid() {
			t.find("supplementary group %d", g)
		}
	}
	t.note("no group but %d", os.Getgid())
}

// containerCaps are those that root may have behind a strong wall: what a
// container engine gives, without raw sockets and device nodes.
var containerCaps = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_SETFCAP, unix.CAP_AUDIT_WRITE,
}

func capabilities(t *trial) {
	var most uint64
	if t.User == "root" {
		for _, c := range containerCaps {
			most |= 1 << c
		}
	}
	st := status("self")
	for _, k := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		v, err := strconv.ParseUint(st[k], 16, 64)
		if err != nil {
			t.find("%s is %q", k, st[k])
		} else if more := v &^ most; more != 0 {
			t.find("%s has %#x", k, more)
		}
	}
	t.note("effective: %s, bounding: %s", st["CapEff"], st["CapBnd"])
}

func becomeRoot(t *trial) {
	if t.User == "root" {
		t.note("is root already")
		return
	}
	calls := map[string]func() error{
		"setuid":    func() error { return syscall.Setuid(0) },
		"setresuid": func() error { return syscall.Setresuid(-1, 0, -1) },
		"setgid":    func() error { return syscall.Setgid(0) },
		"setgroups": func() error { return syscall.Setgroups([]int{0}) },
		"setfsuid": func() error {
			_ = unix.Setfsuid(0)
			if uid, err := unix.SetfsuidRetUid(-1); err != nil || uid != 0 {
				return errors.New("refused")
			}
			return nil
		},
		"a reading of /etc/shadow": func() error { return openable("/etc/shadow") },
		"a reading of /root": func() error {
			_, err := os.ReadDir("/root")
			return err
		},
		"sudo": func() error { return exec.Command("sudo", "-n", "true").Run() },
	}
	for name, call := range calls {
		if call() == nil {
			t.find("%s went through", name)
		}
	}
	t.note("no call makes this user root")
}

func openable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		f.Close()
	}
	return err
}

func noNewPrivs(t *trial) {
	if v := status("self")["NoNewPrivs"]; v != "1" {
		t.find("NoNewPrivs: %q", v)
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
		t.find("prctl says %d, %v", v, err)
	}
	// Only the agent may have gVisor's kernel hold others. Counting them asks for the same right, and stops nobody.
	if n, err := unix.PrctlRetInt(control.PrctlHold, uintptr(control.HoldCount), 0, 0, 0); err == nil {
		t.find("the kernel would hold %d others for this command", n)
	}
	t.note("set")
}

func filterPresent(t *trial) {
	v := status("self")["Seccomp"]
	if v != "2" {
		t.find("Seccomp: %q", v)
	}
	t.note("Seccomp: %s", v)
}

// setIDBits tries each way to make a file that runs as its owner, wherever a
// file can be made.
func setIDBits(t *trial) {
	for _, dir := range []string{"/tmp", "/dev/shm", facts.Work, facts.Writable} {
		base := filepath.Join(dir, "set-id-"+strconv.Itoa(os.Getpid()))
		ways := map[string]func(string) error{
			"chmod":     func(f string) error { return errors.Join(touch(f), unix.Chmod(f, 0o4755)) },
			"chmod-gid": func(f string) error { return errors.Join(touch(f), unix.Chmod(f, 0o2755)) },
			"fchmodat2": func(f string) error {
				return errors.Join(touch(f), unix.Fchmodat(unix.AT_FDCWD, f, 0o4755, unix.AT_SYMLINK_NOFOLLOW))
			},
			"open":  func(f string) error { return made(unix.Open(f, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o4755)) },
			"mkdir": func(f string) error { return unix.Mkdir(f, 0o2755) },
			"mknod": func(f string) error { return unix.Mknod(f, unix.S_IFREG|0o4755, 0) },
		}
		for name, way := range ways {
			f := base + "-" + name
			_ = way(f)
			if fi, err := os.Lstat(f); err == nil && fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.find("%s made %s with mode %v", name, f, fi.Mode())
			}
			_ = os.Remove(f)
		}
	}
	t.note("no file got a set-id bit")
}

func touch(name string) error { return os.WriteFile(name, nil, 0o755) }

func made(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// setIDRun runs a program that is root's on the host and runs as its owner.
func setIDRun(t *trial) {
	if t.User == "root" {
		t.note("is root already")
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.note("%v", err)
		return
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(self), "set-user-id"), "euid").CombinedOutput()
	euid := string(bytes.TrimSpace(out))
	if err == nil && euid != strconv.Itoa(os.Getuid()) {
		t.find("it ran as %s", euid)
	}
	t.note("it ran as %s, %v", euid, err)
}

// setIDImage starts the image's own set-id programs on a terminal, where they
// ask for something, and looks at what they run as meanwhile.
func setIDImage(t *trial) {
	if t.User == "root" {
		t.note("is root already")
		return
	}
	for _, args := range [][]string{{"su"}, {"passwd"}, {"newgrp", "root"}, {"sudo", "-k", "true"}, {"pkexec", "true"}} {
		name, err := exec.LookPath(args[0])
		if err != nil {
			continue
		}
		uid, err := euidOf(name, args[1:])
		if err != nil {
			t.note("%s: %v", args[0], err)
			continue
		}
		if uid != strconv.Itoa(os.Getuid()) {
			t.find("%s runs as %s", args[0], uid)
		}
		t.note("%s runs as %s", args[0], uid)
	}
}

// euidOf starts a program and returns what it runs as once it is that program.
func euidOf(name string, args []string) (string, error) {
	master, slave, err := terminal()
	if err != nil {
		return "", err
	}
	defer master.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	slave.Close()
	if err != nil {
		return "", err
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	// Start returns when the program is executed: its ids are final.
	ids := strings.Fields(status(strconv.Itoa(cmd.Process.Pid))["Uid"])
	if len(ids) < 2 {
		return "", errors.New("ended before it was looked at")
	}
	return ids[1], nil
}

// fileCapabilities gives a program capabilities of its own.
func fileCapabilities(t *trial) {
	// Version 2, effective: CAP_SYS_ADMIN permitted.
	v := []byte{1, 0, 0, 2, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, dir := range []string{"/tmp", facts.Work, facts.Writable} {
		f := filepath.Join(dir, "capable-"+strconv.Itoa(os.Getpid()))
		_ = touch(f)
		for _, attr := range []string{"security.capability", "trusted.overlay.opaque"} {
			if err := unix.Setxattr(f, attr, v, 0); err == nil && (t.Native() || dir == facts.Writable) {
				t.find("%s was set on %s", attr, f)
			}
		}
		_ = os.Remove(f)
	}
	t.note("no attribute that gives rights can be set")
}
