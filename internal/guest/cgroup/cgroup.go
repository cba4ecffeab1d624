// Package cgroup keeps commands and all that they start in cgroups (v2) of
// the guest's own kernel: to bound their number, to end them to the last one
// however they fork, and to learn which limit they ran into.
//
// The hierarchy is mounted where no command can see it and reached through
// one open directory. The host may have mounted it, with the
// limits set already, where the kernel is the host's. The package does without
// the controllers that the kernel lacks, and says so; counters that the host
// keeps in version 1 stand in for theirs. Without cgroup v2 at all, Open
// fails. It reads no list of processes unless asked to end them.
package cgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pooled is how many empty groups are kept for the next commands.
const pooled = 8

// Hierarchy is the commands' part of the hierarchy. Its methods may be called from
// several goroutines.
type Hierarchy struct {
	base   *os.File     // the caller's cgroup of before
	name   string       // the directory below it that is ours; "": base is
	dir    *os.File     // the parent of all commands' groups
	pids   *os.File     // pids.events of all commands; nil where nothing counts
	oom    *os.File     // memory.oom_control of all commands; nil where nothing counts
	pin    *os.File     // the mount namespace in which the hierarchy is mounted
	memory bool         // each group counts what was killed in it
	each   bool         // each group counts what was refused to it
	bound  bool         // pids are limited
	limit  atomic.Int64 // of processes; 0: none
	now    *os.File     // pids.current, where a process that is put into a group is not counted first; else nil
	most   uint64       // what it may come to
	ns     *os.File     // a cgroup namespace that begins at the parent of all commands' groups; nil: none
	shown  atomic.Int64 // memory.max of each command's group, which says the limit of all; 0: none
	log    *slog.Logger

	mu      sync.Mutex
	names   uint64              // how many directories were made
	free    []*slot             // empty ones, for the next commands
	held    []*Group            // ended commands' groups that still have processes
	live    map[*Group]struct{} // acquired and not yet empty, those that are held included
	begin   uint64              // acquired for commands that are not in yet
	claimed uint64              // of the kills that oom counts: those that a command answers for
}

// Options configure a Hierarchy.
type Options struct {
	// Name is the directory that holds the agent's group and the commands',
	// below the caller's own cgroup; default: a new one.
	Name string
	PIDs int64 // how many processes and threads all commands together may have; 0: no limit
	// Root is where the instance's own directory of the host's hierarchy is
	// mounted: all of it is ours, and its limits are the host's. Default: cgroup
	// v2 is mounted here, and Name made in it.
	Root string
	// OOMFile and PIDsFile count what hit all commands together, where the
	// controllers are of version 1: memory.oom_control and pids.events of a
	// group that the host made. Default: none.
	OOMFile, PIDsFile string
	// CPUs and Memory are what commands are told of the limits that hold for all of them. They
	// enforce nothing where Name is used. 0: none.
	CPUs   float64
	Memory int64
	// Namespace makes a cgroup namespace for commands that begins at the parent of their
	// groups. It is for Name alone.
	Namespace bool
	Log       *slog.Logger // default: discard
}

// Open mounts cgroup v2, unless the host has, and prepares it. It moves the
// calling process to a group beside those of its commands, so it comes before
// all else that the process starts.
func Open(opts Options) (*Hierarchy, error) {
	if opts.Root != "" {
		return openRoot(opts)
	}
	own, err := ownPath()
	if err != nil {
		return nil, err
	}
	root, pin, err := mount()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	base, err := openDir(root, strings.TrimPrefix(own, "/"))
	if err != nil {
		_ = pin.Close()
		return nil, fmt.Errorf("open own cgroup: %w", err)
	}
	defer base.Close()
	t, err := Prepare(base, opts)
	if err != nil {
		_ = pin.Close()
		return nil, err
	}
	t.pin = pin
	return t, nil
}

// Close gives back what the Hierarchy holds, and removes its cgroups as far as they
// are empty. Processes that live on stay in theirs.
func (t *Hierarchy) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(len(t.held))
	for _, s := range t.free {
		s.remove()
	}
	for _, g := range t.held {
		g.slot.close()
		g.slot = nil
	}
	clear(t.live)
	t.free, t.held = nil, nil
	if t.name != "" {
		t.leave()
	}
	for _, f := range []*os.File{t.pids, t.oom, t.now, t.ns, t.pin, t.dir, t.base} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// leave moves the calling process back and removes the directories. The maker of
// its cgroup removes what is left.
func (t *Hierarchy) leave() {
	if write(t.base, "cgroup.procs", "0") != nil {
		return
	}
	for _, sub := range []string{"/commands", "/agent", ""} {
		t.removeDir(t.name + sub)
	}
}

