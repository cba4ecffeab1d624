package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/doctor"
)

// unfit is a world in which a check fails, and what it says of it.
type unfit struct {
	name, check string
	uid         int
	flags       uintptr
	lay         func(o doctor.Options) []string
	state       doctor.State
	found, mend string // parts of them
}

func laid(what ...string) func(doctor.Options) []string {
	return func(doctor.Options) []string { return what }
}

const mountNS = syscall.CLONE_NEWNS

var unfits = []unfit{
	{
		"no-user-namespaces", "user-namespaces", ordinary, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_user_namespaces:0"), doctor.Missing, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=",
	},
	{
		"no-user-namespaces-for-root", "user-namespaces", 0, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_user_namespaces:0"), doctor.Missing, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=",
	},
	{
		"nothing-to-mount-in", "mounts", ordinary, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_user_namespaces:0"), doctor.Missing, "start a child", "see user namespaces",
	},
	{
		"nothing-to-map-owners-by", "idmap", 0, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_user_namespaces:0"), doctor.Weaker, "start a child", "see user namespaces",
	},
	{
		"root-of-a-namespace-alone", "idmap", 0, syscall.CLONE_NEWUSER | mountNS,
		laid("private"), doctor.Weaker, "map the owners", "root of the machine itself",
	},
	{
		"namespace-without-rights", "user-namespaces", ordinary, 0,
		laid(denied(unix.SYS_SETHOSTNAME, unix.EPERM)), doctor.Missing, "set a host name", "",
	},
	{
		"no-network-namespaces", "namespaces", ordinary, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_net_namespaces:0"), doctor.Missing, "network", "sysctl -w user.max_net_namespaces=",
	},
	{
		"no-pid-namespaces", "namespaces", ordinary, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_pid_namespaces:0"), doctor.Missing, "pid", "sysctl -w user.max_pid_namespaces=",
	},
	{"no-mount", "mounts", ordinary, 0, laid(denied(unix.SYS_MOUNT, unix.EPERM)), doctor.Missing, "private", ""},
	{"no-pivot", "mounts", ordinary, 0, laid(denied(unix.SYS_PIVOT_ROOT, unix.EPERM)), doctor.Missing, "pivot into a new root", ""},
	{
		// A further one that is not covered would do: somebody may have one.
		"masked-proc", "proc", ordinary, mountNS, func(o doctor.Options) []string {
			return []string{"private", mounted("proc", o.Home, 0, ""), "alone:proc:/proc", bound("/dev/null", "/proc/sys/kernel/hostname")}
		}, doctor.Missing, "is covered", "systempaths=unconfined",
	},
	{
		"hidden-processes", "hidepid", ordinary, mountNS,
		laid("private", mounted("proc", "/proc", 0, "hidepid=2")), doctor.Weaker, "hidepid=", "hidepid=0",
	},
	{"no-filters", "seccomp", ordinary, 0, laid(denied(unix.SYS_SECCOMP, unix.EINVAL)), doctor.Missing, "install a system call filter", "CONFIG_SECCOMP"},
	{"no-filters-for-root", "seccomp", 0, 0, laid(denied(unix.SYS_SECCOMP, unix.EINVAL)), doctor.Missing, "install a system call filter", "CONFIG_SECCOMP"},
	{"no-prctl", "no-new-privileges", ordinary, 0, laid(denied(unix.SYS_PRCTL, unix.EPERM)), doctor.Missing, "set no_new_privs", ""},
	{
		"landlock-off", "landlock", ordinary, 0,
		laid(denied(unix.SYS_LANDLOCK_CREATE_RULESET, unix.EOPNOTSUPP)), doctor.Weaker, "switched off", "lsm=",
	},
	{
		"landlock-unknown", "landlock", ordinary, 0,
		laid(denied(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS)), doctor.Weaker, "the kernel has none", "Linux 5.19",
	},
	{
		"landlock-without-domains", "landlock", ordinary, 0,
		laid(denied(unix.SYS_LANDLOCK_RESTRICT_SELF, unix.EPERM)), doctor.Weaker, "enter a Landlock domain", "",
	},
	{"no-ptrace", "ptrace", ordinary, 0, laid(denied(unix.SYS_PTRACE, unix.EPERM)), doctor.Missing, "trace a child", "ptrace"},
	{"no-disks-for-users", "disk", ordinary, 0, laid(), doctor.Weaker, "need root", "root"},
	{
		"no-mke2fs", "disk", 0, mountNS,
		laid("private", bound("/dev/null", "/usr/sbin/mke2fs")), doctor.Weaker, "mke2fs", "e2fsprogs",
	},
	{
		"no-loop-devices", "disk", 0, mountNS,
		laid("private", bound("/dev/null", "/dev/loop-control")), doctor.Missing, "mount a disk image", "loop devices",
	},
	{
		"layers-on-an-overlay", "overlay", ordinary, mountNS,
		func(o doctor.Options) []string {
			d := filepath.Dir(o.Dirs.State)
			return []string{"private", mounted("overlay", o.Dirs.State, 0, "lowerdir="+d+"/home,upperdir="+d+"/upper,workdir="+d+"/work")}
		}, doctor.Missing, "mount an overlay", "ext4",
	},
	{
		"no-overlays", "overlay", 0, 0,
		laid(denied(unix.SYS_MOUNT, unix.ENODEV)), doctor.Missing, "no such device", "modprobe overlay",
	},
	{
		"state-that-maps-no-owners", "idmap", 0, mountNS, func(o doctor.Options) []string {
			return []string{"private", mounted("ramfs", o.Dirs.State, 0, "")}
		}, doctor.Weaker, "map the owners", "ext4",
	},
	{
		"cache-that-maps-no-owners", "idmap", 0, mountNS, func(o doctor.Options) []string {
			return []string{"private", mounted("ramfs", o.Dirs.Cache, 0, "")}
		}, doctor.Weaker, "map the owners", "ext4",
	},
	{
		"little-space", "state", ordinary, mountNS, func(o doctor.Options) []string {
			return []string{"private", mounted("tmpfs", o.Dirs.State, 0, "size=1m")}
		}, doctor.Weaker, "1 MiB free", "XDG_STATE_HOME",
	},
	{
		"read-only-state", "state", 0, mountNS, func(o doctor.Options) []string {
			return []string{"private", bound(o.Dirs.State, o.Dirs.State), "read-only:" + o.Dirs.State}
		}, doctor.Missing, "can't be written", "XDG_STATE_HOME",
	},
	{
		"cache-without-execution", "cache", ordinary, mountNS, func(o doctor.Options) []string {
			return []string{"private", mounted("tmpfs", o.Dirs.Cache, unix.MS_NOEXEC, "")}
		}, doctor.Missing, "can't be executed", "noexec",
	},
	{
		"no-tun-device", "tap", 0, mountNS,
		laid("private", bound("/dev/null", "/dev/net/tun")), doctor.Missing, "make a TAP", "tun",
	},
	{"tun-for-root-alone", "tap", ordinary, mountNS, laid("private", "root-only:/dev/net/tun"), doctor.Missing, "permission denied", "as root: sudo"},
	{
		"no-network-for-users", "tap", ordinary, syscall.CLONE_NEWUSER,
		laid("sysctl:user.max_net_namespaces:0"), doctor.Missing, "start a child", "see other namespaces",
	},
	{
		"read-only-cache", "host-image", ordinary, mountNS, func(o doctor.Options) []string {
			return []string{"private", bound(o.Dirs.Cache, o.Dirs.Cache), "read-only:" + o.Dirs.Cache}
		}, doctor.Missing, "read-only", "--image",
	},
}

