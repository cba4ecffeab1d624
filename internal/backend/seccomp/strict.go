package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Group is a set of calls that Confine refuses for one reason.
type Group string

// What Confine refuses, beside the numbers that it does not know.
const (
	// SetID: a file with a set-id bit is a foothold for whoever runs it
	// outside.
	SetID Group = "set-id"
	// IOUring: its requests pass by every filter.
	IOUring Group = "io-uring"
	// AsyncIO: requests are counted for the whole machine, by no user, and one
	// program can have them all. Databases go on without.
	AsyncIO Group = "async-io"
	// Userfault: it stops the kernel in the middle of a copy for as long as a
	// program likes, which makes races in it winnable.
	Userfault Group = "userfault"
	// Keyring: the keys of a user id are shared by all its namespaces' users.
	Keyring Group = "keyring"
	// BPF: programs that run in the kernel.
	BPF Group = "bpf"
	// Perf: it measures what other users' programs do.
	Perf Group = "perf"
	// Mounts: what is mounted, covered and read-only is the wall's affair.
	Mounts Group = "mounts"
	// Namespaces: in a user namespace of its own a program is root towards
	// kernel code that nobody else can reach.
	Namespaces Group = "namespaces"
	// Inspection: memory and descriptors of other processes, and addresses of
	// the kernel. ptrace is none of it: debuggers need it, it reaches no
	// process that has other rights than the caller, and the kernel asks the
	// filter again about what a tracer makes of a call.
	Inspection Group = "inspection"
	// Sockets: families and protocols beside those of ordinary programs, whose
	// code would be loaded for the asking.
	Sockets Group = "sockets"
	// Modules: another kernel, or more of it.
	Modules Group = "modules"
	// Clocks: the machine's time and names.
	Clocks Group = "clocks"
	// Handles: files by their number instead of a path.
	Handles Group = "handles"
	// Machine: swap, quotas, accounting, ports, the kernel's log, who watches
	// whole file systems, and in which node's memory a page lies.
	Machine Group = "machine"
	// Legacy: what no compiler has produced for decades.
	Legacy Group = "legacy"
	// Terminals: to type into a terminal, and to change how one is run.
	Terminals Group = "terminals"
	// Personalities: those that make addresses guessable by others, or memory
	// executable.
	Personalities Group = "personalities"
	// Devices: nodes for block and character devices.
	Devices Group = "devices"
	// Leases: who opens a file waits until a lease on it is given back, up to
	// fs.lease-break-time and again for the next one; for files of a shared
	// directory those are programs of the host's. Directories have delegations,
	// whose holders all makers of names wait for, and watches that no limit
	// counts (F_NOTIFY).
	Leases Group = "leases"
	// Tracing: to stop another at its system calls. Linux asks the filter again
	// about what a tracer makes of a call, and Confine allows it; gVisor's kernel
	// does not, and Refuse refuses it. Breakpoints and single steps do without.
	Tracing Group = "tracing"
)

// Options change what Confine refuses. The zero value refuses all groups.
type Options struct {
	// Marks lets a thread that has the right to do so join UTS namespaces.
	Marks bool
	// Open are groups that are let through after all: for tests, which must
	// see what the rest of a wall is worth.
	Open []Group
	// Clone3 lets clone3 through, whose flags a filter can't see: for where the
	// kernel itself lets nobody make a user namespace, and so no other one
	// without rights that commands lack.
	Clone3 bool
	// Foreign lets calls of other architectures through, unseen; for tests.
	Foreign bool
}

// Actions. ENOSYS is for calls that programs do without where a kernel lacks
// them, and for numbers that nobody knew when this was written.
const (
	refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	kill    = unix.SECCOMP_RET_KILL_PROCESS
)

// namespaceFlags are clone's. CLONE_NEWTIME is not among them: clone takes
// its bit for part of a signal's number.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// harmlessPersonality are bits that change what a program is told, or where
// its own memory lies: PER_LINUX32, UNAME26, ADDR_NO_RANDOMIZE.
const harmlessPersonality = 0x8 | 0x0020000 | 0x0040000

