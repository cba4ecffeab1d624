package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Group is the control group of one instance: a directory in each tree of use. It
// holds nothing open. Its methods may be called from several goroutines.
type Group struct {
	host     *Host
	name     string
	enforced []sandbox.Enforcement
}

// Create makes a group and sets the limits that this machine can enforce;
// Enforced tells about each. It fails with Invalid for a name or limit that
// can never be, with Conflict where the group exists, and with Unsupported
// where no cgroup tree is usable. After an error no group is left.
func (h *Host) Create(name string, l Limits) (*Group, error) {
	if err := checkName("cgroup name", name); err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if len(h.trees) == 0 {
		return nil, sandbox.Errorf(sandbox.Unsupported, "no usable cgroups: %s", h.ctls["memory"].Reason)
	}
	g := &Group{host: h, name: name, enforced: h.Report(l)}
	for i, t := range h.trees {
		err := h.createIn(t, name, l)
		if err == nil {
			continue
		}
		for _, u := range h.trees[:i] {
			if p, perr := h.prepare(u); perr == nil {
				err = errors.Join(err, h.tree.rmdir(p, name))
			}
		}
		return nil, err
	}
	return g, nil
}

// mostPruned is how often the directories above a new group may be pruned by
// others, who have none in them, before it is there.
const mostPruned = 100

// createIn makes the group's directory in one tree and sets its limits.
func (h *Host) createIn(t *hierarchy, name string, l Limits) error {
	parent, err := h.makeIn(t, name)
	for range mostPruned {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrClosed) {
			break
		}
		t.forget()
		parent, err = h.makeIn(t, name)
	}
	if err != nil {
		return err
	}
	if err = t.inherit(parent, name); err == nil {
		err = t.set(parent, name, l)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("limit group %s: %w", name, err), h.tree.rmdir(parent, name))
	}
	return nil
}

// makeIn makes the group's directory in one tree, and returns its parent.
func (h *Host) makeIn(t *hierarchy, name string) (*os.File, error) {
	parent, err := h.prepare(t)
	if err != nil {
		return nil, err
	}
	err = h.tree.mkdir(parent, name)
	if errors.Is(err, unix.EEXIST) {
		return nil, sandbox.Errorf(sandbox.Conflict, "cgroup %s exists in %s", name, t.path(h.ns))
	}
	if err != nil {
		return nil, fmt.Errorf("make group %s in %s: %w", name, t.path(h.ns), err)
	}
	return parent, nil
}

// set writes the limits that this tree's controllers keep.
func (t *hierarchy) set(parent *os.File, name string, l Limits) error {
	return t.each(l, func(s setting, v string) error {
		err := writeFile(parent, name+"/"+s.file, v)
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("set %s to %s: %w", s.file, v, err)
		}
		return nil
	})
}