// TestUnfit makes each check where the kernel refuses, and as a control where
// it does not.
func TestUnfit(t *testing.T) {
	for _, tt := range unfits {
		t.Run(tt.name, func(t *testing.T) {
			o := place(t, tt.uid)
			for _, d := range []string{"upper", "work"} {
				if err := os.Mkdir(filepath.Join(filepath.Dir(o.Home), d), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			got := world{uid: tt.uid, flags: tt.flags, lay: tt.lay(o), opts: o}.check(t, tt.check)[0]
			if got.State != tt.state || !strings.Contains(got.Found, tt.found) || !strings.Contains(got.Mend, tt.mend) || got.Why == "" {
				t.Errorf("got %+v\nwant %s, found %q, mended by %q, and a reason", got, tt.state, tt.found, tt.mend)
			}
			if tt.check == "landlock" && !strings.Contains(got.Why, "carboy fetch refuses") {
				t.Errorf("why: %q, want what else needs it", got.Why)
			}
			controlled, flags := tt.uid, tt.flags
			switch tt.check { // which everywhere only root of the machine itself has
			case "disk", "idmap", "tap":
				controlled, flags = 0, 0
			}
			control := world{uid: controlled, flags: flags, opts: place(t, controlled)}.check(t, tt.check)[0]
			if control.State != doctor.OK {
				t.Errorf("where nothing forbids it: %+v", control)
			}
			if names := append(left(t, o.Dirs.State), left(t, o.Dirs.Cache)...); len(names) > 0 {
				t.Errorf("left behind: %q", names)
			}
		})
	}
}

func TestControlGroups(t *testing.T) {
	o := place(t, 0)
	usable := 0
	var points []string
	for _, l := range (world{opts: o}).check(t, "cgroups") {
		if l.State == doctor.OK {
			usable++
		}
	}
	if usable == 0 {
		t.Skip("no control group of this machine is usable by root")
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, " - cgroup") {
			points = append(points, "read-only:"+strings.Fields(line)[4])
		}
	}
	tests := []struct {
		name  string
		w     world
		found string
	}{
		{"an-ordinary-user", world{uid: ordinary, opts: place(t, ordinary)}, ""},
		{"read-only", world{flags: mountNS, lay: append([]string{"private"}, points...), opts: o}, "read-only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, l := range tt.w.check(t, "cgroups") {
				if l.State != doctor.Weaker || !strings.Contains(l.Found, tt.found) || l.Mend == "" || l.Why == "" {
					t.Errorf("got %+v, want it weaker, with a reason and what mends it", l)
				}
			}
		})
	}
}

