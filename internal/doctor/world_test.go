package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// ordinary is a user of the machine that has nothing.
const ordinary = 12345

// world is where a check is made: under conditions that are laid down by root
// in a child, and then as uid.
type world struct {
	uid   int
	flags uintptr // namespaces of the child
	lay   []string
	path  string // PATH; default: the usual one
	opts  doctor.Options
}

// asked is what the child is told.
type asked struct {
	Check string
	UID   int
	Lay   []string
	Home  string
	Dirs  home.Dirs
	Ready bool // the conditions are laid down
}

const askedEnv = "DOCTOR_TEST_ASKED"

func TestMain(m *testing.M) {
	role.Become(doctor.Roles())
	if name := filepath.Base(os.Args[0]); name == "newuidmap" || name == "newgidmap" {
		os.Exit(mapIDs(name, os.Args[1:]))
	}
	if text := os.Getenv(askedEnv); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child lays down the conditions and becomes the user that makes the check.
func child(text string) error {
	var a asked
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	if a.Ready {
		return json.NewEncoder(os.Stdout).Encode(doctor.Check(context.Background(), a.Check, doctor.Options{Home: a.Home, Dirs: a.Dirs}))
	}
	for _, what := range a.Lay {
		if err := lay(what); err != nil {
			return fmt.Errorf("lay down %s: %w", what, err)
		}
	}
	a.Ready = true
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{askedEnv + "=" + string(raw), "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if a.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.UID)}}
	}
	return cmd.Run()
}

// lay lays down one condition: a verb and its arguments, with colons between.
func lay(what string) error {
	f := strings.Split(what, ":")
	switch f[0] {
	case "deny": // call, errno
		nr, errno := atoi(f[1]), atoi(f[2])
		return deny(uint32(nr), unix.Errno(errno))
	case "sysctl": // name, value
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(f[1], ".", "/"), []byte(f[2]), 0)
	case "private":
		return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	case "mount": // type, place, flags, options
		if err := unix.Mount(f[1], f[2], f[1], uintptr(atoi(f[3])), f[4]); err != nil {
			return err
		}
		if f[1] == "proc" {
			return nil
		}
		return os.Chmod(f[2], 0o777)
	case "root-only": // device
		var st unix.Stat_t
		if err := unix.Stat(f[1], &st); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", filepath.Dir(f[1]), "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
		return unix.Mknod(f[1], unix.S_IFCHR|0o600, int(st.Rdev))
	case "route6": // to everywhere
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("2001:db8::1/64")
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, addr),
			netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}))
	case "alone": // type, place
		return alone(f[1], f[2])
	case "bind": // what, where
		return unix.Mount(f[1], f[2], "", unix.MS_BIND, "")
	case "read-only": // place
		return unix.Mount("", f[1], "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return fmt.Errorf("no such condition")
}

// alone unmounts what is of a type and not at a place.
func alone(kind, place string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		at := strings.Fields(line)[4]
		if strings.Contains(line, " - "+kind+" ") && at != place {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", at, err)
			}
		}
	}
	return nil
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func denied(nr int, errno unix.Errno) string { return fmt.Sprintf("deny:%d:%d", nr, errno) }

func mounted(kind, at string, flags uintptr, options string) string {
	return fmt.Sprintf("mount:%s:%s:%d:%s", kind, at, flags, options)
}

func bound(what, where string) string { return "bind:" + what + ":" + where }

// mapIDs is a newuidmap that asks for nothing: it is for this test alone.
func mapIDs(name string, args []string) int {
	var b strings.Builder
	for i := 1; i+2 < len(args); i += 3 {
		fmt.Fprintln(&b, args[i], args[i+1], args[i+2])
	}
	file := strings.TrimPrefix(name, "new") // uidmap
	file = strings.TrimSuffix(file, "map") + "_map"
	if err := os.WriteFile("/proc/"+args[0]+"/"+file, []byte(b.String()), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// check makes a check in w and returns its lines.
func (w world) check(t *testing.T, id string) []doctor.Line {
	t.Helper()
	raw, err := json.Marshal(asked{Check: id, UID: w.uid, Lay: w.lay, Home: w.opts.Home, Dirs: w.opts.Dirs})
	if err != nil {
		t.Fatal(err)
	}
	if w.path == "" {
		w.path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{askedEnv + "=" + string(raw), "PATH=" + w.path, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: w.flags}
	if w.flags&syscall.CLONE_NEWUSER != 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}}
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("make the check: %v: %s", err, errs.String())
	}
	var lines []doctor.Line
	if err := json.NewDecoder(io.LimitReader(&out, 1<<20)).Decode(&lines); err != nil {
		t.Fatalf("read the lines: %v", err)
	}
	if len(lines) == 0 {
		t.Fatalf("no line of check %q", id)
	}
	return lines
}

// place makes a home for a check, that its user may write.
func place(t *testing.T, uid int) doctor.Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to lay down what the checks are made under")
	}
	dir, err := os.MkdirTemp("", "doctor")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := doctor.Options{Version: "v1", Home: filepath.Join(dir, "home")}
	o.Dirs = home.Dirs{State: filepath.Join(dir, "state"), Cache: filepath.Join(dir, "cache")}
	for _, d := range []string{o.Home, o.Dirs.State, o.Dirs.Cache} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// left lists what a check has left in a directory.
func left(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".*doctor*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}
