package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
)

// checks are all that is tried, in the order in which it is shown.
func checks() []check {
	return []check{
		{id: "user-namespaces", area: "namespaces", title: "user namespaces", run: one(userNamespaces)},
		{id: "namespaces", area: "namespaces", title: "other namespaces", run: one(otherNamespaces)},
		{id: "mounts", area: "namespaces", title: "mounts and pivot_root", run: one(mounts)},
		{id: "proc", area: "namespaces", title: "a /proc of its own", run: one(newProc)},
		{id: "hidepid", area: "namespaces", title: "sight of processes", run: one(hiddenPIDs)},
		{id: "subordinate-ids", area: "namespaces", title: "subordinate ids", run: one(subordinateIDs)},

		{id: "seccomp", area: "protections", title: "system call filters", run: one(seccompFilter)},
		{id: "no-new-privileges", area: "protections", title: "no_new_privs", run: one(noNewPrivs)},
		{id: "landlock", area: "protections", title: "Landlock", run: one(checkLandlock)},
		{id: "ptrace", area: "protections", title: "tracing of children", run: one(tracing)},

		{id: "cgroups", area: "limits", title: "control groups", run: controlGroups},
		{id: "disk", area: "limits", title: "disk images", run: one(diskImages)},

		{id: "state", area: "storage", title: "state directory", run: one(stateDir)},
		{id: "cache", area: "storage", title: "cache directory", run: one(cacheDir)},
		{id: "overlay", area: "storage", title: "overlays", run: one(overlays)},
		{id: "idmap", area: "storage", title: "id-mapped mounts", run: one(idMappedMounts)},

		{id: "host-image", area: "image", title: "host image", limit: imageLimit, run: one(hostImage)},
		{id: "tools", area: "image", title: "toolchains beside /usr", run: one(toolchains)},
		{id: "kvm", area: "image", title: "KVM", run: one(kvm)},

		{id: "tap", area: "network", title: "TAP devices", run: one(tap)},
		{id: "ipv6", area: "network", title: "IPv6", run: one(ipv6Route)},
	}
}

const (
	flagsUser  = syscall.CLONE_NEWUSER | syscall.CLONE_NEWUTS
	flagsMount = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
)

