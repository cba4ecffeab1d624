package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What an instance's gate may take, on top of what the instance was promised.
const (
	gateMemory = 128 << 20
	gatePIDs   = 64
)

// enterable makes the instance's cgroup and puts into the layout how to enter it. A
// machine without usable cgroups was reported, and nothing was promised of
// them. The count of out-of-memory kills so far is 0 where it can't be read:
// then no end is called out of memory.
func (b *Backend) enterable(sb *sandbox.Sandbox, p *Layout, cfg *control.Config) (oomKills uint64, err error) {
	limits := b.wall.Limits(sb.Spec.Limits)
	if sb.Link != nil {
		limits.Memory += gateMemory
		limits.PIDs += gatePIDs
	}
	group, err := b.cgroups.Create(sb.ID, limits)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p.Groups.Procs = group.ProcsFiles()
	oomKills, _ = group.OOMKills()
	if sb.Link != nil {
		if err := sb.Link.Join(group.ProcsFiles()); err != nil {
			return 0, err
		}
	}
	if b.wall.OwnCommands {
		return oomKills, commandGroup(group, sb.Spec.Limits, p, cfg)
	}
	return oomKills, nil
}

// commandGroup makes the part of group that commands are in, and tells the
// agent where it will see it.
func commandGroup(group *cgroup.Group, l sandbox.Limits, p *Layout, cfg *control.Config) error {
	uid, gid := int(p.Base), int(p.Base)
	if p.Base == 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	part, err := group.Commands(commandLimits(l), uid, gid)
	if err != nil {
		return err
	}
	p.Groups.Commands = part
	cfg.Hide = []string{GuestControl}
	cfg.Controllers = group.Controllers1()
	for i, f := range part.Tasks {
		cfg.Tasks = append(cfg.Tasks, p.show(f, fmt.Sprintf("tasks-%d", i)))
	}
	if part.Root != "" {
		cfg.CgroupRoot = p.show(part.Root, "cgroup")
	}
	if part.OOMFile != "" {
		cfg.OOMFile = p.show(part.OOMFile, "oom")
	}
	if part.PIDsFile != "" {
		cfg.PIDsFile = p.show(part.PIDsFile, "pids")
	}
	return nil
}

// show has a file or directory of the host's control groups shown to the agent
// alone, and returns its path inside.
func (lay *Layout) show(source, name string) string {
	lay.Shown = append(lay.Shown, shownGroup{Source: source, Name: name})
	return GuestControl + "/" + name
}

// Enter moves this process, and so all that it starts.
func (g Groups) Enter() error {
	for _, f := range g.Procs {
		if err := os.WriteFile(f, []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// Unified opens the instance's group of version 2, for a child to be born in; nil
// where there is none.
func (g Groups) Unified() (*os.File, error) {
	for _, f := range g.Procs {
		if unified(f) {
			return os.Open(filepath.Dir(f))
		}
	}
	return nil, nil
}

// Old reports whether there are groups of version 1 among them.
func (g Groups) Old() bool {
	return slices.ContainsFunc(g.Procs, func(f string) bool { return !unified(f) })
}

// unified reports whether a file of processes is of version 2.
func unified(procs string) bool {
	return !exists(filepath.Join(filepath.Dir(procs), "tasks"))
}

// Add moves a process that has done nothing yet into the groups of version 1,
// and then sets the commands' limits. Not the thread that starts it: with one
// thread in a group, this whole process would count as in it, and end with it.
func (g Groups) Add(pid int) error {
	for _, f := range g.Procs {
		if unified(f) {
			continue // born there
		}
		if err := os.WriteFile(f, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if g.Commands != nil {
		return g.Commands.Finish()
	}
	return nil
}

// Parts is into how many parts what a host counts for all its processes, or
// all of a user's, is divided: an instance gets one.
const Parts = 16

// MinFiles is what any program may expect to open.
const MinFiles = 1024

// HostCount reads one number below /proc/sys.
func HostCount(name string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return 0, fmt.Errorf("read what the host can count: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read what the host can count: %s: %w", name, err)
	}
	return n, nil
}

// Share is an instance's part of a count, not below least, which is what programs
// need. No instance gets more than half, whatever they need.
func Share(count, least uint64) uint64 {
	return max(min(max(count/Parts, least), count/2), 1)
}

// FilesOf is how many descriptors each of so many processes may have, which
// together hold an instance's share of the host's open files, or MinFiles where that
// is more.
func FilesOf(hostFiles uint64, processes int64) uint64 {
	return max(hostFiles/Parts/uint64(max(processes, 1)), MinFiles)
}
