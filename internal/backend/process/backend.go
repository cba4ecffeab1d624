package process

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/landlock"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Name is the wall's name in a Spec.
const Name = "process"

// Options place a Backend.
type Options = instance.Options

// Backend is the process wall. Open makes one.
type Backend struct {
	*instance.Backend
	spans *spans
	seats *seats
}

var _ sandbox.Backend = (*Backend)(nil)

// The wall's own needs, on top of what an instance was promised.
const (
	// wallMemory is the guest agent's and its buffers'.
	wallMemory = 64 << 20
	// wallPIDs are the threads of the agent and of its inits.
	wallPIDs = 128
)

// limits are what the host enforces for a whole instance; commands have a group of
// their own within it.
func limits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory + wallMemory, CPUs: l.CPUs, PIDs: l.PIDs + wallPIDs}
}

// seen keeps a running instance from having more processes than the number of files
// that each may hold was made for.
func seen(from, to sandbox.Limits, out *sandbox.Resized) {
	most, err := instance.HostCount("fs/file-max")
	if err != nil || to.PIDs <= from.PIDs {
		return
	}
	each := func(pids int64) uint64 { return min(instance.FilesOf(most, pids), mostFiles) }
	if each(to.PIDs) < each(from.PIDs) {
		out.Later[sandbox.LimitPIDs] = "with more processes each may hold fewer open files, which is settled when it starts"
	}
}

// mostFiles is what kernels let a process hold at most, unless told otherwise.
const mostFiles = 1 << 20

// Open looks at what this machine can do and puts the guest agent in place.
func Open(_ context.Context, opts Options) (*Backend, error) {
	b := &Backend{spans: newSpans(), seats: newSeats()}
	host, err := instance.Open(instance.Wall{
		Name: Name, Strength: sandbox.HostKernel, Promises: promises, Arrange: b.arrange, Launch: b.launch,
		Limits: limits, Seen: seen, OwnCommands: true, Stray: stray, Processors: b.seats.take,
	}, opts)
	if err != nil {
		return nil, err
	}
	b.Backend = host
	return b, nil
}

// stray knows an instance's first process by the directory that it was told.
func stray(args []string, dir string) bool {
	return len(args) == 2 && args[0] == enter.Name && args[1] == filepath.Clean(dir)
}

// Remove implements sandbox.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if err := b.Backend.Remove(ctx, id); err != nil {
		return err
	}
	b.spans.release(id)
	b.seats.release(id)
	return nil
}

// commandScore makes the kernel choose a command before it chooses an agent.
const commandScore = 500

// arrange gives an instance ids of its own, and holds its commands as it must where
// the kernel is the host's.
func (b *Backend) arrange(sb *sandbox.Sandbox, lay *instance.Layout, cfg *control.Config) error {
	lay.Native = true
	if !b.Rootless() && !weak.On(weak.UserShared) {
		lay.Base = b.spans.base(sb.ID)
	}
	cfg.AllowRoot, cfg.Strict, cfg.OOMScore, cfg.Shared = false, true, commandScore, lay.Shared()
	return boundFiles(cfg, sb.Spec.Limits)
}

// promises are what the wall keeps by itself.
func promises(spec sandbox.Spec, _ string) (isolation, privileges string, err error) {
	if sandbox.IsRoot(spec.User) {
		return "", "", sandbox.Errorf(sandbox.Unsupported, "user root: the process wall runs no command as root, for the host's kernel is its own").
			WithHint("leave out --user root, or use --isolation gvisor")
	}
	if shares(spec) && !landlocked() {
		return "", "", sandbox.Errorf(sandbox.Unsupported, "volumes and directories that are written to: behind the process wall only Landlock keeps open files from passing between sandboxes there, and this kernel has none").
			WithHint("share them read-only (:ro), or use --isolation gvisor; carboy doctor says more")
	}
	return "process: namespaces of the host's kernel, a list of allowed system calls" + landlockMechanism(),
		"uid 1000 of a user namespace without capabilities; no_new_privs, no set-id files, own pid and mount namespaces", nil
}

// shares reports whether commands can write to what others see as well.
func shares(spec sandbox.Spec) bool {
	w := spec.Workspace
	if w.Mode == sandbox.WorkspaceWritable || w.Mode == sandbox.WorkspaceVolume && !w.ReadOnly {
		return true
	}
	return slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return !m.Own && !m.ReadOnly })
}

// landlocked reports whether this kernel has the Landlock that package jail keeps
// sockets from shared directories with.
func landlocked() bool {
	abi, err := landlock.ABI()
	return err == nil && abi >= jail.SocketsABI
}

// landlockMechanism says which Landlock the kernel has, if any.
func landlockMechanism() string {
	if abi, err := landlock.ABI(); err == nil && abi > 0 {
		return fmt.Sprintf(", Landlock (ABI %d)", abi)
	}
	return "; no Landlock in this kernel"
}
