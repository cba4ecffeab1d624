package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuset is the controller whose groups an instance has only to be shown them. In
// version 1 a runtime that misses one of the trees that it reads believes in
// none of its limits, and the group that it would otherwise be shown is everybody's.
const cpuset = "cpuset"

// findCPUSets remembers the version 1 tree of cpuset, if groups can be made there.
func (h *Host) findCPUSets(mounts []mount) {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 1 && slices.Contains(m.options, cpuset) })
	if i < 0 || whyNot(mounts[i].point, mounts[i].ro) != "" {
		return
	}
	for _, t := range h.trees {
		if t.base == mounts[i].point { // mounted together with a controller that is of use
			t.sets = true
			return
		}
	}
	h.sets = &hierarchy{version: 1, base: mounts[i].point, sets: true}
}

// AddCPUSets has each group that is made from now on have a part in the version 1 tree
// of cpuset too, with all that is in it. It limits nothing. It is called before groups
// are made.
func (h *Host) AddCPUSets() {
	if h.sets != nil && !slices.Contains(h.trees, h.sets) {
		h.trees = append([]*hierarchy{h.sets}, h.trees...)
	}
}

// bare reports whether the tree limits and counts nothing: a group that was made before
// it was of use has no part in it.
func (t *hierarchy) bare() bool { return t.version == 1 && len(t.controllers) == 0 }

// inherit gives a new group of the tree the processors and the memory of its parent,
// without which nothing can enter it.
func (t *hierarchy) inherit(parent *os.File, name string) error {
	if !t.sets {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := readFile(parent, name+"/"+file)
		if err != nil {
			return fmt.Errorf("read %s of group %s: %w", file, name, err)
		}
		if strings.TrimSpace(string(has)) != "" {
			continue
		}
		all, err := readFile(parent, file)
		if err != nil {
			return fmt.Errorf("read %s of the group above %s: %w", file, name, err)
		}
		if err := writeFile(parent, name+"/"+file, strings.TrimSpace(string(all))); err != nil {
			return fmt.Errorf("give group %s the processors of the one above: %w", name, err)
		}
	}
	return nil
}

// Controllers1 are the controllers of version 1 in whose trees the group has a part:
// what such a tree shows of it is its own.
func (g *Group) Controllers1() []string {
	var out []string
	for _, t := range g.host.trees {
		if t.version != 1 {
			continue
		}
		out = append(out, t.controllers...)
		if t.sets {
			out = append(out, cpuset)
		}
	}
	return out
}

// absent reports whether an error is that of a group which has no part in t, as those
// that an older daemon made have none in a bare tree.
func (t *hierarchy) absent(err error) bool {
	return t.bare() && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV))
}
