package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
)

// Options configure a View.
type Options struct {
	Machine api.Machine
	// Dir is where the View keeps its files, in a directory that commands don't see.
	Dir string
	// Native says that the kernel is the host's.
	Native bool
	// Controllers are those of cgroup v1 in which the instance has groups of its own.
	Controllers []string
	Groups      *cgroup.Hierarchy // nil: there is none
	Log         *slog.Logger
}

// View is what commands are shown. Its methods may be called from several goroutines.
type View struct {
	opts    Options
	allowed []int
	groups  bool // commands see control groups, and not just files named alike
	began   chan struct{}

	mu         sync.Mutex
	tree       *tree
	machine    api.Machine
	processors []int
	fresh      time.Time // when what changes by itself was written last
}

// Place is a file or directory, and where commands see it.
type Place struct{ Source, Target string }

// Names in the tree. Below sys is what commands see as /sys where the kernel is the host's.
const (
	nameCPUs    = "sys/devices/system/cpu/"
	nameGroups  = "sys/fs/cgroup"
	nameMeminfo = "proc/meminfo"
	nameCPUInfo = "proc/cpuinfo"
	nameStat    = "proc/stat"
)

// Open makes what commands will see. Places says where.
func Open(opts Options) (*View, error) {
	v := &View{opts: opts, machine: opts.Machine, began: make(chan struct{}, 1)}
	var err error
	if v.allowed, err = allowed(); err != nil {
		return nil, err
	}
	if v.tree, err = newTree(opts.Dir); err != nil {
		return nil, fmt.Errorf("make files to show: %w", err)
	}
	if err = os.MkdirAll(v.tree.at(nameGroups), 0o755); err == nil {
		err = v.showGroups()
	}
	if err == nil {
		err = v.write()
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close takes away what commands that start later would see.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tree.close()
}

// showGroups mounts the control groups of commands. Where there are none that could be
// shown, write makes files of the same names.
func (v *View) showGroups() (err error) {
	at := v.tree.at(nameGroups)
	switch {
	case len(v.opts.Controllers) > 0:
		err = cgroup.ShowOld(at, v.opts.Controllers)
	case v.opts.Groups != nil && v.opts.Groups.CanShow():
		if err = v.opts.Groups.Show(at); err == nil {
			v.groups = true
		}
	}
	return err
}

// Processors are those that commands are to run on.
func (v *View) Processors() []int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.processors)
}

// Places are what commands are to see, the outer ones first.
func (v *View) Places() []Place {
	at := v.tree.at
	list := []Place{{at(nameCPUInfo), "/proc/cpuinfo"}, {at(nameStat), "/proc/stat"}}
	if v.opts.Native {
		return append(list, Place{at(nameMeminfo), "/proc/meminfo"}, Place{at("sys"), "/sys"})
	}
	// What is possible stays as the kernel says. Commands run on more processors than they see
	// there, and some programs do without locks where one is all that there can be.
	list = append(list, Place{at(nameCPUs + "online"), "/sys/devices/system/cpu/online"})
	if v.groups {
		list = append(list, Place{at(nameGroups), "/sys/fs/cgroup"})
	}
	return list
}

// Set changes what commands see, and returns the processors that they are to run on now, and
// those of before.
func (v *View) Set(m api.Machine) (now, before []int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.machine, before = m, v.processors
	if err := v.write(); err != nil {
		return nil, nil, err
	}
	if v.opts.Groups != nil {
		v.opts.Groups.Tell(m.CPUs, m.Memory)
	}
	return slices.Clone(v.processors), before, nil
}

// write writes all files anew.
func (v *View) write() error {
	m := v.machine
	v.processors = choose(m.CPUs, m.Processors, v.allowed)
	list := format(v.processors)
	for _, name := range []string{"online", "possible", "present"} {
		if err := v.tree.line(nameCPUs+name, list); err != nil {
			return fmt.Errorf("show processors: %w", err)
		}
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		err = v.tree.put(nameCPUInfo, cpuinfo(info, v.processors))
	}
	if err != nil {
		return fmt.Errorf("show processors: %w", err)
	}
	if !v.groups {
		if err := v.writeGroups(list); err != nil {
			return fmt.Errorf("show limits: %w", err)
		}
	}
	return v.refresh()
}

// writeGroups writes the files of version 2 by which programs find limits that do not look
// what is mounted.
func (v *View) writeGroups(list string) error {
	m := v.machine
	files := map[string]string{
		"cpu.max": cgroup.CPUMax(m.CPUs), "memory.max": cgroup.Max(m.Memory), "memory.swap.max": "0",
		"pids.max": cgroup.Max(m.PIDs), "cpuset.cpus.effective": list,
	}
	for name, text := range files {
		if err := v.tree.line(nameGroups+"/"+name, text); err != nil {
			return err
		}
	}
	return v.link()
}

// link names the figures of version 1 as version 2 has them.
func (v *View) link() error {
	for name, target := range map[string]string{
		"memory.current": "memory/memory.usage_in_bytes", "pids.current": "pids/pids.current",
	} {
		at := v.tree.at(nameGroups + "/" + name)
		if _, err := os.Stat(v.tree.at(nameGroups + "/" + target)); err != nil {
			continue
		}
		if err := os.Symlink(target, at); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
