package sandbox

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Defaults of a Spec.
const (
	DefaultIsolation = WallGVisor
	DefaultImage     = "host"
	DefaultUser      = "user"
	DefaultNetwork   = NetworkOff

	DefaultCPUs   = 2.0
	DefaultMemory = 2 << 30
	DefaultPIDs   = 1024
	DefaultDisk   = 8 << 30
	defaultInodes = 1_000_000 // at most one for each bytesPerInode of the disk
)

// bytesPerInode is the least disk that a file takes.
const bytesPerInode = 4096

// Spec is what a caller asked for. Every field is a promise: Create enforces
// it and records by what means, or fails.
type Spec struct {
	Name      string `json:"name"`
	Isolation string `json:"isolation"` // the wall asked for: WallGVisor
	// Stronger names the walls that will do as well, each stronger than
	// Isolation. Create takes the weakest of them all that can keep the rest of
	// the Spec, and never one that is not named.
	Stronger []string `json:"stronger,omitempty"`
	Image    string   `json:"image"` // "host", or NAME@sha256:…, an image of Options.Images
	// Snapshot is the ID of a Snapshot that the sandbox lies over, read-only and
	// shared with all that do; "": none. Image is then its image, or is left out.
	// A Workspace of the host takes the place of the one that was saved.
	Snapshot string `json:"snapshot,omitempty"`
	// User is the account of commands that name none: "user", "root", or any
	// account of the image, by its name or its number. Any other fails the start.
	User string `json:"user"`
	// Sudo lets what User runs become root, or another, by sudo, and files be
	// made for User where root alone could: as far as commands may be root at
	// all. See docs/e2b.md.
	Sudo bool `json:"sudo,omitempty"`
	// ReadOnlyRoot leaves nothing inside to write to, for root neither, but
	// /workspace, the mounts, /tmp, /var/tmp, /dev/shm and the home of User.
	ReadOnlyRoot bool `json:"read_only_root,omitempty"`
	// Cwd is the working directory of commands that name none: absolute; "": the
	// workspace where it is a tree of the host's or a volume, else the image's or
	// their user's home.
	Cwd string `json:"cwd,omitempty"`
	// Startup is run at each start, before that is reported as done.
	Startup   *Startup  `json:"startup,omitempty"`
	Network   string    `json:"network"` // NetworkOff, NetworkPolicy or NetworkOn
	Workspace Workspace `json:"workspace"`
	Mounts    []Mount   `json:"mounts,omitempty"`
	Limits    Limits    `json:"limits"`
	// Policy is what its gate lets through; nil without a network.
	Policy *policy.Policy `json:"policy,omitempty"`
	// Secrets names what the gate may put into requests, where a rule of Policy
	// says. No value of one is ever a part of a Spec: see SecretValues.
	Secrets []string          `json:"secrets,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Caches names the tools whose caches a Mount keeps; to be shown.
	Caches []string          `json:"caches,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	TTL    time.Duration     `json:"ttl,omitempty"` // 0: none; counted from the last start or SetTTL
	// Template says what it was made from; nil: from no template.
	Template *TemplateRef `json:"template,omitempty"`
	// OnExpiry is what happens when the TTL has run out: OnExpiryStop, which
	// is the default, OnExpiryPause or OnExpiryRemove.
	OnExpiry OnExpiry `json:"on_expiry,omitempty"`
	// Traffic is how its ports are reached from outside.
	Traffic Traffic `json:"traffic,omitzero"`
	// Publish are its ports on the machine's loopback.
	Publish []Publish `json:"publish,omitempty"`
	// Ephemeral sandboxes belong to one client: `carboy run`. They end when
	// that client has been gone for OrphanGrace.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Project says which file of a project's own it was partly made from; nil: none.
	Project *Project `json:"project,omitempty"`
	// Agent says which agent it was made for; nil: none.
	Agent *Agent `json:"agent,omitempty"`
	// Remotes are git repositories elsewhere, which its git reaches by a git gate. Of their keys there is
	// only said where they are.
	Remotes []Remote `json:"remotes,omitempty"`
	// RemotesPrivate lets remotes be at addresses that are not public.
	RemotesPrivate bool `json:"remotes_private,omitempty"`
	// MaySpawn is how many pods its programs may have spawned at once, by the service ServicePods of its gate; 0: they spawn none.
	MaySpawn int `json:"may_spawn,omitempty"`
}

// Project is a file of a project's own, as who made the sandbox says; to be shown.
type Project struct {
	File   string   `json:"file"`
	Digest string   `json:"digest"` // SHA-256, in hexadecimal
	Keys   []string `json:"keys"`   // what was taken from it
}

// SecretValues are the values, by name, of those Secrets of a Spec that belong to
// one sandbox alone. They travel beside a Spec, from a create to the gate, which
// keeps them. Printed or logged they show nothing.
type SecretValues map[string]string

// Format implements fmt.Formatter.
func (v SecretValues) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "[%d secrets]", len(v)) }

// LogValue implements slog.LogValuer.
func (v SecretValues) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(v)) }

