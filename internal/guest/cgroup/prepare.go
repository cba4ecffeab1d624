package cgroup

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Prepare makes a Hierarchy below base, the open directory of the caller's own
// cgroup, or of Root.
func Prepare(base *os.File, opts Options) (*Hierarchy, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Name == "" && opts.Root == "" {
		// Another agent may live in the same cgroup.
		opts.Name = "carboy-" + rand.Text()
	}
	t := &Hierarchy{name: opts.Name, log: opts.Log, live: map[*Group]struct{}{}}
	t.limit.Store(opts.PIDs)
	var err error
	if t.base, err = openDir(base, "."); err != nil {
		return nil, fmt.Errorf("open own cgroup: %w", err)
	}
	prepare := t.prepare
	if opts.Root != "" {
		t.name, prepare = "", t.prepareRoot
	}
	err = prepare(opts)
	if err == nil {
		err = t.count(opts)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// prepare makes what a Hierarchy needs in a hierarchy that is ours to arrange.
func (t *Hierarchy) prepare(opts Options) error {
	top, err := makeDir(t.base, t.name)
	if err != nil {
		return err
	}
	defer top.Close()
	// A group that hands controllers to its children has no process itself.
	agent, err := makeDir(top, "agent")
	if err != nil {
		return err
	}
	defer agent.Close()
	if t.dir, err = makeDir(top, "commands"); err != nil {
		return err
	}
	if opts.Namespace {
		if t.ns, err = namespaceAt(t.dir); err != nil {
			t.log.Info("cgroup namespace", "err", err) // commands see where their groups are, and not what they may
		}
	}
	if err := write(agent, "cgroup.procs", "0"); err != nil {
		return fmt.Errorf("leave the commands' cgroup: %w", err)
	}
	hand := func(controller string) bool {
		for _, dir := range []*os.File{t.base, top, t.dir} {
			if write(dir, "cgroup.subtree_control", controller) != nil {
				return false
			}
		}
		return true
	}
	// A kernel that keeps no record of what it killed for memory still says how much is
	// used, and takes down a limit for commands to read.
	if hand("+memory") {
		t.memory = exists(top, "memory.oom.group")
	}
	for _, dir := range []*os.File{t.base, top} {
		_ = write(dir, "cgroup.subtree_control", "+cpu") // where there is no such controller there is nothing to read
	}
	t.tell(opts.CPUs, opts.Memory)
	if !hand("+pids") {
		return nil
	}
	t.each, t.bound = true, true
	if opts.PIDs > 0 {
		if err := write(t.dir, "pids.max", strconv.FormatInt(opts.PIDs, 10)); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
	}
	return nil
}

// openRoot is Open where the host has mounted the hierarchy.
func openRoot(opts Options) (*Hierarchy, error) {
	base, err := os.OpenFile(opts.Root, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open own cgroup: %w", err)
	}
	defer base.Close()
	var st unix.Statfs_t
	if err := at(base, func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return nil, fmt.Errorf("open own cgroup: %w", err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("open own cgroup: %s is not of cgroup v2", opts.Root)
	}
	return Prepare(base, opts)
}

// prepareRoot is prepare where the host has made the groups and set their
// limits. It gives each command's group the controllers that the commands'
// has, for their counters.
func (t *Hierarchy) prepareRoot(opts Options) error {
	agent, err := makeDir(t.base, "agent")
	if err != nil {
		return err
	}
	defer agent.Close()
	// To be there already and to have no right to move is as good.
	if err := write(agent, "cgroup.procs", "0"); err != nil {
		if own, _ := ids(agent, "cgroup.procs"); !own {
			return fmt.Errorf("leave the commands' cgroup: %w", err)
		}
	}
	if t.dir, err = makeDir(t.base, "commands"); err != nil {
		return err
	}
	t.shown.Store(opts.Memory)
	if exists(t.dir, "memory.events") {
		if err := write(t.dir, "cgroup.subtree_control", "+memory"); err != nil {
			return fmt.Errorf("count memory: %w", err)
		}
		t.memory = true
	}
	if exists(t.dir, "pids.events") {
		if err := write(t.dir, "cgroup.subtree_control", "+pids"); err != nil {
			return fmt.Errorf("count processes: %w", err)
		}
		t.each = true
		return t.watchPIDs()
	}
	t.bound = opts.PIDsFile != "" // the host would not have it counted otherwise
	return nil
}

// watchPIDs looks whether the host has set a limit. The kernel keeps commands
// from forking beyond it, but not the agent from putting one more among them.
func (t *Hierarchy) watchPIDs() error {
	f, err := open(t.dir, "pids.max", unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("read the limit of processes: %w", err)
	}
	defer f.Close()
	if t.most, t.bound = number(f); !t.bound {
		return nil
	}
	if t.now, err = open(t.dir, "pids.current", unix.O_RDONLY); err != nil {
		return fmt.Errorf("count processes: %w", err)
	}
	return nil
}

// count opens what counts for all commands together.
func (t *Hierarchy) count(opts Options) (err error) {
	switch {
	case t.each:
		t.pids, err = open(t.dir, "pids.events", unix.O_RDONLY)
	case opts.PIDsFile != "":
		t.pids, err = openCounter(opts.PIDsFile, "max")
	}
	if err != nil {
		return fmt.Errorf("watch the limit of processes: %w", err)
	}
	if !t.memory && opts.OOMFile != "" {
		if t.oom, err = openCounter(opts.OOMFile, "oom_kill"); err != nil {
			return fmt.Errorf("watch the limit of memory: %w", err)
		}
	}
	return nil
}

// openCounter opens a file of the host's, which must have the key.
func openCounter(name, key string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if _, ok := counter(f, key); !ok {
		_ = f.Close()
		return nil, fmt.Errorf("%s has no %s", name, key)
	}
	return f, nil
}
