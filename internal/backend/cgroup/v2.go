package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// leaf is where the caller moves to when it works in its own group.
const leaf = "carboy.daemon"

// delegationHint is what makes a delegated subtree for a user's daemon.
const delegationHint = "systemd-run --user --scope -p Delegate=yes carboy serve"

// findV2 finds where in the version 2 tree groups can be made, and which of
// the controllers that version 1 does not have are there.
func (h *Host) findV2(mounts []mount, own string) {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 2 })
	if i < 0 {
		return
	}
	m := mounts[i]
	base, reason := m.point, whyNot(m.point, m.ro)
	if reason != "" && !m.ro {
		base, reason = delegated(m, own)
	}
	at := ownDir(m, own)
	t := &hierarchy{version: 2, base: base, own: base == at}
	if reason == "" {
		t.controllers = h.takeV2(t)
		h.trees = append(h.trees, t)
		return
	}
	for _, name := range words(m.point, "cgroup.controllers") {
		h.lack(name, reason)
	}
	if h.mode == ModeV2 {
		for _, name := range []string{"memory", "cpu", "pids"} {
			h.lack(name, reason)
		}
	}
}

// lack remembers why a controller of the version 2 tree is not usable.
func (h *Host) lack(name, reason string) {
	if _, ok := h.ctls[name]; !ok && slices.Contains(wanted, name) {
		h.ctls[name] = Controller{Name: name, Version: 2, Reason: reason}
	}
}

// takeV2 lists the controllers that the groups below the base can have.
func (h *Host) takeV2(t *hierarchy) []string {
	reason := whyCrowded(t)
	enabled := words(t.base, "cgroup.subtree_control")
	var take []string
	for _, name := range words(t.base, "cgroup.controllers") {
		if !slices.Contains(wanted, name) || h.ctls[name].Usable {
			continue
		}
		c := Controller{Name: name, Version: 2, Path: t.base, Usable: reason == "" || slices.Contains(enabled, name)}
		if c.Usable {
			take = append(take, name)
		} else {
			c.Reason = reason
		}
		h.ctls[name] = c
	}
	if h.mode == ModeV2 {
		for _, name := range []string{"memory", "cpu", "pids"} {
			h.lack(name, "the controller is not given to "+t.base)
		}
	}
	return take
}

// whyCrowded says which processes keep the base from giving controllers to
// its children, or "". The top of the whole tree is exempt from that rule, and
// the caller itself can move away.
func whyCrowded(t *hierarchy) string {
	if _, err := os.Stat(path.Join(t.base, "cgroup.events")); errors.Is(err, fs.ErrNotExist) {
		return "" // only the top has no such file
	}
	b, err := os.ReadFile(path.Join(t.base, "cgroup.procs"))
	if err != nil {
		return "the processes of " + t.base + " can't be listed"
	}
	pids, err := parsePIDs(b)
	if err != nil {
		return err.Error()
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return t.own && pid == os.Getpid() })
	if len(pids) == 0 {
		return ""
	}
	return fmt.Sprintf("%d other processes are in %s itself, so its children can't have limits; start one with: %s", len(pids), t.base, delegationHint)
}

// ownDir returns the directory of the caller's own group, or "" where the
// mount does not show it.
func ownDir(m mount, own string) string {
	if own == "" || strings.Contains(own, "/..") {
		return ""
	}
	rel, err := filepath.Rel(m.root, own)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return path.Join(m.point, rel)
}

// delegated finds the part of the tree that the caller may organise: the
// nearest group above it that was marked as delegated or is a scope that was made
// for carboy, or else the uppermost that it may write. A process can be moved only within such a part.
func delegated(m mount, own string) (base, reason string) {
	at := ownDir(m, own)
	if at == "" {
		return "", "the caller's own group is not in the tree at " + m.point
	}
	for dir := at; ; dir = path.Dir(dir) {
		if !writable(dir) || !writable(path.Join(dir, "cgroup.procs")) || !writable(path.Join(dir, "cgroup.subtree_control")) {
			break
		}
		base = dir
		if marked(dir) || isScope(dir) || dir == m.point {
			break
		}
	}
	if base == "" {
		return "", "no part of the cgroup tree is delegated to the caller, which is in " + at + "; get one with: " + delegationHint
	}
	return base, ""
}