// OnExpiry says what the end of a TTL does.
type OnExpiry string

// The choices.
const (
	OnExpiryStop   OnExpiry = "stop"   // stop it as Stop does; a stopped one never expires
	OnExpiryPause  OnExpiry = "pause"  // pause it as Pause does, its memory kept where the wall can
	OnExpiryRemove OnExpiry = "remove" // remove it, running or stopped
)

// Times of ephemeral sandboxes.
const (
	// OrphanGrace is how long one waits for its client to return, or to come at all once it
	// was made.
	OrphanGrace = 10 * time.Second
	// KeptTTL is how long one is kept whose workspace had changes at its end.
	KeptTTL = 7 * 24 * time.Hour
)

// WorkspaceMode says how /workspace relates to the host's tree.
type WorkspaceMode string

// The modes.
const (
	WorkspacePrivate  WorkspaceMode = "private" // an empty one of the sandbox's own
	WorkspaceCOW      WorkspaceMode = "cow"     // a copy-on-write view of Source; the default where a Source is given
	WorkspaceReadOnly WorkspaceMode = "ro"      // Source, read-only
	WorkspaceWritable WorkspaceMode = "rw"      // Source itself
	WorkspaceVolume   WorkspaceMode = "volume"  // Volume; the default where a Volume is given
)

// Workspace is what is seen at /workspace.
type Workspace struct {
	Mode   WorkspaceMode `json:"mode"`
	Source HostDir       `json:"source,omitzero"` // of cow, ro and rw
	// Volume is the ID of one of Options.Volumes, of mode volume: what is
	// written goes to it at once, and counts against its own bounds.
	Volume string `json:"volume,omitempty"`
	// VolumeName is the volume's name, to be shown.
	VolumeName string `json:"volume_name,omitempty"`
	// ReadOnly is of mode volume alone: the others say so by their name.
	ReadOnly bool `json:"read_only,omitempty"`
}