const askPersonality = 0xffffffff

// refusal is a call that is refused whatever its arguments are.
type refusal struct {
	group  Group
	action uint32
	nrs    []uint32
}

// refusals hold on every architecture.
var refusals = []refusal{
	// The mode lies in memory, which a filter can't see. Libraries go on to
	// openat.
	{SetID, unknown, []uint32{unix.SYS_OPENAT2}},
	{IOUring, unknown, []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}},
	{AsyncIO, unknown, []uint32{
		unix.SYS_IO_SETUP, unix.SYS_IO_SUBMIT, unix.SYS_IO_CANCEL, unix.SYS_IO_DESTROY,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
	}},
	{Userfault, refuse, []uint32{unix.SYS_USERFAULTFD}},
	{Keyring, refuse, []uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL}},
	{BPF, refuse, []uint32{unix.SYS_BPF}},
	{Perf, refuse, []uint32{unix.SYS_PERF_EVENT_OPEN}},
	{Mounts, refuse, []uint32{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
		unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
		unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	}},
	{Namespaces, refuse, []uint32{unix.SYS_UNSHARE, unix.SYS_SETNS}},
	// Its flags lie in memory. C libraries go on to clone.
	{Namespaces, unknown, []uint32{unix.SYS_CLONE3}},
	{Inspection, refuse, []uint32{
		unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
		unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	}},
	{Modules, refuse, []uint32{
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	}},
	{Clocks, refuse, []uint32{
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	}},
	{Handles, refuse, []uint32{unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT}},
	{Machine, refuse, []uint32{
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT,
		unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
		unix.SYS_MBIND, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE,
		unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	}},
	{Legacy, refuse, []uint32{unix.SYS_NFSSERVCTL}},
}

// table is what Confine enforces.
func table(o Options) map[uint32]verdict {
	open := func(g Group) bool { return slices.Contains(o.Open, g) }
	t := make(map[uint32]verdict, 512)
	for _, nr := range slices.Concat(ordinary, ordinaryHere) {
		t[nr] = verdict{action: retAllow}
	}
	for _, r := range slices.Concat(refusals, refusalsHere) {
		for _, nr := range r.nrs {
			if open(r.group) {
				t[nr] = verdict{action: retAllow}
			} else {
				t[nr] = verdict{action: r.action}
			}
		}
	}
	if o.Clone3 {
		t[unix.SYS_CLONE3] = verdict{action: retAllow}
	}
	for nr, c := range conditional(o.Marks) {
		kept := slices.DeleteFunc(slices.Clone(c), func(p part) bool { return open(p.group) })
		t[nr] = join(t[nr], kept)
	}
	return t
}

// part is what one group says about a call whose arguments matter.
type part struct {
	group  Group
	checks []check
	action uint32 // where none holds; 0: the next part's, or that it is allowed
}

func join(v verdict, parts []part) verdict {
	if v.action == 0 {
		v.action = retAllow
	}
	for _, p := range parts {
		v.checks = append(v.checks, p.checks...)
		if p.action != 0 {
			v.action = p.action
		}
	}
	return v
}

