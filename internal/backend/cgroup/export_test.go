package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

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
