package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// mightyKinds are ways to have a command be as mighty as it can be: where it can, with mounts of its own.
func mightyKinds() (kinds []*syscall.SysProcAttr) {
	for _, flags := range []uintptr{syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, syscall.CLONE_NEWUSER} {
		kinds = append(kinds, &syscall.SysProcAttr{
			Cloneflags:  flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}, &syscall.SysProcAttr{ // a root without CAP_SETFCAP can't be mapped
			Cloneflags: flags, AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN},
		})
	}
	return kinds
}

// inUser runs this program once more, with the rights of root in a user
// namespace of its own, and returns what it printed.
func inUser(args ...string) (out string, err error) {
	for _, attr := range mightyKinds() {
		out, one := again(attr, args...)
		if one == nil {
			return out, nil
		}
		err = errors.Join(err, one)
	}
	return "", err
}

// again runs this program once more and returns what it printed.
func again(attr *syscall.SysProcAttr, args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = attr
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), nil
}

// makeMounts changes what is mounted, as it is and as root of a user namespace
// of its own.
func makeMounts(t *trial) {
	tried, err := tryMountsTwice()
	if err != nil {
		t.note("%v", err)
	}
	for _, way := range slices.Sorted(maps.Keys(tried)) {
		switch {
		case way == facts.InUser: // a wall's own affair
			t.note("%s: %q", way, tried[way])
		case refusedCall(tried[way]):
			t.note("%s: %s", way, tried[way])
		case tried[way] == "":
			t.find("%s went through", way)
		default:
			t.find("%s reaches the kernel: %s", way, tried[way])
		}
	}
}

// refusedCall tells the answers of a filter, or of a kernel to those without
// rights, from those to what was asked.
func refusedCall(text string) bool {
	return text == unix.EPERM.Error() || text == unix.ENOSYS.Error()
}

// mayMount says what came of each attempt of makeMounts.
func mayMount(out io.Writer) error {
	tried, err := tryMountsTwice()
	return errors.Join(err, json.NewEncoder(out).Encode(tried))
}

// tryMountsTwice prefixes what was tried in a user namespace with its name.
func tryMountsTwice() (facts.Tried, error) {
	tried := tryMounts()
	tried[facts.InUser] = ""
	text, err := inUser("mounts-here")
	if err != nil {
		tried[facts.InUser] = strings.TrimSpace(err.Error())
		return tried, nil
	}
	var inner facts.Tried
	if err := json.Unmarshal([]byte(text), &inner); err != nil {
		return tried, err
	}
	for way, got := range inner {
		tried[facts.InUser+", "+way] = got
	}
	return tried, nil
}

// tryMounts changes nothing that was there: what can't be undone is asked of
// what is no mount, so that whoever looks at it refuses that, and whoever does
// not lets nobody ask says EPERM.
func tryMounts() facts.Tried {
	tried := facts.Tried{}
	dir, err := os.MkdirTemp("/tmp", ".mounts-*")
	if err != nil {
		return facts.Tried{"a directory": err.Error()}
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "at")
	for _, name := range []string{at, dir + "/up", dir + "/work"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			return facts.Tried{"a directory": err.Error()}
		}
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		fuse, err = os.Open("/dev/null") // the call is asked for all the same
	}
	if err != nil {
		return facts.Tried{"a descriptor": err.Error()}
	}
	defer fuse.Close()
	bad := ^uintptr(0)
	for way, do := range map[string]func() error{
		"overlay": func() error {
			return unix.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%s/up,workdir=%s/work", dir, dir))
		},
		"bind":  func() error { return unix.Mount("/etc", at, "", unix.MS_BIND, "") },
		"tmpfs": func() error { return unix.Mount("none", at, "tmpfs", 0, "") },
		"proc":  func() error { return unix.Mount("proc", at, "proc", 0, "") },
		"FUSE": func() error {
			return unix.Mount("fuse", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fuse.Fd(), os.Getuid(), os.Getgid()))
		},
		"move":       func() error { return unix.Mount(dir+"/up", at, "", unix.MS_MOVE, "") },
		"remount":    func() error { return unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		"umount":     func() error { return unix.Unmount(at, unix.MNT_DETACH) },
		"pivot_root": func() error { return unix.PivotRoot(at, at) },
		"open_tree":  func() error { _, err := raw(unix.SYS_OPEN_TREE, bad, 0, unix.OPEN_TREE_CLONE); return err },
		"move_mount": func() error { _, err := raw(unix.SYS_MOVE_MOUNT, bad, 0, bad, 0, 0); return err },
		"fsopen":     func() error { _, err := raw(unix.SYS_FSOPEN, 0, 0); return err },

		"mount namespace":          func() error { return unshareAlone(unix.CLONE_NEWNS) },
		"mount namespace by clone": func() error { return cloneAlone(unix.CLONE_NEWNS) },
	} {
		tried[way] = ""
		if err := do(); err != nil {
			tried[way] = err.Error()
			continue
		}
		_ = unix.Unmount(at, unix.MNT_DETACH)
	}
	return tried
}

// unshareAlone makes namespaces for a thread that ends.
func unshareAlone(flags int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- unix.Unshare(flags)
	}()
	return <-done
}

// cloneAlone makes a process with namespaces, which ends at once.
func cloneAlone(flags uintptr) error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}