// conditional are the calls whose arguments matter.
func conditional(marks bool) map[uint32][]part {
	calls := map[uint32][]part{
		unix.SYS_CLONE: {{group: Namespaces, checks: []check{{[]condition{hasAny(0, namespaceFlags)}, refuse}}}},
		unix.SYS_IOCTL: {{group: Terminals, checks: []check{
			{[]condition{is(1, unix.TIOCSTI)}, refuse},
			{[]condition{is(1, unix.TIOCLINUX)}, refuse},
			{[]condition{is(1, unix.TIOCSETD)}, refuse},
		}}},
		unix.SYS_FCNTL: {{group: Leases, checks: fcntlChecks(), action: errno(unix.EINVAL)}},
		unix.SYS_PERSONALITY: {{group: Personalities, checks: []check{
			{[]condition{is(0, askPersonality)}, retAllow},
			{[]condition{hasAny(0, everyBit&^harmlessPersonality)}, refuse},
		}}},
		unix.SYS_SOCKET:     {{group: Sockets, checks: socketChecks(), action: errno(unix.EAFNOSUPPORT)}},
		unix.SYS_SOCKETPAIR: {{group: Sockets, checks: []check{{[]condition{is(0, unix.AF_UNIX)}, retAllow}}, action: errno(unix.EAFNOSUPPORT)}},
	}
	for _, c := range modeCalls {
		calls[c.nr] = append(calls[c.nr], part{group: SetID, checks: []check{c.check()}})
	}
	for nr, mode := range nodeCalls {
		calls[nr] = append(calls[nr], part{group: Devices, checks: []check{
			{[]condition{masked(mode, unix.S_IFMT, unix.S_IFCHR)}, refuse},
			{[]condition{masked(mode, unix.S_IFMT, unix.S_IFBLK)}, refuse},
		}})
	}
	if marks {
		calls[unix.SYS_SETNS] = []part{{group: Namespaces, checks: []check{{[]condition{is(1, unix.CLONE_NEWUTS)}, retAllow}}}}
	}
	return calls
}

func (c modeCall) check() check {
	var when []condition
	if c.flags >= 0 {
		when = append(when, hasAny(c.flags, openCreate))
	}
	return check{append(when, hasAny(c.mode, setIDBits)), refuse}
}

// fcntlChecks allow descriptors, flags, locks, owners of signals, pipes' sizes,
// seals and hints. All others have the answer of a file system that has no
// leases, and of a kernel that does not know them.
func fcntlChecks() []check {
	const command = 1
	return []check{
		{[]condition{masked(command, everyBit&^63, 0)}, retAllow}, // POSIX's and those beside them
		{[]condition{is(command, unix.F_DUPFD_CLOEXEC)}, retAllow},
		{[]condition{is(command, unix.F_GETLEASE)}, retAllow},
		{[]condition{is(command, unix.F_DUPFD_QUERY)}, retAllow},
		{[]condition{is(command, unix.F_CREATED_QUERY)}, retAllow},
		{[]condition{is(command, unix.F_SETPIPE_SZ)}, retAllow},
		{[]condition{masked(command, everyBit&^3, unix.F_GETPIPE_SZ)}, retAllow},  // and seals
		{[]condition{masked(command, everyBit&^1, unix.F_SET_RW_HINT)}, retAllow}, // and a file's
		{[]condition{is(command, unix.F_SET_FILE_RW_HINT)}, retAllow},
	}
}

// socketChecks allow unix sockets, the protocols of everyday on the internet,
// and netlink for routes, which C libraries ask for addresses.
func socketChecks() []check {
	const family, kind, protocol = 0, 1, 2
	checks := []check{
		{[]condition{is(family, unix.AF_UNIX)}, retAllow},
		// Of the AF_INET family, an old name of AF_PACKET.
		{[]condition{is(family, unix.AF_INET), masked(kind, 0xf, unix.SOCK_PACKET)}, refuse},
	}
	for _, p := range []struct{ family, protocol uint32 }{
		{unix.AF_INET, unix.IPPROTO_IP},
		{unix.AF_INET, unix.IPPROTO_TCP},
		{unix.AF_INET, unix.IPPROTO_UDP},
		{unix.AF_INET, unix.IPPROTO_ICMP},
		{unix.AF_INET6, unix.IPPROTO_IP},
		{unix.AF_INET6, unix.IPPROTO_TCP},
		{unix.AF_INET6, unix.IPPROTO_UDP},
		{unix.AF_INET6, unix.IPPROTO_ICMPV6},
		{unix.AF_NETLINK, unix.NETLINK_ROUTE},
	} {
		checks = append(checks, check{[]condition{is(family, p.family), is(protocol, p.protocol)}, retAllow})
	}
	for _, f := range []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		checks = append(checks, check{[]condition{is(family, f)}, errno(unix.EPROTONOSUPPORT)})
	}
	return checks
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
