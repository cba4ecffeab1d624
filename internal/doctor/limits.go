package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
)

// controlGroups makes a group with limits, puts a child into it, and removes
// it: one line for each controller.
func controlGroups(ctx context.Context, m *machine) []Line {
	h, err := cgroup.Find("/", groupsOf(m.scratch.name()))
	if err != nil {
		return []Line{outcome(Missing, err.Error()).because("no limit of a sandbox is kept")}
	}
	tried := m.tryGroup(ctx, h)
	err = errors.Join(h.Prune(), h.Close())
	var lines []Line
	for _, c := range h.Controllers() {
		l := controllerLine(c, h.Mode(), m.root, tried)
		l.ID, l.Title = "cgroup-"+c.Name, "control group "+c.Name
		lines = append(lines, l)
	}
	if err != nil {
		lines = append(lines, outcome(Weaker, "could not remove the groups that were tried: "+err.Error()))
	}
	return lines
}

// groupsOf names the place among the control groups that a run has.
func groupsOf(run string) string { return "doctor_" + run }

// sweepGroups removes the groups of a run that was killed.
func sweepGroups(ctx context.Context, run string) {
	h, err := cgroup.Find("/", groupsOf(run))
	if err != nil {
		return
	}
	names, _ := h.List() // what can't be listed, can't be removed
	for _, name := range names {
		if g, err := h.Open(name); err == nil && g.Kill(ctx) == nil {
			_ = g.Remove(ctx)
		}
	}
	_ = h.Prune()
	_ = h.Close()
}

// tryGroup does with a group what a wall does.
func (m *machine) tryGroup(ctx context.Context, h *cgroup.Host) (err error) {
	usable := false
	for _, c := range h.Controllers() {
		usable = usable || c.Usable
	}
	if !usable {
		return nil // their reasons say it
	}
	g, err := h.Create("probe", cgroup.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 64})
	if err != nil {
		return err
	}
	c, err := m.begin(ctx, 0, "wait")
	if err == nil {
		err = g.Enter(c.cmd.Process.Pid)
		c.kill()
	}
	clean, cancel := soon(ctx)
	defer cancel()
	return errors.Join(err, g.Remove(clean))
}

// unkept says what the lack of a controller costs.
var unkept = map[string]string{
	"memory":  "a sandbox's memory is not limited",
	"cpu":     "a sandbox's processors are not limited",
	"pids":    "the processes of a sandbox are not limited by the machine; gVisor counts them inside all the same",
	"cpuacct": "a sandbox's processor time is not counted",
}

func controllerLine(c cgroup.Controller, mode cgroup.Mode, root bool, tried error) Line {
	switch {
	case c.Usable && tried == nil:
		return outcome(OK, fmt.Sprintf("version %d: made a group, set a limit, and put a child in", c.Version))
	case c.Usable:
		return outcome(Missing, tried.Error()).because(unkept[c.Name]).mendedBy(delegate(root))
	}
	l := outcome(Weaker, c.Reason).because(unkept[c.Name])
	switch {
	case mode == cgroup.ModeNone:
		return l.mendedBy("as root: mount -t cgroup2 none /sys/fs/cgroup")
	case strings.Contains(c.Reason, "read-only"):
		return l.mendedBy("start the container with control groups that it may write, such as --cgroupns=private with a writable /sys/fs/cgroup")
	case c.Version == 1 && !root:
		return l.mendedBy("run carboy as root, or boot with systemd.unified_cgroup_hierarchy=1: version 1 can't be given to users")
	}
	return l.mendedBy(delegate(root))
}

// delegate says how to get a part of the tree.
func delegate(root bool) string {
	if root {
		return "run carboy in a unit with Delegate=yes: systemd-run --scope -p Delegate=yes carboy serve"
	}
	return "systemd-run --user --scope -p Delegate=yes carboy serve (over ssh, once: loginctl enable-linger)"
}
