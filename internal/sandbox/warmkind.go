package sandbox

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Defaults of a Pool.
const (
	DefaultPoolMemory  = 1 << 30
	DefaultPerInstance = 64 << 20
)

const (
	// maxKinds bounds how many kinds of instances are kept warm. The default one is
	// always among them.
	maxKinds = 4
	// poolRest is how long nothing is warmed after a start for somebody, whose
	// first command is about to run.
	poolRest = 100 * time.Millisecond
)

// Pool says what is kept warm: instances that were started before anyone asked
// for them. The zero value keeps none.
type Pool struct {
	// Size is how many instances of each kind to keep.
	Size int
	// Memory bounds what all of them take together, by the estimates of
	// PerInstance, in bytes; 0 is DefaultPoolMemory.
	Memory int64
	// PerInstance is what one idle instance takes behind each wall, in bytes, its guest
	// agent included; DefaultPerInstance for a wall without an entry. Limits say
	// what an instance may use, and nothing of what it does.
	PerInstance map[string]int64
}

// kindKey is all of an instance that Claim can't change. Instances of one key are alike.
type kindKey struct {
	wall, image, snapshot string
	user, cwd, network    string
	owner                 string // for whose sandboxes alone they are; "": for anybody's
	readOnlyRoot, sudo    bool
	own                   string // where it has directories of its own mounted

	cpus                       float64
	memory, pids, disk, inodes int64
	explicit                   string
}

// kindOf returns the key of the instances that would do for spec behind wall, and
// whether any can be kept: nothing of the host may be in them, nor of a volume.
func kindOf(wall string, spec Spec) (kindKey, bool) {
	l := spec.Limits
	own, rest := ownMounts(spec.Mounts)
	var explicit []string
	for _, name := range slices.Sorted(maps.Keys(l.Explicit)) {
		if l.Explicit[name] {
			explicit = append(explicit, name)
		}
	}
	return kindKey{
		wall: wall, image: spec.Image, snapshot: spec.Snapshot, user: spec.User, cwd: spec.Cwd, network: spec.Network,
		cpus: l.CPUs, memory: l.Memory, pids: l.PIDs, disk: l.Disk, inodes: l.Inodes,
		explicit: strings.Join(explicit, " "), readOnlyRoot: spec.ReadOnlyRoot, sudo: spec.Sudo, own: own,
	}, !spec.Networked() && rest == 0 && spec.Workspace.Mode == WorkspacePrivate
}

// ownMounts returns where directories of the sandbox's own are mounted, as one
// word whatever their order, and how many other mounts there are.
func ownMounts(mounts []Mount) (targets string, rest int) {
	var own []string
	for _, m := range mounts {
		if !m.Own {
			rest++
			continue
		}
		own = append(own, m.Target)
	}
	slices.Sort(own)
	return strings.Join(own, "\x00"), rest
}

// warmKind is a kind of instance that is kept warm.
type warmKind struct {
	key   kindKey
	spec  Spec // what Warm is told; never changed
	fixed bool // it is never forgotten
	fails int  // since an instance of it was last claimed
	retry time.Time
}

func newWarmKind(key kindKey, spec Spec) *warmKind {
	return &warmKind{key: key, spec: Spec{
		Isolation: key.wall, Image: spec.Image, Snapshot: spec.Snapshot, User: spec.User, Cwd: spec.Cwd, Network: spec.Network,
		Workspace: Workspace{Mode: WorkspacePrivate}, Limits: spec.Clone().Limits, OnExpiry: OnExpiryStop,
		ReadOnlyRoot: spec.ReadOnlyRoot, Sudo: spec.Sudo, Mounts: spec.Clone().Mounts,
	}}
}
