package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// told are the settings that explain most of what can be wrong.
var told = []string{
	"kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns",
	"user.max_user_namespaces", "user.max_mnt_namespaces", "user.max_pid_namespaces",
	"user.max_net_namespaces", "user.max_ipc_namespaces", "user.max_uts_namespaces",
	"kernel.yama.ptrace_scope", "kernel.pid_max", "kernel.threads-max",
	"vm.max_map_count", "vm.overcommit_memory", "fs.mount-max", "fs.inotify.max_user_instances",
}

// facts gathers settings and mounts. None holds a path that is a user's.
func (m *machine) facts() []Fact {
	var out []Fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, Fact{name, value})
		}
	}
	add("container", container())
	add("processors", fmt.Sprint(runtime.NumCPU()))
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		add("memory", term.FormatSize(int64(info.Totalram)*int64(info.Unit)))
	}
	add("security modules", readLine("/sys/kernel/security/lsm"))
	add("selinux enforces", readLine("/sys/fs/selinux/enforce"))
	add("apparmor profile", readLine("/proc/self/attr/current"))
	for _, name := range told {
		add(name, sysctl(name))
	}
	for _, f := range []string{"Seccomp", "NoNewPrivs", "CapEff"} {
		add("own "+f, statusField(f))
	}
	for _, p := range []struct{ name, path string }{{"root", "/"}, {"state", m.opts.Dirs.State}, {"cache", m.opts.Dirs.Cache}, {"tmp", os.TempDir()}} {
		if p.path != "" {
			add("file system of "+p.name, mountOf(p.path))
		}
	}
	table := mountTable()
	for _, mt := range table {
		if mt.point == "/proc" || mt.kind == "cgroup" || mt.kind == "cgroup2" {
			add("mount "+mt.point, mt.String())
		}
	}
	return out
}

// mounted is a line of mountinfo without what could be private: its source.
type mounted struct {
	point, kind string
	options     []string
}

// shownOptions are the mount options that matter and name nothing.
var shownOptions = []string{
	"ro", "rw", "nosuid", "nodev", "noexec", "hidepid", "subset", "userxattr", "nsdelegate",
	"cpu", "cpuacct", "memory", "pids", "memory_recursiveprot",
}

func (mt mounted) String() string {
	var keep []string
	for _, o := range mt.options {
		name, _, _ := strings.Cut(o, "=")
		if slices.Contains(shownOptions, name) && !slices.Contains(keep, o) {
			keep = append(keep, o)
		}
	}
	return mt.kind + " " + strings.Join(keep, ",")
}

// maxMounts bounds what is read of a mount table, in bytes.
const maxMounts = 4 << 20

// mountTable reads this process's mounts; none where it can't.
func mountTable() []mounted {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	buf := make([]byte, 0, 64<<10)
	b := bytes.NewBuffer(buf)
	if _, err := b.ReadFrom(&limited{f, maxMounts}); err != nil {
		return nil
	}
	return parseMounts(b.Bytes())
}

// parseMounts reads mountinfo, and passes over lines that are not of it.
func parseMounts(b []byte) (out []mounted) {
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if m, ok := mountinfo.Parse(sc.Text()); ok {
			out = append(out, mounted{point: m.Point, kind: m.Type, options: append(m.Options, m.Super...)})
		}
	}
	return out
}

// limited reads at most n bytes.
type limited struct {
	f *os.File
	n int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, errors.New("too long")
	}
	n, err := l.f.Read(p[:min(len(p), l.n)])
	l.n -= n
	return n, err
}

// mountOf says on what a path is, or would be.
func mountOf(path string) string {
	at, err := nearest(path)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return ""
	}
	best := mounted{}
	for _, mt := range mountTable() {
		inside := mt.point == at || mt.point == "/" || strings.HasPrefix(at, mt.point+"/")
		if inside && len(mt.point) >= len(best.point) {
			best = mt
		}
	}
	return strings.TrimSpace(best.String())
}

// fileSystems are the names of those that matter, by their magic number.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.ECRYPTFS_SUPER_MAGIC: "ecryptfs", 0x2fc12fc1: "zfs", unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB2_SUPER_MAGIC: "smb",
}

// space tells a file system's name, and what an ordinary user may still
// write, in bytes.
func space(path string) (name string, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", 0, step("ask for free space", err)
	}
	name = fileSystems[int64(uint32(st.Type))]
	if name == "" {
		name = fmt.Sprintf("a file system of type %#x", uint32(st.Type))
	}
	return name, int64(st.Bavail) * st.Bsize, nil
}

// container names the engine whose container this is, as far as can be told.
func container() string {
	for _, c := range []struct{ path, name string }{{"/.dockerenv", "Docker"}, {"/run/.containerenv", "Podman"}} {
		if _, err := os.Lstat(c.path); err == nil {
			return c.name
		}
	}
	if name := readLine("/run/systemd/container"); name != "" {
		return name
	}
	if strings.Contains(strings.ToLower(kernelRelease()), "microsoft") {
		return "WSL"
	}
	return ""
}

// distribution is the name that the system gives itself.
func distribution() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				return strings.Trim(strings.TrimSpace(v), `"'`)
			}
		}
	}
	return runtime.GOOS
}

// readLine is a small file's first line, "" where it can't be read.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\x00")
}

// statusField reads one of this process's own.
func statusField(name string) string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// list joins words as people do.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
