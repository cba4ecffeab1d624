package filters

import (
	"sync"
	_ "unsafe" // for linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentryfilter "gvisor.dev/gvisor/runsc/boot/filter"
	_ "gvisor.dev/gvisor/runsc/boot/filter/config" // has what sentryRules is
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
	_ "gvisor.dev/gvisor/runsc/fsgofer/filter/config" // has what goferRules is
)

// The maps that gVisor looks programs up in. They are made, empty, when one is
// looked up for the first time.
var (
	//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
	sentryPrograms map[string]precompiledseccomp.Program
	//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
	goferPrograms map[string]precompiledseccomp.Program
)

// register adds programs to those that the sentry and the gofer find.
func register(sentry, gofer func() []precompiledseccomp.Program) {
	sentryfilter.GetPrecompiled("")
	goferfilter.GetPrecompiled("")
	for _, p := range sentry() {
		sentryPrograms[p.Name] = p
	}
	for _, p := range gofer() {
		goferPrograms[p.Name] = p
	}
}

// sentryRules are gVisor's rules for every sentry, which it copies from when it builds a
// filter.
//
//go:linkname sentryRules gvisor.dev/gvisor/runsc/boot/filter/config.allowedSyscalls
var sentryRules seccomp.SyscallRules

// goferRules are gVisor's rules for every gofer, which it copies from in the same way.
//
//go:linkname goferRules gvisor.dev/gvisor/runsc/fsgofer/filter/config.allowedSyscalls
var goferRules seccomp.SyscallRules

// allowOwners adds what a gofer needs to make files as others: see package owner.
var allowOwners = sync.OnceFunc(func() { goferRules.Merge(ownerRules()) })

func ownerRules() seccomp.SyscallRules {
	return seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
		unix.SYS_SETFSUID: seccomp.MatchAll{},
		unix.SYS_SETFSGID: seccomp.MatchAll{},
	})
}

// allowLocks adds what a sentry needs to hold locks on the host: see package hostlock. They
// are of files that it has open, and none is waited for.
var allowLocks = sync.OnceFunc(func() { sentryRules.Merge(lockRules()) })

func lockRules() seccomp.SyscallRules {
	second := func(values ...uint64) seccomp.SyscallRule {
		var or seccomp.Or
		for _, v := range values {
			or = append(or, seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(v)})
		}
		return or
	}
	return seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
		unix.SYS_FCNTL: second(unix.F_OFD_SETLK, unix.F_OFD_GETLK),
		unix.SYS_FLOCK: second(unix.LOCK_SH|unix.LOCK_NB, unix.LOCK_EX|unix.LOCK_NB, unix.LOCK_UN),
	})
}
