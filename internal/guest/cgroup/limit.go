package cgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// SetPIDs bounds how many processes and threads all commands together may have
// from now on. What runs beyond it goes on, and nothing new starts. Where the
// host sets the limit it is only read anew. n is above zero.
func (t *Hierarchy) SetPIDs(n int64) error {
	if t.name != "" {
		if !t.bound {
			return errors.New("limit processes: this kernel's cgroups have no pids controller")
		}
		if err := write(t.dir, "pids.max", strconv.FormatInt(n, 10)); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
		t.limit.Store(n)
		return nil
	}
	t.limit.Store(n)
	if t.now == nil {
		return nil
	}
	f, err := open(t.dir, "pids.max", unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("read the limit of processes: %w", err)
	}
	defer f.Close()
	if most, ok := number(f); ok {
		t.mu.Lock()
		t.most = most
		t.mu.Unlock()
	}
	return nil
}
