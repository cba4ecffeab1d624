package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const askLimit = 2 * time.Second

// Measure implements sandbox.Measurer: by the instance's control group, and by the
// file system on its disk image. The guest is asked for what the machine does
// not count, and what it says is bounded by what can be.
func (b *Backend) Measure(ctx context.Context, id string) (sandbox.Usage, error) {
	dir, err := b.dir(id)
	if err != nil {
		return sandbox.Usage{}, err
	}
	u, gerr := b.groupUsage(id)
	derr := diskUsage(dir, &u)
	if gerr == nil && derr == nil {
		return u, nil
	}
	told, err := b.askUsage(ctx, id)
	if err != nil {
		return sandbox.Usage{}, errors.Join(err, gerr, derr)
	}
	if gerr != nil {
		u.CPU, u.Load, u.Memory, u.Cache = -1, told.Load, told.Memory, told.Cache
	}
	if derr != nil {
		u.Disk, u.DiskTotal = told.Disk, told.DiskTotal
	}
	return u, nil
}

func (b *Backend) groupUsage(id string) (u sandbox.Usage, err error) {
	g, err := b.cgroups.Open(id)
	if err != nil {
		return u, err
	}
	if u.CPU, err = g.CPUUsage(); err != nil {
		return u, err
	}
	if u.Memory, err = g.MemoryCurrent(); err != nil {
		return u, err
	}
	if u.Cache, err = g.Reclaimable(); err != nil {
		return u, err
	}
	u.Memory -= min(u.Memory, u.Cache) // the one was read after the other
	return u, nil
}

var errNoDisk = errors.New("the instance has no disk of its own")

// diskUsage fills in what the host's kernel says of the file system that the
// instance's root lies on: every instance has a process that sees it, its last.
func diskUsage(dir string, u *sandbox.Usage) error {
	if !exists(filepath.Join(dir, fileDisk)) {
		return errNoDisk
	}
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	if len(r.Processes) == 0 {
		return errNoDisk
	}
	p := r.Processes[len(r.Processes)-1]
	root, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", p.PID), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if !procid.Alive(p) { // the number may be another's by now
		return errNoDisk
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return fmt.Errorf("measure disk: %w", err)
	}
	if st.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return errNoDisk
	}
	u.DiskTotal = int64(st.Blocks) * st.Bsize
	u.Disk = int64(st.Blocks-min(st.Blocks, st.Bfree)) * st.Bsize
	return nil
}

func (b *Backend) askUsage(ctx context.Context, id string) (sandbox.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	raw, err := b.agent(id).Metrics(ctx)
	if err != nil {
		return sandbox.Usage{}, fmt.Errorf("ask for metrics: %w", err)
	}
	return parseFigures(raw)
}

// parseFigures reads a guest's figures, none of which is larger than can be.
func parseFigures(raw []byte) (u sandbox.Usage, err error) {
	var f guest.Metrics
	if err := json.Unmarshal(raw, &f); err != nil {
		return u, errors.New("read metrics: not such as an agent gives")
	}
	const most = math.MaxInt64 >> 10
	mem, disk := min(f.MemTotal, most), min(f.DiskTotal, most)
	u = sandbox.Usage{
		CPU: -1, Load: min(max(f.CPUUsedPct/100, 0), 1),
		Cache: int64(min(f.MemCache, mem)), DiskTotal: int64(disk), Disk: int64(min(f.DiskUsed, disk)),
	}
	u.Memory = int64(min(f.MemUsed, mem))
	return u, nil
}

// Processes implements sandbox.Measurer.
func (b *Backend) Processes(ctx context.Context, id string) (guest.Processes, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	p, err := b.agent(id).Processes(ctx)
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusNotFound {
		return p, sandbox.Errorf(sandbox.Unsupported, "it was started by an older version, whose agent does not list processes").
			WithHint("stop and start it")
	}
	return p, err
}

// maxHeld bounds how many files are counted.
const maxHeld = 5_000_000

// Held implements sandbox.Measurer. What an instance without a disk of its own wrote
// is counted file by file; what its own ids hide is not.
func (b *Backend) Held(ctx context.Context, id string) (int64, error) {
	dir, err := b.dir(id)
	if err != nil {
		return 0, err
	}
	var sum int64
	seen := 0
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if seen++; err != nil || seen > maxHeld {
			return filepath.SkipDir
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok && (st.Nlink == 1 || d.IsDir()) {
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum, err
}
