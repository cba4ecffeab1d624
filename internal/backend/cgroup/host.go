package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Mode says which interface of the kernel this machine has.
type Mode string

// The modes.
const (
	ModeNone   Mode = "none"   // no cgroup tree is mounted
	ModeV1     Mode = "v1"     // a tree per controller
	ModeHybrid Mode = "hybrid" // controllers in version 1, and a version 2 tree beside them
	ModeV2     Mode = "v2"     // one tree for all
)

// wanted are the controllers of use here.
var wanted = []string{"memory", "cpu", "cpuacct", "pids"}

// Controller is what was found of one controller.
type Controller struct {
	Name    string
	Version int    // 1 or 2; 0 where it is nowhere
	Path    string // the directory below which groups are made
	Usable  bool
	Reason  string // why it is not usable
}

// top is the directory of all homes in a tree.
const top = "carboy"

// Host is this machine's cgroups, as far as the caller may use them. Its
// methods may be called from several goroutines at once.
type Host struct {
	ns    string
	mode  Mode
	trees []*hierarchy // those of use; version 2 last
	sets  *hierarchy   // the version 1 tree of cpuset, where it has no other controller; or nil
	ctls  map[string]Controller

	tree       groupFS
	removeWait time.Duration
}

// hierarchy is one tree in which groups are made.
type hierarchy struct {
	version     int
	controllers []string // those of this tree that are used
	base        string   // where top is made
	own         bool     // version 2: base is the caller's own group
	sets        bool     // version 1: a new group has no processors until it is given some

	mu     sync.Mutex
	parent *os.File // base/carboy/NAMESPACE, once it was opened
	ready  bool     // it was made, and passes the controllers on
}

// Find looks at the cgroups of the machine whose root directory is root ("/")
// and makes nothing. A machine without usable cgroups is no error: the Host's
// Controllers say why. The namespace keeps two homes apart.
func Find(root, namespace string) (*Host, error) {
	if err := checkName("cgroup namespace", namespace); err != nil {
		return nil, err
	}
	info, err := readProc(root, "mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := readProc(root, "cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := parseMounts(info)
	if err != nil {
		return nil, err
	}
	h := &Host{ns: namespace, mode: modeOf(mounts), ctls: map[string]Controller{}, tree: kernel{}, removeWait: RemoveWait}
	for i := range mounts {
		mounts[i].point = filepath.Join(root, mounts[i].point)
	}
	h.findV1(mounts)
	h.findCPUSets(mounts)
	h.findV2(mounts, parseOwn(own))
	for _, name := range wanted {
		if _, ok := h.ctls[name]; !ok && !(name == "cpuacct" && h.mode == ModeV2) {
			h.ctls[name] = Controller{Name: name, Reason: "no cgroup tree of this machine has the controller"}
		}
	}
	return h, nil
}

// readProc reads a file of the caller's own /proc directory.
func readProc(root, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(root, "proc/self", name))
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProcFile))
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	return b, nil
}

// modeOf names what is mounted.
func modeOf(mounts []mount) Mode {
	v1, v2 := false, false
	for _, m := range mounts {
		v2 = v2 || m.version == 2
		v1 = v1 || m.version == 1 && slices.ContainsFunc(m.options, func(o string) bool { return slices.Contains(wanted, o) })
	}
	switch {
	case v1 && v2:
		return ModeHybrid
	case v1:
		return ModeV1
	case v2:
		return ModeV2
	}
	return ModeNone
}

// findV1 takes each controller from the first tree that has it and can be
// written, or else remembers why not.
func (h *Host) findV1(mounts []mount) {
	for _, m := range mounts {
		if m.version != 1 {
			continue
		}
		reason := whyNot(m.point, m.ro)
		var take []string
		for _, name := range wanted {
			if !slices.Contains(m.options, name) || h.ctls[name].Usable {
				continue
			}
			h.ctls[name] = Controller{Name: name, Version: 1, Path: m.point, Usable: reason == "", Reason: reason}
			if reason == "" {
				take = append(take, name)
			}
		}
		if len(take) > 0 {
			h.trees = append(h.trees, &hierarchy{version: 1, controllers: take, base: m.point})
		}
	}
}

// whyNot says why groups can't be made in dir, or "".
func whyNot(dir string, ro bool) string {
	switch {
	case ro:
		return "the cgroup tree at " + dir + " is mounted read-only"
	case !writable(dir):
		return "the caller may not make groups in " + dir
	}
	return ""
}

// Mode returns which interface the machine has.
func (h *Host) Mode() Mode { return h.mode }

// Controllers returns what was found, in the order memory, cpu, cpuacct, pids.
func (h *Host) Controllers() []Controller {
	var out []Controller
	for _, name := range wanted {
		if c, ok := h.ctls[name]; ok {
			out = append(out, c)
		}
	}
	return out
}

// Report says for each limit that l sets how it would be kept, or why not.
func (h *Host) Report(l Limits) []sandbox.Enforcement {
	var out []sandbox.Enforcement
	for i := range promises {
		p := &promises[i]
		if !p.wanted(l) {
			continue
		}
		e := sandbox.Enforcement{Promise: p.name}
		if c := h.ctls[p.controller]; c.Usable {
			e.Enforced, e.Mechanism = true, p.mechanism[c.Version]
		} else {
			e.Reason = "cgroup controller " + p.controller + ": " + c.Reason
		}
		out = append(out, e)
	}
	return out
}

// List returns the names of the groups of this namespace, in order, however
// much is left of each.
func (h *Host) List() ([]string, error) {
	var out []string
	for _, t := range h.trees {
		dir, err := os.Open(t.path(h.ns))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		names, err := subdirs(dir)
		dir.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Prune removes the namespace's own directories where no group is left in
// them. A later Create makes them again.
func (h *Host) Prune() error {
	for _, t := range h.trees {
		t.forget()
		base, err := os.Open(t.base)
		if err != nil {
			return fmt.Errorf("remove empty groups: %w", err)
		}
		err = h.pruneIn(base)
		base.Close()
		if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove empty groups: %w", err)
		}
	}
	return nil
}

func (h *Host) pruneIn(base *os.File) error {
	parent, err := openDir(base, top)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := h.tree.rmdir(parent, h.ns); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return h.tree.rmdir(base, top)
}

// Close gives up what the Host holds open; the groups stay.
func (h *Host) Close() error {
	for _, t := range h.trees {
		t.forget()
	}
	return nil
}

// path returns the directory of a namespace's groups.
func (t *hierarchy) path(ns string) string { return path.Join(t.base, top, ns) }

// forget closes the parent directory; the next use opens it again.
func (t *hierarchy) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parent != nil {
		t.parent.Close()
	}
	t.parent, t.ready = nil, false
}

// reserved are the kernel's own files whose names would pass as a group's:
// all others have a dot.
var reserved = []string{"tasks", "notify_on_release", "release_agent"}

// checkName accepts what is harmless as a directory's name in every tree.
func checkName(what, name string) error {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	bad := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune(alphabet, r) })
	if name == "" || len(name) > 128 || bad >= 0 || slices.Contains(reserved, name) {
		return sandbox.Errorf(sandbox.Invalid, "%s %.140q: want 1 to 128 of a-z, 0-9, _ and -", what, name)
	}
	return nil
}