// HostDir is a directory of the host that a caller was entitled to name.
type HostDir struct {
	Path string `json:"path"` // absolute, symlinks resolved when it was accepted
	Dev  uint64 `json:"dev"`  // which directory that was, so that a later start can tell it was replaced
	Ino  uint64 `json:"ino"`
	// Born is when that directory was made, in nanoseconds since 1970, where the file
	// system tells; 0: not known. Numbers of inodes are used again, this is not.
	Born int64 `json:"born,omitempty"`
	// UID and GID own it; inside, they appear as uid and gid 1000.
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Same reports whether d and o are one directory, also where it was moved or the
// machine has numbered its file systems anew since. Another one that stands at the
// same path is not.
func (d HostDir) Same(o HostDir) bool {
	switch {
	case d.Ino == 0 || d.Ino != o.Ino || d.Born != o.Born:
		return false
	case d.Born == 0:
		return d.Dev == o.Dev && d.Path == o.Path
	}
	return d.Dev == o.Dev || d.Path == o.Path
}

// Mount is a further directory of the host, a volume, or a directory of the
// sandbox's own. It may lie below /workspace: see WorkspacePath.
type Mount struct {
	Source HostDir `json:"source,omitzero"`
	// Volume is the ID of one of Options.Volumes, which then stands in for
	// Source: all sandboxes that have it see one file system.
	Volume string `json:"volume,omitempty"`
	// VolumeName is the volume's name, to be shown.
	VolumeName string `json:"volume_name,omitempty"`
	// Cache: of Volume one slot is shown, which no other sandbox has while this one
	// runs or is suspended. Slot is its number, from 1, which each start gives.
	Cache bool `json:"cache,omitempty"`
	Slot  int  `json:"slot,omitempty"`
	// Home is of a cache that keeps directories of a home: what for, such as "claude".
	// Such a sandbox has the slot of its first start at each. Sub is which of the
	// slot's directories is shown; "": the slot itself.
	Home string `json:"home,omitempty"`
	Sub  string `json:"sub,omitempty"`
	// Own stands in for both: a directory of the sandbox's own disk, which
	// belongs to Owner and is kept as long as the sandbox is. It counts against
	// Limits.Disk, and is no part of the workspace's changes, nor of a snapshot.
	Own bool `json:"own,omitempty"`
	// Owner is of Own: "root", which is the default, or "user".
	Owner    string `json:"owner,omitempty"`
	Target   string `json:"target"` // absolute path inside
	ReadOnly bool   `json:"read_only"`
}

// Limits bound a sandbox. Explicit names those that the caller set: an
// explicit limit that can't be enforced fails the create, a default that
// can't is reported.
type Limits struct {
	CPUs     float64         `json:"cpus"`
	Memory   int64           `json:"memory"` // bytes, the wall's own need not counted
	PIDs     int64           `json:"pids"`
	Disk     int64           `json:"disk"`   // bytes of /workspace's and the root layer's changes together
	Inodes   int64           `json:"inodes"` // files in the same
	Explicit map[string]bool `json:"explicit,omitempty"`
}

// State is where a sandbox is in its life. Each change is written to the
// store before it is acted on.
type State string

// The states, in order: created → running → stopped → removed. Start takes a
// stopped one through created again. Removing is written before anything is
// deleted; a removed sandbox has no record.
const (
	StateCreated  State = "created"  // accepted; its wall is being built, for the first time where Starts is 0
	StateRunning  State = "running"  // its guest answered
	StateStopping State = "stopping" // asked to stop
	StateStopped  State = "stopped"  // no process; its workspace and its root's changes are kept as Lost says
	StateRemoving State = "removing" // being deleted
)

// EndReason says why a sandbox that is not running stopped.
type EndReason string

// The reasons.
const (
	EndStopped     EndReason = "stopped"       // someone asked
	EndPaused      EndReason = "paused"        // someone asked for a pause: it never expires
	EndOutOfMemory EndReason = "out_of_memory" // its memory limit was reached
	EndExpired     EndReason = "expired"       // its TTL ran out
	EndOrphaned    EndReason = "orphaned"      // its client went away
	EndCrashed     EndReason = "crashed"       // its wall or guest died
	EndRebooted    EndReason = "rebooted"      // the host did
)

// Enforcement records how one promise is kept.
type Enforcement struct {
	Promise   string `json:"promise"` // filesystem, root, network, trust, privileges, memory, cpus, pids, disk, inodes, isolation
	Enforced  bool   `json:"enforced"`
	Mechanism string `json:"mechanism,omitempty"` // by what means
	Reason    string `json:"reason,omitempty"`    // why not
}

// Sandbox is the record of one sandbox.
type Sandbox struct {
	ID       string        `json:"id"`
	Owner    string        `json:"owner"` // "uid:1000", or "key:ID"
	Spec     Spec          `json:"spec"`
	State    State         `json:"state"`
	Ended    EndReason     `json:"ended,omitempty"`
	Lost     []string      `json:"lost,omitempty"` // what the last end lost: "processes", "root changes"
	Backend  string        `json:"backend"`        // the wall that was chosen
	Why      string        `json:"why,omitempty"`  // why that one: "asked for", or what is in the way of the weaker ones
	Enforced []Enforcement `json:"enforced,omitempty"`
	Token    string        `json:"-"` // the guest agent's access token; the store keeps it apart from what is shown
	// TrafficToken is what requests to its ports have to show, the agent's
	// apart; "" where Spec.Traffic is not restricted. It is kept as Token is.
	TrafficToken string    `json:"-"`
	CreatedAt    time.Time `json:"created_at"`
	StartedAt    time.Time `json:"started_at,omitzero"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
	Starts       int       `json:"starts"` // how often it came to run
	// Link is what its network hangs on while its instance is started; nil for one
	// without.
	Link *Link `json:"-"`
	// Held says that what it writes waits for room on the host's disk; nil: it does not.
	// It is told with a record, and no part of it.
	Held *Held `json:"-"`
	// DiskBroken says why its disk can't be used before its next start; "": it can. It is
	// told as Held is.
	DiskBroken string `json:"-"`
	// Kept marks what remains of an ephemeral sandbox whose workspace had
	// changes when it was finished.
	Kept bool `json:"kept,omitempty"`
	// Suspended: it is stopped, and goes on from what it had in memory when it
	// is started.
	Suspended bool `json:"suspended,omitempty"`
	// Next is what was set and does not hold yet; nil: nothing.
	Next *Next `json:"next,omitempty"`
	// Access is what of its workspace is locked: read-only for what runs inside, until it is unlocked.
	Access AccessList `json:"locked,omitempty"`
	// Delegated: pods have parts of its workspace, and Access follows from that: see Manager.Delegate.
	Delegated bool `json:"delegated,omitempty"`
}

// Clone returns a copy that shares nothing with sb.
func (sb *Sandbox) Clone() *Sandbox {
	c := *sb
	c.Spec = sb.Spec.Clone()
	c.Lost = slices.Clone(sb.Lost)
	c.Enforced = slices.Clone(sb.Enforced)
	c.Access = slices.Clone(sb.Access)
	c.Next = sb.Next.clone()
	return &c
}

// Clone returns a copy that shares nothing with s.
func (s Spec) Clone() Spec {
	s.Stronger = slices.Clone(s.Stronger)
	s.Mounts = slices.Clone(s.Mounts)
	s.Limits.Explicit = maps.Clone(s.Limits.Explicit)
	s.Policy = policy.Clone(s.Policy)
	s.Secrets = slices.Clone(s.Secrets)
	s.Caches = slices.Clone(s.Caches)
	s.Env = maps.Clone(s.Env)
	s.Labels = maps.Clone(s.Labels)
	s.Startup = s.Startup.Clone()
	s.Publish = slices.Clone(s.Publish)
	if s.Template != nil {
		t := *s.Template
		s.Template = &t
	}
	if s.Project != nil {
		p := *s.Project
		p.Keys = slices.Clone(p.Keys)
		s.Project = &p
	}
	s.Agent = s.Agent.clone()
	s.Remotes = cloneRemotes(s.Remotes)
	return s
}
