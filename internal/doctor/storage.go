package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// lowSpace is where a state directory is short of it, in bytes.
const lowSpace = 1 << 30

func stateDir(_ context.Context, m *machine) Line {
	if m.scratchErr != nil {
		l := outcome(Missing, m.scratchErr.Error()).because("sandboxes are kept in it")
		if e, ok := errors.AsType[*sandbox.Error](m.scratchErr); ok && e.Hint != "" {
			return l.mendedBy(e.Hint)
		}
		return l.mendedBy("set XDG_STATE_HOME to a directory of your own")
	}
	fs, free, err := space(m.scratch.path)
	if err != nil {
		return outcome(Weaker, err.Error())
	}
	found := fmt.Sprintf("%s on %s, %s free", m.opts.Dirs.State, fs, term.FormatSize(free))
	if free < lowSpace {
		return outcome(Weaker, found).because("sandboxes write there").mendedBy("carboy rm what is not needed, or set XDG_STATE_HOME to a larger file system")
	}
	return outcome(OK, found)
}

// cacheDir has a program in the cache found fit to be executed, as the guest
// agent will be.
func cacheDir(_ context.Context, m *machine) Line {
	const why = "the guest agent is executed from it"
	const mend = "set XDG_CACHE_HOME to a directory of your own on a file system without noexec"
	if m.opts.DirsErr != nil {
		return outcome(Missing, m.opts.DirsErr.Error()).because(why).mendedBy(mend)
	}
	base, err := nearest(m.opts.Dirs.Cache)
	if err != nil {
		return outcome(Missing, err.Error()).because(why).mendedBy(mend)
	}
	f, err := os.CreateTemp(base, ".carboy-doctor-*")
	if err != nil {
		return outcome(Missing, "can't be written: "+bare(err)).because(why).mendedBy(mend)
	}
	defer os.Remove(f.Name())
	if err := errors.Join(f.Chmod(0o700), f.Close(), unix.Access(f.Name(), unix.X_OK)); err != nil {
		return outcome(Missing, "a program in it can't be executed: "+bare(err)).because(why).mendedBy(mend)
	}
	fs, free, err := space(base)
	if err != nil {
		return outcome(Weaker, err.Error())
	}
	return outcome(OK, fmt.Sprintf("%s on %s, %s free", m.opts.Dirs.Cache, fs, term.FormatSize(free)))
}

// overlays lays one where instances' layers are, by the means of an instance: root
// mounts it as itself, others as root of a user namespace.
func overlays(ctx context.Context, m *machine) Line {
	flags, options := uintptr(syscall.CLONE_NEWNS), ""
	if !m.root {
		flags, options = flagsMount, ",userxattr"
	}
	at, err := m.scratch.dir("overlay")
	if err == nil {
		err = m.probe(ctx, flags, "overlay", at, options)
	}
	if err == nil {
		return outcome(OK, "laid one over a directory, and changed and removed files in it")
	}
	l := outcome(Missing, err.Error()).because("both walls show a sandbox its files, copy-on-write, by them")
	fs := ""
	if m.scratch != nil {
		fs, _, _ = space(m.scratch.path)
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return l.mendedBy("as root: modprobe overlay")
	case fs == "overlay" || fs == "nfs" || fs == "fuse" || fs == "9p" || fs == "ecryptfs":
		return l.mendedBy("set XDG_STATE_HOME to a directory on ext4, xfs or btrfs: layers can't be kept on " + fs)
	case !m.root && errors.Is(err, unix.EPERM):
		return l.mendedBy("use Linux 5.11 or newer, which lets others than root mount overlays; see user namespaces too")
	}
	return l.mendedBy(forbidden(err))
}