// userNamespaces becomes root of one: a kernel may let one be made and still
// give it no rights.
func userNamespaces(ctx context.Context, m *machine) Line {
	err := m.probe(ctx, flagsUser, "root")
	if err == nil {
		return outcome(OK, "made one, and was root in it")
	}
	why := "both walls build their sandboxes in one"
	for _, s := range []struct {
		name, bad, mend string
	}{
		{"user.max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"kernel.apparmor_restrict_unprivileged_userns", "1", appArmorProfile(m.opts.Exe)},
	} {
		if sysctl(s.name) == s.bad && (!m.root || s.name == "user.max_user_namespaces") {
			return outcome(Missing, fmt.Sprintf("%v (%s is %s)", err, s.name, s.bad)).because(why).mendedBy("as root: " + s.mend)
		}
	}
	mend := "ask whoever runs this machine: a kernel built without them, or a filter around this process, forbids it"
	if name := container(); name != "" {
		mend = "this looks like a container of " + name + ": start it with rights to make namespaces, such as --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	}
	return outcome(Missing, err.Error()).because(why).mendedBy(mend)
}

// appArmorProfile is the command that lets carboy's file exe make user namespaces, and
// the programs that it executes.
func appArmorProfile(exe string) string {
	if exe == "" || strings.ContainsAny(exe, " \t'\"\\%*?[]{}") {
		return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return `printf 'abi <abi/4.0>,\nprofile carboy ` + exe + ` flags=(unconfined) {\n  userns,\n}\n' >/etc/apparmor.d/carboy && apparmor_parser -r /etc/apparmor.d/carboy`
}

// otherNamespaces makes one of each kind, so that the one that fails is named.
func otherNamespaces(ctx context.Context, m *machine) Line {
	var names []string
	for _, k := range kinds[1:] {
		if err := m.probe(ctx, syscall.CLONE_NEWUSER|k.flag, "wait"); err != nil {
			l := outcome(Missing, err.Error()).because("both walls keep a sandbox apart by it")
			if sysctl(k.sysctl) == "0" {
				l.Found += " (" + k.sysctl + " is 0)"
				return l.mendedBy("as root: sysctl -w " + k.sysctl + "=15000")
			}
			return l.mendedBy("see user namespaces above")
		}
		names = append(names, k.name)
	}
	return outcome(OK, "made one of each: "+strings.Join(names, ", "))
}

func mounts(ctx context.Context, m *machine) Line {
	at, err := m.scratch.dir("mount")
	if err == nil {
		err = m.probe(ctx, flagsMount, "mount", at)
	}
	if err != nil {
		return outcome(Missing, err.Error()).because("both walls give a sandbox a root of its own").mendedBy(forbidden(err))
	}
	return outcome(OK, "took a new root, and left the old one")
}

// forbidden says what to do about a call that this process is not let make.
func forbidden(err error) string {
	if errors.Is(err, errNoScratch) {
		return "see state directory below"
	}
	if childless(err) {
		return "see user namespaces above"
	}
	if name := container(); name != "" {
		return "this looks like a container of " + name + ": start it with the right to mount, such as --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	}
	return "see user namespaces above; a filter around this process may forbid it too"
}

func newProc(ctx context.Context, m *machine) Line {
	at, err := m.scratch.dir("proc")
	if err == nil {
		err = m.probe(ctx, flagsMount|syscall.CLONE_NEWPID, "proc", at)
	}
	if err == nil {
		return outcome(OK, "mounted one over new process numbers")
	}
	l := outcome(Missing, err.Error()).because("the process wall hides the machine's processes by it")
	if masked := maskedProc(); masked != "" && errors.Is(err, unix.EPERM) {
		l.Found += " (" + masked + " is covered, so the kernel gives no new one)"
		return l.mendedBy("start the container with --security-opt systempaths=unconfined")
	}
	return l.mendedBy(forbidden(err))
}

// maskedProc names a path below /proc over which something is mounted.
func maskedProc() string {
	for _, mt := range mountTable() {
		if strings.HasPrefix(mt.point, "/proc/") && !strings.HasPrefix(mt.point, "/proc/sys/fs/binfmt_misc") {
			return mt.point
		}
	}
	return ""
}

// hiddenPIDs looks for process 1, which is always there.
func hiddenPIDs(_ context.Context, m *machine) Line {
	_, err := os.ReadFile("/proc/1/stat")
	if err == nil {
		_, err = os.ReadDir("/proc/1/task")
	}
	if err == nil {
		return outcome(OK, "sees processes of others")
	}
	found := "can't see processes of others: " + bare(err)
	for _, o := range procOptions() {
		if strings.HasPrefix(o, "hidepid=") {
			found += " (/proc is mounted with " + o + ")"
		}
	}
	l := outcome(Weaker, found).because("what a sandbox's processes, which have other ids, are doing can't be followed: an ended sandbox may be taken for a running one").
		mendedBy("as root: mount -o remount,hidepid=0 /proc")
	return l
}

func bare(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

func procOptions() []string {
	var out []string
	for _, mt := range mountTable() {
		if mt.point == "/proc" {
			out = mt.options
		}
	}
	return out
}

func seccompFilter(ctx context.Context, m *machine) Line {
	if err := m.probe(ctx, 0, "seccomp"); err != nil {
		return outcome(Missing, err.Error()).because("both walls refuse set-id files by a filter, and the process wall all but ordinary calls").
			mendedBy("use a kernel with CONFIG_SECCOMP_FILTER; in a container, one whose own filter allows seccomp(2)")
	}
	return outcome(OK, "installed one, and saw a call refused")
}

func noNewPrivs(ctx context.Context, m *machine) Line {
	if err := m.probe(ctx, 0, "no-new"); err != nil {
		return outcome(Missing, err.Error()).because("set-id programs would work in a sandbox").
			mendedBy("a filter around this process forbids it: run carboy outside of that")
	}
	return outcome(OK, "set it; it can't be taken back")
}

func tracing(ctx context.Context, m *machine) Line {
	if err := m.probe(ctx, 0, "ptrace"); err != nil {
		l := outcome(Missing, err.Error()).because("gVisor starts its guests' threads by it, and id maps are made with it").
			mendedBy("a filter around this process forbids ptrace(2): run carboy outside of that")
		if v := sysctl("kernel.yama.ptrace_scope"); v == "2" || v == "3" {
			l.Found += " (kernel.yama.ptrace_scope is " + v + ")"
			l = l.mendedBy("as root: sysctl -w kernel.yama.ptrace_scope=1")
			if v == "3" {
				l = l.mendedBy("set kernel.yama.ptrace_scope=1 in /etc/sysctl.d, and boot again: 3 can't be taken back")
			}
		}
		return l
	}
	return outcome(OK, "traced one")
}

// landlockLacks is what each version lacks that the next one has.
var landlockLacks = []struct {
	below int
	lack  string
}{
	{2, "renaming between directories"},
	{3, "truncation"},
	{4, "TCP ports"},
	{5, "ioctl on devices"},
	{6, "signals and abstract sockets"},
}

func checkLandlock(ctx context.Context, m *machine) Line {
	const (
		why    = "the process wall has one protection less; namespaces and filters hold without it"
		whyAll = why + "; it shares volumes and directories read-only alone; carboy fetch refuses to take commits"
	)
	abi, err := landlock.ABI()
	if err != nil {
		err = step("ask for Landlock's version", err)
	} else {
		err = m.probe(ctx, 0, "landlock")
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return outcome(Weaker, "the kernel has it, switched off").because(whyAll).
			mendedBy("add landlock to lsm= on the kernel's command line, and boot again")
	case errors.Is(err, unix.ENOSYS):
		return outcome(Weaker, "the kernel has none").because(whyAll).mendedBy("use Linux 5.19 or newer, built with CONFIG_SECURITY_LANDLOCK")
	case err != nil:
		return outcome(Weaker, err.Error()).because(whyAll).mendedBy("a filter around this process forbids it: run carboy outside of that")
	}
	var lacks []string
	for _, l := range landlockLacks {
		if abi < l.below {
			lacks = append(lacks, l.lack)
		}
	}
	found := fmt.Sprintf("version %d: had a file refused", abi)
	if len(lacks) > 0 {
		return outcome(Weaker, found+"; it knows nothing of "+strings.Join(lacks, ", ")).because(why).mendedBy("use Linux 6.12 or newer")
	}
	return outcome(OK, found)
}

func kvm(context.Context, *machine) Line {
	const getVersion = 0xae00 // KVM_GET_API_VERSION
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return outcome(Info, "can't be opened: "+bare(err)+"; no wall needs it")
	}
	defer f.Close()
	v, err := unix.IoctlRetInt(int(f.Fd()), getVersion)
	if err != nil {
		return outcome(Info, "does not answer: "+err.Error()+"; no wall needs it")
	}
	return outcome(Info, fmt.Sprintf("answers with version %d; no wall needs it", v))
}

// sysctl reads a setting, "" where the kernel has none of that name.
func sysctl(name string) string {
	b, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