// ScopePrefix begins the name of each scope that is made for a daemon. An older
// systemd does not mark what it delegates.
const ScopePrefix = "carboy-"

func isScope(dir string) bool {
	name := path.Base(dir)
	return strings.HasPrefix(name, ScopePrefix) && strings.HasSuffix(name, ".scope")
}

// marked reports whether systemd says that it delegated the group.
func marked(dir string) bool {
	buf := make([]byte, 8)
	n, err := unix.Lgetxattr(dir, "user.delegate", buf)
	return err == nil && n == 1 && buf[0] == '1'
}

// words reads a file of words, none if it can't be read.
func words(dir, file string) []string {
	b, err := os.ReadFile(path.Join(dir, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// prepare opens the directory of a namespace in a tree, and makes it if it is
// not there. In version 2 each directory on the way passes the controllers on
// to its children.
func (h *Host) prepare(t *hierarchy) (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ready {
		return t.parent, nil
	}
	dir, err := os.Open(t.base)
	if err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	defer func() { dir.Close() }()
	if err := h.passOn(t, dir, t.own); err != nil {
		return nil, err
	}
	for _, name := range []string{top, h.ns} {
		if err := h.tree.mkdir(dir, name); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make group %s in %s: %w", name, t.base, err)
		}
		if err := t.inherit(dir, name); err != nil {
			return nil, err
		}
		next, err := openDir(dir, name)
		if err != nil {
			return nil, fmt.Errorf("open group %s in %s: %w", name, t.base, err)
		}
		dir.Close()
		dir = next
		if err := h.passOn(t, dir, false); err != nil {
			return nil, err
		}
	}
	if t.parent == nil {
		if t.parent, err = openDir(dir, "."); err != nil {
			return nil, fmt.Errorf("open group %s in %s: %w", h.ns, t.base, err)
		}
	}
	t.ready = true
	return t.parent, nil
}

// existing opens the directory of a namespace in a tree, without making it.
func (h *Host) existing(t *hierarchy) (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parent != nil {
		return t.parent, nil
	}
	base, err := os.Open(t.base)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	f, err := openDir(base, path.Join(top, h.ns))
	if err != nil {
		return nil, err
	}
	t.parent = f
	return f, nil
}

// passOn lets the children of dir have the controllers of t.
func (h *Host) passOn(t *hierarchy, dir *os.File, mayMove bool) error {
	if t.version != 2 || len(t.controllers) == 0 {
		return nil
	}
	on, err := readFile(dir, "cgroup.subtree_control")
	if err != nil {
		return fmt.Errorf("read controllers of %s: %w", t.base, err)
	}
	for _, name := range t.controllers {
		if slices.Contains(strings.Fields(string(on)), name) {
			continue
		}
		err := writeFile(dir, "cgroup.subtree_control", "+"+name)
		if errors.Is(err, unix.EBUSY) && mayMove {
			if err = h.moveAway(dir); err == nil {
				err = writeFile(dir, "cgroup.subtree_control", "+"+name)
			}
		}
		if errors.Is(err, unix.EBUSY) {
			return sandbox.Errorf(sandbox.Unsupported, "cgroup %s holds processes of its own, so its children can't have limits", t.base).
				WithHint("%s", delegationHint)
		}
		if err != nil {
			return fmt.Errorf("pass controller %s on in %s: %w", name, t.base, err)
		}
	}
	return nil
}

// moveAway puts the caller into a leaf of its own group.
func (h *Host) moveAway(dir *os.File) error {
	if err := h.tree.mkdir(dir, leaf); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make group %s: %w", leaf, err)
	}
	if err := writeFile(dir, leaf+"/cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("move to group %s: %w", leaf, err)
	}
	return nil
}
