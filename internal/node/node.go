// Package node tells what the machine is that sandboxes run on, how much of it
// is in use, and whether it takes new ones. What an operator decided of that
// is remembered: a daemon that is started anew on a machine that was being
// drained goes on draining it.
package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// Status says whether a machine takes new sandboxes.
type Status string

// The statuses. A machine that does not answer tells nobody, so there are no
// others.
const (
	Ready    Status = "ready"
	Draining Status = "draining" // starts none; those that run go on
	Standby  Status = "standby"  // the same, by another name
)

// settingName is where the state of the node is remembered.
const settingName = "node"

// Manager is what a node asks of the domain. *sandbox.Manager is one.
type Manager interface {
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	Counts() sandbox.Counts
	Drain(drain bool)
}

// Options are what a node works with; all but Version and Commit are required.
type Options struct {
	Manager         Manager
	Settings        team.Settings
	Dir             string // whose file system sandboxes are kept on
	Version, Commit string
	Now             func() time.Time // default: time.Now
	Proc            string           // default: "/proc"
}

// Node is this machine.
type Node struct {
	o        Options
	instance string

	mu    sync.Mutex
	state state
	cpu   cpuMeter
}

// state is what is remembered.
type state struct {
	ID        string    `json:"id"`
	Status    Status    `json:"status"`
	ChangedAt time.Time `json:"changed_at"`
}

// Info is a machine at one moment.
type Info struct {
	ID, Instance    string // the instance is another with each daemon
	Version, Commit string
	Status          Status
	ChangedAt       time.Time
	Running         int // sandboxes
	Counts          sandbox.Counts
	CPUs            int
	CPUPercent      int // in use
	// AllocatedCPUs and AllocatedMemory are what the sandboxes that run may use.
	AllocatedCPUs                uint32
	AllocatedMemory              int64
	MemoryTotal, MemoryUsed      int64
	HugeTotal, HugeUsed          int64 // pages
	HugeReserved, HugePage       int64 // pages; bytes of one
	Disk                         Disk
	Family, Model, ModelName, OS string
	Arch                         string
}

// Disk is a file system.
type Disk struct {
	MountPoint, Device, Type string
	Used, Total              int64 // bytes
}

// Open reads what is remembered, and has the Manager act accordingly.
func Open(ctx context.Context, o Options) (*Node, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	instance, err := team.NewID(rand.Reader)
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, instance: instance}
	text, err := o.Settings.Setting(ctx, settingName)
	if err != nil {
		return nil, err
	}
	if text == "" {
		id, err := team.NewID(rand.Reader)
		if err != nil {
			return nil, err
		}
		n.state = state{ID: id, Status: Ready, ChangedAt: o.Now().UTC()}
		if err := n.save(ctx, n.state); err != nil {
			return nil, err
		}
	} else if err := json.Unmarshal([]byte(text), &n.state); err != nil {
		return nil, fmt.Errorf("read what is known of this machine: %w", err)
	}
	n.cpu.sample(o.Proc, o.Now())
	o.Manager.Drain(n.state.Status != Ready)
	return n, nil
}

func (n *Node) save(ctx context.Context, st state) error {
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return n.o.Settings.SetSetting(ctx, settingName, string(text))
}

// ID returns the machine's, which it keeps for as long as its state.
func (n *Node) ID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state.ID
}

// SetStatus changes what the machine does with new sandboxes. A status that
// can only be found, not set, is a Conflict.
func (n *Node) SetStatus(ctx context.Context, status Status) error {
	switch status {
	case Ready, Draining, Standby:
	case "connecting", "unhealthy":
		return sandbox.Errorf(sandbox.Conflict, "status %s: that is found, and can't be set", status).
			WithHint("ready, draining or standby")
	default:
		return sandbox.Errorf(sandbox.Invalid, "status %.40q: there is no such status", string(status)).
			WithHint("ready, draining or standby")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state.Status == status {
		return nil
	}
	next := state{ID: n.state.ID, Status: status, ChangedAt: n.o.Now().UTC()}
	if err := n.save(ctx, next); err != nil {
		return err
	}
	n.state = next
	n.o.Manager.Drain(status != Ready)
	return nil
}

// Info looks at the machine. What can't be read there is zero or empty.
func (n *Node) Info(ctx context.Context) (Info, error) {
	list, err := n.o.Manager.List(ctx, sandbox.Caller{Admin: true}, sandbox.Filter{States: []sandbox.State{sandbox.StateRunning}})
	if err != nil {
		return Info{}, err
	}
	n.mu.Lock()
	st := n.state
	percent := n.cpu.sample(n.o.Proc, n.o.Now())
	n.mu.Unlock()
	i := Info{
		ID: st.ID, Instance: n.instance, Version: n.o.Version, Commit: n.o.Commit, Status: st.Status, ChangedAt: st.ChangedAt,
		Running: len(list), Counts: n.o.Manager.Counts(), CPUs: runtime.NumCPU(), CPUPercent: percent,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Disk: disk(n.o.Proc, n.o.Dir),
	}
	for _, sb := range list {
		i.AllocatedCPUs += uint32(math.Ceil(sb.Spec.Limits.CPUs))
		i.AllocatedMemory += sb.Spec.Limits.Memory
	}
	i.memory(n.o.Proc)
	i.machine(n.o.Proc)
	return i, nil
}
