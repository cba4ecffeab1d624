package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Parsers, for their fuzz targets.
var (
	ParseMounts = func(b []byte) (int, error) { m, err := parseMounts(b); return len(m), err }
	ParseOwn    = parseOwn
	ParsePIDs   = parsePIDs
	ParseKeyed  = parseKeyed
)

// SetRemoveWait replaces RemoveWait for one Host.
func (h *Host) SetRemoveWait(d time.Duration) { h.removeWait = d }

// Imitate makes the Host fill the directories it makes with the named files,
// as the kernel does, and remove them with the directory.
func (h *Host) Imitate(files map[string]string) { h.tree = imitation(files) }

// PruneAt has others prune each directory of that name, so many times, as soon
// as the Host has made it.
func (h *Host) PruneAt(name string, times int) { h.tree = &pruned{h.tree, name, times} }

type pruned struct {
	groupFS
	name  string
	times int
}

func (p *pruned) mkdir(parent *os.File, name string) error {
	err := p.groupFS.mkdir(parent, name)
	if err == nil && name == p.name && p.times > 0 {
		p.times--
		err = p.groupFS.rmdir(parent, name)
	}
	return err
}

type imitation map[string]string

func (im imitation) mkdir(parent *os.File, name string) error {
	if err := (kernel{}).mkdir(parent, name); err != nil {
		return err
	}
	dir := filepath.Join(parentPath(parent), name)
	for file, content := range im {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (im imitation) rmdir(parent *os.File, name string) error {
	dir := filepath.Join(parentPath(parent), name)
	ents, err := os.ReadDir(dir)
	if err != nil {
		return unix.ENOENT
	}
	for _, e := range ents {
		if e.IsDir() {
			return unix.EBUSY
		}
	}
	return os.RemoveAll(dir)
}

func parentPath(f *os.File) string {
	var p string
	_ = withFD(f, func(fd int) (err error) {
		p, err = os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		return err
	})
	return p
}

// DropV2 makes the Host do without the version 2 tree, as on a machine that
// has none. It reports whether others remain.
func (h *Host) DropV2() bool {
	h.trees = slices.DeleteFunc(h.trees, func(t *hierarchy) bool { return t.version == 2 })
	return len(h.trees) > 0
}

// CgroupFD opens the group's directory in the version 2 tree, for
// syscall.SysProcAttr.CgroupFD: the child is then born in it. It must enter
// the version 1 trees, if there are any, by ProcsFiles all the same. It fails
// with Unsupported where no version 2 tree is usable. The caller closes it.
func (g *Group) CgroupFD() (*os.File, error) {
	t := g.v2()
	if t == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "no usable cgroup v2 tree")
	}
	f, err := g.open(t)
	if err != nil {
		return nil, fmt.Errorf("open group %s: %w", g.name, err)
	}
	return f, nil
}

// MemoryPeak returns the most bytes that were ever charged to the group. It
// fails with Unsupported under version 2 before Linux 5.19.
func (g *Group) MemoryPeak() (int64, error) {
	return g.number("memory", "memory.max_usage_in_bytes", "memory.peak")
}

// Enforced says for each limit that was asked for what keeps it, or why
// nothing does.
func (g *Group) Enforced() []sandbox.Enforcement { return slices.Clone(g.enforced) }

// CommandsOOMKills returns how many processes of the commands' part were
// killed because memory ran out. It fails with NotFound where the group has
// no such part.
func (g *Group) CommandsOOMKills() (uint64, error) {
	return g.keyed("memory", commandsGroup+"/"+g.host.oomFile(), "oom_kill")
}
