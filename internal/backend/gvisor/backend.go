package gvisor

import (
	"context"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Name is the wall's name in a Spec.
const Name = "gvisor"

// Options place a Backend.
type Options = instance.Options

// Backend is the gVisor wall. Open makes one.
type Backend struct {
	*instance.Backend
	debugDir string
}

var _ sandbox.Backend = (*Backend)(nil)

// Capabilities implements sandbox.Backend.
func (b *Backend) Capabilities() sandbox.Capabilities {
	c := b.Backend.Capabilities()
	c.Suspend = b
	return c
}

// The wall's own needs, on top of what an instance was promised.
const (
	// wallMemory is what sentry, gofer and the guest kernel's tables take
	// beside the guest's own memory: measured at 40 to 90 MiB under load.
	wallMemory = 128 << 20
	// wallPIDs bounds the wall's threads on the host: each guest thread
	// takes one or two. The guest's own limit is kept inside.
	wallPIDs = 512
)

// limits are what the host enforces for an instance.
func limits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory + wallMemory, CPUs: l.CPUs, PIDs: 2*l.PIDs + wallPIDs, OOMTogether: true}
}

// seen says what of new limits a guest that runs can't be told: its kernel has as many
// processors and as much memory as it was started with.
func seen(from, to sandbox.Limits, out *sandbox.Resized) {
	count := func(cpus float64) int { return CPUCount(int64(cpus*CPUPeriod), CPUPeriod) }
	if count(to.CPUs) > count(from.CPUs) {
		out.Notes[sandbox.LimitCPUs] = "its programs see no more processors than it was started with, until its next start"
	}
	if from.Memory != to.Memory {
		out.Notes[sandbox.LimitMemory] = "its programs go on seeing as much memory as it was started with, until its next start; /sys/fs/cgroup has the new limit"
	}
}

// Open looks at what this machine can do and puts the guest agent in place.
// From then on this process reaps the instances whose launchers have left.
func Open(_ context.Context, opts Options) (*Backend, error) {
	b := &Backend{debugDir: opts.DebugDir}
	host, err := instance.Open(instance.Wall{
		Name: Name, Strength: sandbox.OwnKernel, Promises: promises, Arrange: arrange, Launch: b.launch,
		Limits: limits, Seen: seen, OOMEndsInstance: true, Stray: stray,
	}, opts)
	if err != nil {
		return nil, err
	}
	b.Backend = host
	return b, nil
}

// Order is what the daemon hands to a launcher.
type Order struct {
	instance.Layout
	Memory int64   `json:"memory"` // bytes that the guest sees
	CPUs   float64 `json:"cpus"`
	// LogDir receives gVisor's debug logs where it is set.
	LogDir string `json:"log_dir"`
}

// Launched is what a launcher answers.
type Launched struct {
	Sentry  int    `json:"sentry"` // pids on the host
	Gofer   int    `json:"gofer"`
	Instead string `json:"instead"` // see instance.Layout
}

// arrange wants the memory of an instance that goes on to be of this program's making.
func arrange(_ *sandbox.Sandbox, lay *instance.Layout, _ *control.Config) error {
	if lay.Resume {
		return sameProgram(lay.Dir)
	}
	return nil
}

func (b *Backend) launch(ctx context.Context, sb *sandbox.Sandbox, lay *instance.Layout, agent *instance.Handover) ([]int, error) {
	order := Order{Layout: *lay, Memory: sb.Spec.Limits.Memory, CPUs: sb.Spec.Limits.CPUs, LogDir: b.debugDir}
	var answer Launched
	if err := b.Launch(ctx, RoleLauncher, &order, &answer, agent, sb.Link); err != nil {
		return nil, err
	}
	lay.Instead = answer.Instead
	return []int{answer.Sentry, answer.Gofer}, nil
}

// promises are what the wall keeps by itself.
func promises(spec sandbox.Spec, owner string) (isolation, privileges string, err error) {
	root := instance.RootAllowed(spec, owner)
	if sandbox.IsRoot(spec.User) && !root {
		return "", "", sandbox.Errorf(sandbox.Unsupported, "user root: not over a directory of the host that the sandbox can write, or that another user named").
			WithHint("leave out :rw, or --user root")
	}
	return "gvisor: a kernel in user space (systrap), as a user without rights in a user namespace, behind seccomp", privilegeMechanism(root), nil
}

func privilegeMechanism(root bool) string {
	users := []string{"uid 1000 without capabilities"}
	if root {
		users = append(users, "guest root with a container's capabilities where a command asks for it")
	}
	return strings.Join(users, ", ") + "; no_new_privs, no set-id files, own pid and mount namespaces"
}
