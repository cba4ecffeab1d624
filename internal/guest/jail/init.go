package jail

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// InitName is what the inner init is called, /proc/1/comm of commands.
const InitName = "carboy-init"

// startInit forks init and waits until it has arranged its mounts. Init is
// pid 1 of the commands' namespaces: it makes their mounts, answers, and then
// does nothing but be the parent of orphans until it is killed.
func (j *Jail) startInit() (*Process, error) {
	steps := j.cfg.steps()
	if j.cfg.ReadOnlyRoot {
		mounts, err := mountsOf("self")
		if err != nil {
			return nil, err
		}
		steps = slices.Insert(steps, 1, j.cfg.readOnlySteps(mounts)...) // once they are private
	}
	report, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer report.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("open what init reads: %w", err)
	}
	defer null.Close()
	n, err := newInfant(j.cfg, steps, theirs, null)
	if err != nil {
		_ = theirs.Close()
		return nil, err
	}
	j.nursery.mu.RLock()
	defer j.nursery.mu.RUnlock()
	defer n.born()
	pid, pidfd, err := n.bear()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start inner init: %w", err)
	}
	p := newProcess(pid, pidfd)
	j.born(p)
	warnings, err := hear(report, steps)
	if err == nil && j.cfg.ReadOnlyRoot {
		err = j.cfg.checkReadOnly(pid)
	}
	if err == nil {
		err = j.checkShared(pid)
	}
	if err != nil {
		_ = p.Signal(unix.SIGKILL)
		status := p.Wait()
		return nil, fmt.Errorf("inner init (%s): %w", status, err)
	}
	for _, w := range warnings {
		j.cfg.Log.Info("inner init", "warning", w)
	}
	return p, nil
}
