package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// guestGroups are what Refuse refuses. The rest of what Confine does is the
// guest's own kernel's affair: so are user namespaces, in which browsers put
// their pages and builds are root. Their root mounts nothing either.
var guestGroups = []Group{SetID, IOUring, Mounts, Tracing, Devices}

// Requests of ptrace that stop a call when the filter has allowed it already,
// and the option that has a filter of the tracee's own do so.
const (
	ptraceSysemuStep    = 32
	ptraceOptionSeccomp = 1 << 7
)

func tracingChecks() []check {
	const request, data = 0, 3
	return []check{
		{[]condition{is(request, unix.PTRACE_SYSCALL)}, refuse},
		{[]condition{is(request, unix.PTRACE_SYSEMU)}, refuse},
		{[]condition{is(request, ptraceSysemuStep)}, refuse},
		{[]condition{is(request, unix.PTRACE_SETOPTIONS), hasAny(data, ptraceOptionSeccomp)}, refuse},
		{[]condition{is(request, unix.PTRACE_SEIZE), hasAny(data, ptraceOptionSeccomp)}, refuse},
	}
}

// Refuse installs the filter of commands on a kernel of the guest's own, as
// Confine does. It refuses what its groups name, but for chroot, which is a
// right of root's that package managers use. Of the options, Clone3 is none of
// its own: with Marks, clone3 is refused, and so is every call that makes a
// UTS namespace.
//
// What carries its arguments in memory, where a filter can't see them, is said
// not to exist: openat2, io_uring and, with Marks, clone3.
func Refuse(o Options) error {
	foreign := refuse
	if o.Foreign {
		foreign = retAllow
	}
	return install(assemble(o.guest(), retAllow, foreign, foreign), 0)
}

// guest is the table that Refuse enforces.
func (o Options) guest() map[uint32]verdict {
	open := func(g Group) bool { return !slices.Contains(guestGroups, g) || slices.Contains(o.Open, g) }
	t := map[uint32]verdict{}
	for _, r := range slices.Concat(refusals, refusalsHere) {
		for _, nr := range r.nrs {
			if !open(r.group) {
				t[nr] = verdict{action: r.action}
			}
		}
	}
	for nr, parts := range conditional(o.Marks) {
		parts = slices.DeleteFunc(parts, func(p part) bool { return open(p.group) })
		if len(parts) > 0 {
			t[nr] = join(t[nr], parts)
		}
	}
	delete(t, unix.SYS_CHROOT)
	if !open(Tracing) {
		t[unix.SYS_PTRACE] = verdict{checks: tracingChecks(), action: retAllow}
	}
	if o.Marks {
		unmark := verdict{checks: []check{{[]condition{hasAny(0, unix.CLONE_NEWUTS)}, refuse}}, action: retAllow}
		t[unix.SYS_CLONE], t[unix.SYS_UNSHARE] = unmark, unmark
		t[unix.SYS_CLONE3] = verdict{action: unknown}
	}
	return t
}
