package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/mountinfo"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// How long the kernel may take to free the disk of an instance that has ended.
const (
	looseSoon = time.Second      // before one looks for what holds it
	looseWait = 20 * time.Second // once what held it was ended
)

// holder is a process that keeps a disk in use.
type holder struct {
	id   procid.ID
	name string // as its program is called
	what string // that it has
	ours bool   // a process of this program's, which reads the disk and leaves
	ends bool   // a command of another instance, which has no business there
}

func (h holder) String() string {
	return fmt.Sprintf("process %d (%s), which has %s", h.id.PID, h.name, h.what)
}

// loose makes sure that nothing holds the disk of an instance that has ended: neither its
// file systems, which would go on being written to, nor its space. A command of another
// instance that does is ended. What else does is the error's to name.
func (b *Backend) loose(ctx context.Context, id, dir string) error {
	if weak.On(weak.EndUnchecked) {
		return nil
	}
	path := filepath.Join(dir, fileDisk)
	free, err := disk.DetachedWithin(ctx, path, looseSoon)
	if free || err != nil {
		return err
	}
	held, err := b.holders(id, path)
	if err != nil {
		return err
	}
	for _, h := range held {
		if !h.ends {
			continue
		}
		b.opts.Log.Warn("end a command that has files of another sandbox", "id", id, "holder", h.String())
		if err := kill(ctx, h.id); err != nil {
			return fmt.Errorf("end what holds the disk: %w", err)
		}
	}
	stays := func(h holder) bool { return !h.ends }
	if !slices.ContainsFunc(held, stays) {
		if free, err = disk.DetachedWithin(ctx, path, looseWait); free || err != nil {
			return err
		}
		if held, err = b.holders(id, path); err != nil {
			return err
		}
	}
	return inUse(held)
}

// errUnseen is why a disk is in use that no process is seen to hold.
var errUnseen = errors.New("nothing is seen to hold it")

// inUse is the error of a disk that these hold, or nil where they leave by themselves.
func inUse(held []holder) error {
	e := sandbox.Errorf(sandbox.Conflict, "the sandbox's disk is still in use outside of it")
	switch {
	case slices.ContainsFunc(held, func(h holder) bool { return h.ours }):
		return nil
	case len(held) > 0:
		e.Msg += ", by " + held[0].String()
	default:
		e.Err = errUnseen
	}
	return e.WithHint("end what uses it, and try again")
}

// holders finds what holds the disk of an instance that has ended: who has it mounted, and
// commands of other instances that have a file of a mount which is not theirs.
func (b *Backend) holders(id, path string) ([]holder, error) {
	dev, err := disk.Device(path)
	if err != nil || dev == 0 {
		return nil, err
	}
	held, err := mounters(fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil || !b.wall.OwnCommands {
		return held, err
	}
	others, err := b.cgroups.List()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if other == id {
			continue
		}
		pids, err := b.commandsOf(other)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if what := foreign(pid); what != "" {
				held = addHolder(held, pid, holder{what: what + ", in the sandbox " + other, ends: true})
			}
		}
	}
	return held, nil
}

// addHolder adds a process, unless it is gone.
func addHolder(list []holder, pid int, h holder) []holder {
	var err error
	if h.id, err = procid.Of(pid); err != nil {
		return list
	}
	name, err := os.ReadFile(procFile(pid, "comm"))
	if err != nil {
		return list
	}
	h.name = strings.TrimSpace(string(name))
	return append(list, h)
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// mounters finds processes in whose mount namespace a device is mounted, one for each
// namespace.
func mounters(device string) (list []holder, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	own, err := os.Stat(procFile(os.Getpid(), "exe"))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		ns, err := os.Readlink(procFile(pid, "ns/mnt"))
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		at := ""
		_ = eachMount(procFile(pid, "mountinfo"), func(_ string, m mountinfo.Mount) {
			if m.Device == device {
				at = m.Point
			}
		})
		if at == "" {
			continue
		}
		exe, err := os.Stat(procFile(pid, "exe"))
		list = addHolder(list, pid, holder{what: "it mounted at " + at, ours: err == nil && os.SameFile(own, exe)})
	}
	return list, nil
}

// eachMount calls f with each mount of a mountinfo file of /proc, and its number.
func eachMount(name string, f func(id string, m mountinfo.Mount)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		id, _, _ := strings.Cut(lines.Text(), " ")
		if m, ok := mountinfo.Parse(lines.Text()); ok {
			f(id, m)
		}
	}
	return lines.Err()
}

// commandsOf lists the processes of an instance but for those of its agent's program, which
// was opened on the host.
func (b *Backend) commandsOf(id string) ([]int, error) {
	dir, err := b.dir(id)
	if err != nil {
		return nil, nil // a group of something else
	}
	r, err := readRecord(dir)
	if err != nil || len(r.Processes) == 0 {
		return nil, nil // it has ended, or never began
	}
	agent, err := os.Stat(procFile(r.Processes[0].PID, "exe"))
	if err != nil {
		return nil, nil
	}
	g, err := b.cgroups.Open(id)
	if err != nil {
		return nil, nil
	}
	pids, err := g.PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool {
		exe, err := os.Stat(procFile(pid, "exe"))
		return err != nil || os.SameFile(agent, exe)
	}), err
}

// File systems that lie on an instance's disk, as statfs has them.
const (
	magicExt4    = 0xef53
	magicOverlay = 0x794c7630
)

// foreign returns what a process has of a file system that an instance may lie on, on a mount
// that is not of its own namespace: an open file, a directory that it is in, a file in its
// memory. "" is nothing.
func foreign(pid int) string {
	mounts := map[string]bool{}
	if eachMount(procFile(pid, "mountinfo"), func(id string, _ mountinfo.Mount) { mounts[id] = true }) != nil {
		return ""
	}
	links := []string{"cwd", "root"}
	for _, dir := range []string{"fd", "map_files"} {
		entries, _ := os.ReadDir(procFile(pid, dir)) // where it is gone, it has nothing
		for _, e := range entries {
			links = append(links, dir+"/"+e.Name())
		}
	}
	for _, link := range links {
		if name := foreignFile(procFile(pid, link), mounts); name != "" {
			return name
		}
	}
	return ""
}

// foreignFile returns what a link of /proc leads to, where that is on none of the mounts.
func foreignFile(link string, mounts map[string]bool) string {
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != magicExt4 && st.Type != magicOverlay {
		return ""
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok && mounts[strings.TrimSpace(id)] {
			return ""
		}
	}
	name, err := os.Readlink(link)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		name = "a file"
	}
	return strconv.Quote(name)
}
