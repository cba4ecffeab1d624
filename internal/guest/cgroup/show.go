package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// period is the scheduler's accounting period, in microseconds.
const period = 100_000

// showFlags are those of each mount that commands get to see.
func showFlags() uintptr {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if !weak.On(weak.LimitsWritable) {
		flags |= unix.MS_RDONLY
	}
	return flags
}

// figures are the files that speak of all commands together where they are found in the
// commands' directory, and of agent and commands together above it.
var figures = []string{
	"memory.max", "memory.high", "memory.current", "memory.peak", "memory.stat", "memory.events",
	"memory.swap.max", "memory.swap.current", "pids.max", "pids.current", "pids.peak", "pids.events",
}

// CPUMax is the text of a cpu.max for a number of processors; 0: without end.
func CPUMax(cpus float64) string {
	quota := "max"
	if cpus > 0 {
		quota = strconv.FormatInt(max(int64(math.Round(cpus*period)), 1), 10)
	}
	return quota + " " + strconv.Itoa(period)
}

// Max is the text of a limit; 0: none.
func Max(n int64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// Tell changes what commands are told of the limits that hold for all of them. The limits
// themselves are set elsewhere.
func (t *Hierarchy) Tell(cpus float64, memory int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tell(cpus, memory)
	for _, s := range t.free {
		s.tell(memory)
	}
	for g := range t.live {
		if g.slot != nil {
			g.slot.tell(memory)
		}
	}
}

// tell writes down the limits of all commands where nobody enforces them; a kernel
// without the controllers has nowhere to.
func (t *Hierarchy) tell(cpus float64, memory int64) {
	t.shown.Store(memory)
	if t.name == "" {
		return // they are the host's to write, and enforced
	}
	_ = write(t.dir, "cpu.max", CPUMax(cpus))
	_ = write(t.dir, "memory.max", Max(memory))
}

// tell writes the limit of all commands into one command's group, because there are
// runtimes that look no further up. Reached by one alone, it is the same limit.
func (s *slot) tell(memory int64) {
	if memory > 0 {
		_ = write(s.dir, "memory.max", Max(memory)) // there is none without the controller
	}
}

// Busy reports whether any command's group has processes, or may have soon.
func (t *Hierarchy) Busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live) > 0 || t.begin > 0
}

// Namespace is the cgroup namespace for commands, or nil. It belongs to the Hierarchy, of
// which there may be none.
func (t *Hierarchy) Namespace() *os.File {
	if t == nil {
		return nil
	}
	return t.ns
}

// namespaceAt makes a cgroup namespace that begins at dir, and leaves the calling
// process there.
func namespaceAt(dir *os.File) (ns *os.File, err error) {
	if err := write(dir, "cgroup.procs", "0"); err != nil {
		return nil, fmt.Errorf("enter the commands' cgroup: %w", err)
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("make a cgroup namespace: %w", err)
		}
		ns, err = os.Open("/proc/thread-self/ns/cgroup")
		return err
	})
	return ns, err
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with its state
		err = f()
	}()
	<-done
	return err
}

// Show mounts the commands' part of the hierarchy on a directory, read-only. Where the
// namespace of commands begins further up, what is mounted begins there too, and the files
// that tell of limits are the commands' own all the same.
func (t *Hierarchy) Show(at string) error {
	return onThread(func() error {
		if t.ns != nil {
			if err := unix.Setns(int(t.ns.Fd()), unix.CLONE_NEWCGROUP); err != nil {
				return fmt.Errorf("join the commands' cgroup namespace: %w", err)
			}
		}
		if err := unix.Mount("cgroup2", at, "cgroup2", showFlags(), ""); err != nil {
			return fmt.Errorf("mount cgroup v2: %w", err)
		}
		if t.ns != nil {
			return nil
		}
		for _, file := range figures {
			from := filepath.Join(at, "commands", file)
			if err := bindReadOnly(from, filepath.Join(at, file)); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("show %s: %w", file, err)
			}
		}
		return nil
	})
}

// CanShow reports whether there is anything to be told of limits in what Show mounts.
func (t *Hierarchy) CanShow() bool {
	return (t.ns != nil || t.name == "") && (exists(t.dir, "memory.max") || exists(t.dir, "pids.max"))
}

// ShowOld mounts below a directory the version 1 hierarchies of controllers in which the
// calling process has a group of its own at the beginning of its cgroup namespace: of
// each that has a part for commands this part, and of others all of it.
func ShowOld(at string, controllers []string) error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("find own cgroups: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, _ := strings.Cut(rest, ":")
		list := strings.Split(names, ",")
		if path != "/" || !slices.ContainsFunc(list, func(c string) bool { return slices.Contains(controllers, c) }) {
			continue // not its own
		}
		if err := showOld(at, names, list); err != nil {
			return fmt.Errorf("show the cgroups of %s: %w", names, err)
		}
	}
	return nil
}

func showOld(at, names string, list []string) error {
	point := filepath.Join(at, names)
	if err := os.Mkdir(point, 0o755); err != nil {
		return err
	}
	for _, c := range list {
		if c != names {
			if err := os.Symlink(names, filepath.Join(at, c)); err != nil {
				return err
			}
		}
	}
	if err := unix.Mount("cgroup", point, "cgroup", showFlags(), names); err != nil {
		return err
	}
	part := filepath.Join(point, "commands")
	if _, err := os.Stat(part); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, part, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bindReadOnly shows a file of a read-only mount in the place of another.
func bindReadOnly(from, at string) error {
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|showFlags(), "")
}