// removeDir removes a directory that nobody lives in. A thread that is ending
// was not moved, and may take a while: it gives up its namespaces first.
func (t *Hierarchy) removeDir(name string) {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { //nolint:forbidigo // for threads that are ending
		ending := t.onlyEnding(name)
		err := at(t.base, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
		if !errors.Is(err, unix.EBUSY) || !ending || time.Now().After(deadline) {
			return
		}
	}
}

// onlyEnding reports whether a directory that the calling process has left
// has threads, and all of them are ending: no other process has any.
func (t *Hierarchy) onlyEnding(name string) bool {
	own, others := ids(t.base, name+"/cgroup.procs")
	if !own && !others { // no process is listed for a thread that ends
		own, others = ids(t.base, name+"/cgroup.threads")
		return own || others
	}
	return !others
}

// slot is one directory, used by one command after the other.
type slot struct {
	tree   *Hierarchy
	name   string
	dir    *os.File
	events *os.File // cgroup.events
	pids   *os.File // pids.events; nil without the controller
	memory *os.File // memory.events; nil without the controller

	pidsBefore, oomBefore uint64 // the counters when it became free
	killed                bool   // it is not used again: see killOnce
}

// Group is the cgroup of one command.
type Group struct {
	tree   *Hierarchy
	slot   *slot  // nil once nobody lives in it; then guarded by tree.mu
	before shared // the tree's counters when it was acquired
	begins bool   // nobody has been put in yet; guarded by tree.mu
	alone  bool   // no other command has been meanwhile; guarded by tree.mu
}

// Acquire returns an empty group for a command to be born in or put into.
// Release gives it back. It fails with ErrFull where the limit of processes is
// reached and the kernel would not say so.
func (t *Hierarchy) Acquire() (*Group, error) {
	t.mu.Lock()
	t.sweepLocked(2)
	if t.fullLocked() {
		t.mu.Unlock()
		return nil, ErrFull
	}
	t.begin++
	var s *slot
	if n := len(t.free); n > 0 {
		s, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.names++
	}
	name := strconv.FormatUint(t.names, 10)
	t.mu.Unlock()
	if s == nil {
		var err error
		if s, err = t.newSlot(name); err != nil {
			t.mu.Lock()
			t.begin--
			t.mu.Unlock()
			return nil, err
		}
	}
	g := &Group{tree: t, slot: s, begins: true}
	t.enroll(g)
	return g, nil
}

func (t *Hierarchy) newSlot(name string) (*slot, error) {
	dir, err := makeDir(t.dir, name)
	if err != nil {
		return nil, err
	}
	s := &slot{tree: t, name: name, dir: dir}
	s.tell(t.shown.Load())
	if s.events, err = open(dir, "cgroup.events", unix.O_RDONLY); err == nil && t.each {
		s.pids, err = open(dir, "pids.events", unix.O_RDONLY)
	}
	if err == nil && t.memory {
		s.memory, err = open(dir, "memory.events", unix.O_RDONLY)
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("watch a cgroup: %w", err)
	}
	return s, nil
}

// Release takes back the group of a command whose main process has ended. If
// others live in it, the group stays theirs until they are gone, and Kill
// still ends them.
func (g *Group) Release() {
	t := g.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	g.begunLocked()
	if g.slot.populated() {
		t.held = append(t.held, g)
		return
	}
	t.putLocked(g)
}

// putLocked makes a group's directory another command's.
func (t *Hierarchy) putLocked(g *Group) {
	s := g.slot
	g.slot = nil
	delete(t.live, g)
	if s.killed || len(t.free) >= pooled {
		s.remove()
		return
	}
	s.pidsBefore, s.oomBefore = s.pidsRefused(), s.oomKills()
	t.free = append(t.free, s)
}

// sweepLocked looks at n of the held groups, the longest held first, so that
// the cost of each command stays small however many there are.
func (t *Hierarchy) sweepLocked(n int) {
	for range min(n, len(t.held)) {
		g := t.held[0]
		t.held = t.held[1:]
		if g.slot.populated() {
			t.held = append(t.held, g)
			continue
		}
		t.putLocked(g)
	}
}

// FD is the open directory, for clone3's CLONE_INTO_CGROUP. It is valid until
// Release.
func (g *Group) FD() int {
	fd := -1
	_ = at(g.slot.dir, func(n int) error { fd = n; return nil })
	return fd
}

func (s *slot) pidsRefused() uint64 { return value(s.pids, "max") }

func (s *slot) oomKills() uint64 { return value(s.memory, "oom_kill") }

// populated reports whether a process lives in the group. A group that can't
// be read is gone.
func (s *slot) populated() bool { return value(s.events, "populated") != 0 }

func (s *slot) close() {
	for _, f := range []*os.File{s.memory, s.pids, s.events, s.dir} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (s *slot) remove() {
	s.close()
	if err := at(s.tree.dir, func(fd int) error { return unix.Unlinkat(fd, s.name, unix.AT_REMOVEDIR) }); err != nil {
		s.tree.log.Warn("remove a cgroup", "name", s.name, "err", err)
	}
}