// TestSubordinateIDs has maps made by a program that is set-user-id root, and
// by one that is not.
func TestSubordinateIDs(t *testing.T) {
	o := place(t, ordinary)
	dir := filepath.Dir(o.Home)
	ranges := filepath.Join(dir, "ranges")
	if err := os.WriteFile(ranges, []byte("12345:200000:65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	tool := func(t *testing.T, name string, mode os.FileMode) string {
		bin := filepath.Join(dir, name)
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(bin, "newuidmap")
		if err := os.WriteFile(path, self, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(path, filepath.Join(bin, "newgidmap")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return bin
	}
	given := []string{"private", bound(ranges, "/etc/subuid"), bound(ranges, "/etc/subgid")}
	none := []string{"private", bound("/dev/null", "/etc/subuid"), bound("/dev/null", "/etc/subgid")}
	setID, plain := tool(t, "set-id", os.ModeSetuid|0o755), tool(t, "plain", 0o755)
	tests := []struct {
		name  string
		path  string
		lay   []string
		state doctor.State
		found string
	}{
		{"mapped", setID, given, doctor.OK, "from 200000 on"},
		{"no-program", "/nowhere", given, doctor.Missing, "newuidmap is not installed"},
		{"no-range", setID, none, doctor.Missing, "/etc/subuid"},
		{"program-without-rights", plain, given, doctor.Missing, "newuidmap: exit status 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := world{uid: ordinary, flags: mountNS, lay: tt.lay, path: tt.path, opts: o}.check(t, "subordinate-ids")[0]
			if got.State != tt.state || !strings.Contains(got.Found, tt.found) || (got.State == doctor.OK) != (got.Mend == "") {
				t.Errorf("got %+v, want %s, found %q", got, tt.state, tt.found)
			}
		})
	}
}

func TestToolchains(t *testing.T) {
	o := place(t, 0)
	if err := os.MkdirAll(filepath.Join(o.Home, ".cargo", "bin", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := doctor.Check(t.Context(), "tools", o)[0]
	if got.State != doctor.Info || !strings.Contains(got.Found, "cargo") || strings.Contains(got.Found, o.Home) {
		t.Errorf("got %+v", got)
	}
	o.Home = ""
	if got := doctor.Check(t.Context(), "tools", o)[0]; strings.Contains(got.Found, "cargo") {
		t.Errorf("without a home: %+v", got)
	}
}