// each calls f with all that is to be written for l, in order, until it fails.
func (t *hierarchy) each(l Limits, f func(s setting, value string) error) error {
	for i := range promises {
		p := &promises[i]
		if !p.wanted(l) || !slices.Contains(t.controllers, p.controller) {
			continue
		}
		for _, s := range p.settings(t.version) {
			v := s.value(l)
			if v == "" {
				continue
			}
			if err := f(s, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open returns the group that an earlier process made, with NotFound where
// nothing of it is left in any tree. Its Enforced is empty.
func (h *Host) Open(name string) (*Group, error) {
	if err := checkName("cgroup name", name); err != nil {
		return nil, err
	}
	for _, t := range h.trees {
		if fi, err := os.Lstat(path.Join(t.path(h.ns), name)); err == nil && fi.IsDir() {
			return &Group{host: h, name: name}, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "cgroup %s: not found", name)
}

// ProcsFiles returns the absolute paths of the files into each of which a
// process writes "0" to put itself into the group, or another's number.
func (g *Group) ProcsFiles() []string {
	out := make([]string, len(g.host.trees))
	for i, t := range g.host.trees {
		out[i] = path.Join(t.path(g.host.ns), g.name, "cgroup.procs")
	}
	return out
}

// Enter moves a process, with all its threads but none of its children, into
// the group. It fails with NotFound where the group or the process is gone;
// the process may then be in some of the trees and not in others.
func (g *Group) Enter(pid int) error {
	if pid <= 0 {
		return sandbox.Errorf(sandbox.Invalid, "process number %d", pid)
	}
	for _, t := range g.host.trees {
		err := g.write(t, "cgroup.procs", strconv.Itoa(pid))
		if errors.Is(err, unix.EBUSY) && t.version == 2 { // Finish has divided the group
			err = g.write(t, agentGroup+"/cgroup.procs", strconv.Itoa(pid))
		}
		if t.absent(err) {
			continue
		}
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.NotFound, "enter cgroup %s: %w", g.name, err)
		}
		if err != nil {
			return fmt.Errorf("put process %d into group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// open opens the group's directory in one tree.
func (g *Group) open(t *hierarchy) (*os.File, error) {
	parent, err := g.host.existing(t)
	if err != nil {
		return nil, err
	}
	return openDir(parent, g.name)
}

// MemoryCurrent returns the bytes that are charged to the group now, file
// cache included.
func (g *Group) MemoryCurrent() (int64, error) {
	return g.number("memory", "memory.usage_in_bytes", "memory.current")
}

// Reclaimable returns the bytes of MemoryCurrent that the kernel can take back: contents of files and,
// in version 2 alone, which counts them apart, the names and inodes of files.
func (g *Group) Reclaimable() (int64, error) {
	t := g.treeOf("memory")
	if t == nil {
		return 0, g.lacking("memory")
	}
	b, err := g.read(t, "memory.stat")
	if err != nil {
		return 0, g.readErr(t, "memory.stat", err)
	}
	all, shared := "total_cache", "total_shmem"
	if t.version == 2 {
		all, shared = "file", "shmem"
	}
	cache, ok := parseKeyed(b, all)
	if !ok {
		return 0, sandbox.Errorf(sandbox.Unsupported, "this kernel's memory.stat has no %s", all)
	}
	shmem, _ := parseKeyed(b, shared) // memory that nothing is behind, though it is counted with files
	names, _ := parseKeyed(b, "slab_reclaimable")
	return int64(cache - min(cache, shmem) + names), nil
}

// Reclaim has the kernel take back memory of the group: n bytes or as many as it can; in version 1, all that
// it can.
func (g *Group) Reclaim(n int64) error {
	t := g.treeOf("memory")
	if t == nil {
		return g.lacking("memory")
	}
	file, value := "memory.force_empty", "0"
	if t.version == 2 {
		file, value = "memory.reclaim", strconv.FormatInt(n, 10)
	}
	if err := g.write(t, file, value); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("group %s: %s: %w", g.name, file, err)
	}
	return nil
}

// CPUUsage returns the processor time that the group has used.
func (g *Group) CPUUsage() (time.Duration, error) {
	if c, ok := g.host.ctls["cpuacct"]; ok && c.Usable && c.Version == 1 {
		n, err := g.number("cpuacct", "cpuacct.usage", "")
		return time.Duration(n), err
	}
	t := g.v2() // every group of version 2 counts, whatever its controllers
	if t == nil {
		return 0, g.lacking("cpuacct")
	}
	n, err := g.keyedIn(t, "cpu.stat", "usage_usec")
	return time.Duration(n) * time.Microsecond, err
}

// number reads the one number of a file of the controller's tree.
func (g *Group) number(controller, v1, v2 string) (int64, error) {
	t := g.treeOf(controller)
	if t == nil {
		return 0, g.lacking(controller)
	}
	file := v1
	if t.version == 2 {
		file = v2
	}
	b, err := g.read(t, file)
	if err != nil {
		return 0, g.readErr(t, file, err)
	}
	n, err := parseNumber(b)
	if err != nil {
		return 0, fmt.Errorf("group %s: %s: %w", g.name, file, err)
	}
	return int64(n), nil
}

func (g *Group) keyed(controller, file, key string) (uint64, error) {
	t := g.treeOf(controller)
	if t == nil {
		return 0, g.lacking(controller)
	}
	return g.keyedIn(t, file, key)
}

func (g *Group) keyedIn(t *hierarchy, file, key string) (uint64, error) {
	b, err := g.read(t, file)
	if err != nil {
		return 0, g.readErr(t, file, err)
	}
	n, ok := parseKeyed(b, key)
	if !ok {
		return 0, sandbox.Errorf(sandbox.Unsupported, "this kernel's %s has no %s", file, key)
	}
	return n, nil
}

// readErr tells a group that is gone from a file that this kernel lacks.
func (g *Group) readErr(t *hierarchy, file string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("group %s: read %s: %w", g.name, file, err)
	}
	if _, err := g.read(t, path.Join(path.Dir(file), "cgroup.procs")); err == nil {
		return sandbox.Errorf(sandbox.Unsupported, "this kernel has no %s", file)
	}
	return sandbox.Errorf(sandbox.NotFound, "cgroup %s: not found", g.name)
}

func (g *Group) lacking(controller string) error {
	return sandbox.Errorf(sandbox.Unsupported, "cgroup controller %s: %s", controller, g.host.ctls[controller].Reason)
}

// treeOf returns the tree of a controller, or nil.
func (g *Group) treeOf(controller string) *hierarchy {
	for _, t := range g.host.trees {
		if slices.Contains(t.controllers, controller) {
			return t
		}
	}
	return nil
}

// v2 returns the version 2 tree, or nil.
func (g *Group) v2() *hierarchy {
	for _, t := range g.host.trees {
		if t.version == 2 {
			return t
		}
	}
	return nil
}

func (g *Group) read(t *hierarchy, file string) ([]byte, error) {
	parent, err := g.host.existing(t)
	if err != nil {
		return nil, err
	}
	return readFile(parent, g.name+"/"+file)
}

func (g *Group) write(t *hierarchy, file, value string) error {
	parent, err := g.host.existing(t)
	if err != nil {
		return err
	}
	return writeFile(parent, g.name+"/"+file, value)
}
