package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// rootCapabilities are what root's commands keep: a container engine's usual
// set without the making of device nodes, raw sockets and file capabilities.
const rootCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_AUDIT_WRITE

// weakCapabilities are kept by everyone where that is seeded.
var weakCapabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE}

// prepare checks what the configuration asks for and finds what the kernel
// has for it.
func (j *Jail) prepare() error {
	if j.cfg.OOMScore < 0 || j.cfg.OOMScore > 1000 {
		return fmt.Errorf("oom score %d: may be from 0 to 1000", j.cfg.OOMScore)
	}
	if err := j.cfg.checkWritable(); err != nil {
		return err
	}
	j.canHold = tracing()
	if j.cfg.OOMScore > 0 && !j.canHold {
		return errors.New("commands can't get an oom score: kernel.yama.ptrace_scope is 3, which forbids to hold them; 2 would do")
	}
	if j.cfg.Files > 0 && !j.canHold {
		return errors.New("commands' open files can't be limited: kernel.yama.ptrace_scope is 3, which forbids to hold them; 2 would do")
	}
	if !j.cfg.Strict {
		return nil
	}
	if err := limitResources(); err != nil {
		return err
	}
	if j.cfg.CgroupNS {
		var err error
		if j.cgroupNS, err = os.Open("/proc/self/ns/cgroup"); err != nil {
			return fmt.Errorf("open the cgroup namespace: %w", err)
		}
		j.clone3 = bornInGroups()
	}
	abi, err := landlockABI()
	switch {
	case err != nil:
		return err
	case abi < abiRefer:
		j.warn(fmt.Sprintf("Landlock: this kernel has version %d, and 2 is the oldest of use", abi))
	case !weak.On(weak.LandlockOff):
		j.landlock = abi
	}
	return nil
}

func (j *Jail) warn(text string) {
	j.cfg.Log.Warn("jail", "lacks", text)
}

// tracing reports whether processes may trace their children.
func tracing() bool {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return err != nil || strings.TrimSpace(string(scope)) != "3"
}

// confine returns the setup of a thread that forks commands.
func (j *Jail) confine(c *cell, root bool) func() error {
	return func() error {
		// The files are not to be seen from inside.
		for _, tasks := range j.cfg.Tasks {
			if err := enterTasks(tasks); err != nil {
				return err
			}
		}
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the shared working directory: %w", err)
		}
		for _, ns := range c.ns {
			if err := unix.Setns(int(ns.file.Fd()), ns.flag); err != nil {
				return fmt.Errorf("join %s: %w", ns.file.Name(), err)
			}
		}
		if j.cfg.Strict && !weak.On(weak.CgroupsShared) {
			if err := joinCgroupNS(j.cgroupNS); err != nil {
				return err
			}
		}
		if !weak.On(weak.NoNewPrivsOff) {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return fmt.Errorf("set no_new_privs: %w", err)
			}
		}
		if j.landlock > 0 {
			if err := enterDomain(j.landlock, j.cfg.hidden(), root); err != nil {
				return err
			}
		}
		if err := j.keepSockets(); err != nil {
			return err
		}
		if err := boundCapabilities(kept(root)); err != nil {
			return err
		}
		return j.filter()
	}
}

// joinCgroupNS puts the calling thread into the namespace of the process's
// first thread or, where that has none of its own, into a new one: where the
// instance is among the host's groups is no command's business. A command can be
// born in a group only if the forking process's namespace has that group.
func joinCgroupNS(first *os.File) error {
	if first == nil {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("make a cgroup namespace: %w", err)
		}
		return nil
	}
	if err := unix.Setns(int(first.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("join the cgroup namespace: %w", err)
	}
	return nil
}

// bornInGroups reports whether clone3 may be left to commands: nobody in this
// user namespace can make another.
func bornInGroups() bool {
	text, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// enterTasks moves the calling thread alone.
func enterTasks(tasks string) error {
	fd, err := unix.Open(tasks, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("enter the commands' cgroup: open %s: %w", tasks, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("0")); err != nil {
		return fmt.Errorf("enter the commands' cgroup: write %s: %w", tasks, err)
	}
	return nil
}

// kept is what commands have at most.
func kept(root bool) (keep uint64) {
	if root {
		keep = rootCapabilities
	}
	if weak.On(weak.CapabilityKept) {
		for _, c := range weakCapabilities {
			keep |= 1 << c
		}
	}
	return keep
}

// filter confines the system calls of the calling thread.
func (j *Jail) filter() error {
	if j.cfg.Strict && !weak.On(weak.FilterOff) {
		if err := seccomp.Confine(seccomp.Options{Marks: j.cfg.Marked, Open: openGroups(), Clone3: j.clone3, Foreign: weak.On(weak.ForeignAllowed)}); err != nil {
			return fmt.Errorf("allow the listed calls: %w", err)
		}
		return nil
	}
	if err := seccomp.Refuse(seccomp.Options{Marks: j.cfg.Marked, Open: openGroups(), Foreign: weak.On(weak.ForeignAllowed)}); err != nil {
		return fmt.Errorf("refuse mounts and set-id bits: %w", err)
	}
	return nil
}

// openGroups are what a weakened binary lets through.
func openGroups() (open []seccomp.Group) {
	for w, groups := range map[weak.Weakness][]seccomp.Group{
		weak.SetIDAllowed:     {seccomp.SetID},
		weak.IOUringAllowed:   {seccomp.IOUring},
		weak.AsyncIOAllowed:   {seccomp.AsyncIO},
		weak.KeyringAllowed:   {seccomp.Keyring},
		weak.UserfaultAllowed: {seccomp.Userfault},
		weak.BPFAllowed:       {seccomp.BPF},
		weak.PerfAllowed:      {seccomp.Perf},
		weak.MountAllowed:     {seccomp.Mounts},
		weak.NamespaceAllowed: {seccomp.Namespaces},
		weak.PtraceAllowed:    {seccomp.Inspection},
		weak.TracerAllowed:    {seccomp.Tracing},
		weak.RawSocketAllowed: {seccomp.Sockets},
		weak.ModuleAllowed:    {seccomp.Modules},
		weak.ClockAllowed:     {seccomp.Clocks},
		weak.LeaseAllowed:     {seccomp.Leases},
	} {
		if weak.On(w) {
			open = append(open, groups...)
		}
	}
	return open
}

// boundCapabilities leaves the calling thread what it has, and those that it
// will execute at most keep.
func boundCapabilities(keep uint64) error {
	held, err := rights.Held()
	if err != nil {
		return err
	}
	// Inheritable ones would survive root's exec whatever the bounding set
	// says; ambient ones go with them.
	held.Inheritable = 0
	if err := held.Set(); err != nil {
		return fmt.Errorf("clear inheritable capabilities: %w", err)
	}
	for n := uintptr(0); n < 64; n++ {
		if keep&(1<<n) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // past the kernel's last
			break
		}
		if err != nil {
			return fmt.Errorf("bound capability %d: %w", n, err)
		}
	}
	return nil
}
