package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// stale is how old what changes by itself may be while something runs, and when a
// command starts.
const stale = time.Second

// Run keeps what changes by itself until ctx ends: from a command's beginning for as long as
// busy says that there is somebody to read it.
func (v *View) Run(ctx context.Context, busy func() bool) {
	if !v.opts.Native {
		return // of a kernel of one's own, memory is right, and processors' time nobody's business
	}
	tick := time.NewTimer(stale)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.began:
		}
		for busy() {
			tick.Reset(stale)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				v.renew(0)
			}
		}
	}
}

// Begin is for a command that is about to start, when busy says so: what it sees is not old.
func (v *View) Begin() {
	if !v.opts.Native {
		return
	}
	v.renew(stale / 4)
	select {
	case v.began <- struct{}{}:
	default: // Run knows of another already
	}
}

// renew writes what changes by itself, if it is older than that.
func (v *View) renew(age time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if age > 0 && time.Since(v.fresh) < age {
		return
	}
	if err := v.refresh(); err != nil {
		v.opts.Log.Warn("show what is in use", "err", err)
	}
}

func (v *View) refresh() error {
	v.fresh = time.Now()
	times, err := os.ReadFile("/proc/stat")
	if err == nil {
		err = v.tree.put(nameStat, stat(times, v.processors))
	}
	if err != nil {
		return fmt.Errorf("show processors' time: %w", err)
	}
	if !v.opts.Native {
		return nil
	}
	host, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		err = v.tree.put(nameMeminfo, meminfo(host, v.machine.Memory, v.used()))
	}
	if err != nil {
		return fmt.Errorf("show memory: %w", err)
	}
	return nil
}

// used is what commands use by their control group; nothing where none counts.
func (v *View) used() usage {
	for _, g := range []struct{ current, stat, cache, shared string }{
		{"/memory/memory.usage_in_bytes", "/memory/memory.stat", "total_cache", "total_shmem"},
		{"/commands/memory.current", "/commands/memory.stat", "file", "shmem"},
	} {
		text, err := os.ReadFile(v.tree.at(nameGroups + g.current))
		if err != nil {
			continue
		}
		all, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		if err != nil {
			continue
		}
		of, _ := os.ReadFile(v.tree.at(nameGroups + g.stat)) // without it nothing is cache
		shared := keyed(of, g.shared)
		return usage{all: all, cache: max(keyed(of, g.cache)-shared, 0), shared: shared}
	}
	return usage{}
}