// idMappedMounts shows a file as another user's, in the file systems where
// walls do that.
func idMappedMounts(ctx context.Context, m *machine) Line {
	if !m.root {
		return outcome(Info, "not needed without root: a user namespace maps the owner")
	}
	const why = "a workspace there is copied, not viewed, and host directories can't be shown writable"
	cache, err := nearest(m.opts.Dirs.Cache)
	if m.opts.DirsErr != nil {
		cache, err = os.TempDir(), nil
	}
	if err != nil {
		return outcome(Weaker, err.Error()).because(why)
	}
	state, err := m.scratch.dir("idmap")
	if err != nil {
		return outcome(Weaker, err.Error()).because(why)
	}
	var names []string
	for _, dir := range []string{state, cache} {
		fs, _, _ := space(dir)
		err := m.idMapped(ctx, dir)
		switch {
		case childless(err):
			return outcome(Weaker, err.Error()).because(why).mendedBy(forbidden(err))
		case errors.Is(err, unix.EPERM):
			return outcome(Weaker, err.Error()).because(why).
				mendedBy("run carboy as root of the machine itself: root of a user namespace, and of most containers, may not")
		case err != nil:
			return outcome(Weaker, err.Error()+", on "+fs).because(why).mendedBy("keep it on ext4, xfs or btrfs, with Linux 5.19 or newer")
		}
		names = append(names, fs)
	}
	if names[0] == names[1] {
		names = names[:1]
	}
	return outcome(OK, fmt.Sprintf("showed a file as another user's, on %s", list(names)))
}

// idMapped shows dir with root's files as those of the user over, and looks.
func (m *machine) idMapped(ctx context.Context, dir string) error {
	const over = 54321
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Setsid: true}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: over, Size: 1}}
	attr.GidMappings = attr.UidMappings
	c, err := m.beginWith(ctx, attr, "wait")
	if err != nil {
		return err
	}
	defer c.kill()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", c.cmd.Process.Pid))
	if err != nil {
		return step("open a user namespace", err)
	}
	defer ns.Close()
	f, err := os.CreateTemp(dir, ".carboy-doctor-*")
	if err != nil {
		return step("make a file", err)
	}
	f.Close()
	defer os.Remove(f.Name())
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return step("clone a mount", err)
	}
	defer unix.Close(tree)
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd()),
	})
	runtime.KeepAlive(ns)
	if err != nil {
		return step("map the owners of a mount", err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(tree, filepath.Base(f.Name()), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return step("look through a mapped mount", err)
	}
	if st.Uid != over {
		return &failure{Step: "look through a mapped mount", Text: fmt.Sprintf("the owner is %d still", st.Uid)}
	}
	return nil
}

// diskImages makes one, mounts it and fills it.
func diskImages(ctx context.Context, m *machine) Line {
	const why = "what a sandbox writes is not limited, and can fill the state directory's file system"
	if err := disk.Available(); err != nil {
		l := outcome(Weaker, err.Error()).because(why)
		if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
			return l.mendedBy("as root: " + e.Hint)
		}
		if !m.root {
			return l.mendedBy("run carboy as root where that must hold")
		}
		return l.mendedBy("give this machine or container loop devices")
	}
	at, err := m.scratch.dir("disk")
	if err == nil {
		err = m.probe(ctx, syscall.CLONE_NEWNS, "disk", at)
	}
	if err != nil {
		return outcome(Missing, err.Error()).because("a sandbox's disk is one, so none can be started").
			mendedBy("give this machine or container loop devices that can be mounted")
	}
	return outcome(OK, "made one, mounted it, and could not write beyond its size")
}

// maxListed bounds what a line lists.
const maxListed = 200

func hostImage(ctx context.Context, m *machine) Line {
	const why = "sandboxes without an image of their own run on it"
	if m.opts.DirsErr != nil {
		return outcome(Missing, m.opts.DirsErr.Error()).because(why)
	}
	root, err := hostimage.Skeleton(ctx, filepath.Join(m.opts.Dirs.Cache, "hostimage"), hostimage.Options{})
	if err != nil {
		return outcome(Missing, err.Error()).because(why).mendedBy("use an image: carboy run --image NAME")
	}
	found := fmt.Sprintf("made of %s", count(len(root.Parts), "directory of this machine", "directories of this machine"))
	if len(root.Notes) == 0 {
		return outcome(OK, found+"; every command works inside")
	}
	l := outcome(OK, found+"; "+count(len(root.Notes), "command or file is not in it", "commands and files are not in it"))
	for _, n := range root.Notes[:min(len(root.Notes), maxListed)] {
		l.Details = append(l.Details, n.Path+": "+n.Text)
	}
	return l
}

func toolchains(_ context.Context, m *machine) Line {
	tools := hostimage.Tools(m.opts.Home)
	if len(tools) == 0 {
		return outcome(Info, "none")
	}
	var names []string
	l := outcome(Info, "")
	for _, t := range tools {
		names = append(names, t.Name)
		l.Details = append(l.Details, t.Path)
	}
	l.Found = "shown in sandboxes, read-only: " + list(names)
	return l
}
