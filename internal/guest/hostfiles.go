package guest

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/hostfiles"
)

// watchFiles has commands keep to the instance's part of the host's open files, until
// stop is called. It does nothing where the host says no part.
func (a *agent) watchFiles(ctx context.Context, cgroups *cgroup.Hierarchy) (w *hostfiles.Watch, stop func(), err error) {
	if a.cfg.FilesShare == 0 {
		return nil, func() {}, nil
	}
	opts := hostfiles.Options{Share: a.cfg.FilesShare, Processes: a.commandProcesses, Log: a.log}
	closeFreezer := func() error { return nil }
	if cgroups != nil {
		freezer, err := cgroups.Freezer()
		if err != nil {
			return nil, nil, err
		}
		if freezer != nil {
			opts.Freeze, closeFreezer = freezer.Set, freezer.Close
		}
	}
	if w, err = hostfiles.Open(opts); err != nil {
		return nil, nil, errors.Join(err, closeFreezer())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	return w, func() { cancel(); <-done; _ = closeFreezer() }, nil
}

// commandProcesses lists all processes in the instance but the agent and its inner
// init.
func (a *agent) commandProcesses() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	own, init := os.Getpid(), a.jail.Init()
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != own && pid != init {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
