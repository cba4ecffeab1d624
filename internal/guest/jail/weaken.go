package jail

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// open reports whether commands are born with all that the agent has open: where
// that is seeded, or what only package syscall can do.
func open() bool {
	return weak.On(weak.BirthOpen) || weak.On(weak.CapabilityKept) || weak.On(weak.DescriptorsKept)
}

// forkOpen has the kernel open the program with the agent's files.
func forkOpen(c Command, file string, traced bool, cgroup int) (pid, pidfd int, err error) {
	pidfd = -1
	attr := &syscall.ProcAttr{Env: c.Env, Sys: &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID, Groups: c.User.groups()},
		Setsid:     true, Setctty: c.Terminal, PidFD: &pidfd, Ptrace: traced,
		UseCgroupFD: cgroup > 0, CgroupFD: cgroup,
	}}
	for _, f := range c.Files {
		raw, err := f.SyscallConn()
		if err != nil {
			return 0, -1, fmt.Errorf("pass %s: %w", f.Name(), err)
		}
		_ = raw.Control(func(fd uintptr) { attr.Files = append(attr.Files, fd) })
	}
	weaken(attr)
	pid, err = syscall.ForkExec(file, c.Argv, attr)
	runtime.KeepAlive(c.Files)
	return pid, pidfd, err
}

// weaken seeds, in weakened binaries, what a command must not have.
func weaken(attr *syscall.ProcAttr) {
	if weak.On(weak.CapabilityKept) {
		attr.Sys.AmbientCaps = weakCapabilities
	}
	if weak.On(weak.DescriptorsKept) {
		keepDescriptors()
	}
}

// groups are what a command gets.
func (u User) groups() []uint32 {
	if weak.On(weak.GroupsKept) && !slices.Contains(u.Groups, 0) {
		return append(slices.Clone(u.Groups), 0)
	}
	return u.Groups
}

// keepDescriptors lets commands inherit the agent's files, directories,
// namespaces and sockets. Pipes stay its own, lest somebody waits for their
// end for ever.
func keepDescriptors() {
	for fd := 3; fd < 1024; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFDIR, unix.S_IFSOCK:
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
	}
}
