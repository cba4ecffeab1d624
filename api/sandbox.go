package api

import "time"

// CreateRequest is the body of POST /v1/sandboxes. A field left out takes its
// default; a field that is not listed here is an error.
type CreateRequest struct {
	Name      string   `json:"name,omitempty"`      // 1 to 63 of a-z, 0-9 and "-", a letter first; one is made up where empty
	Isolation string   `json:"isolation,omitempty"` // the wall asked for; default "gvisor"
	Stronger  []string `json:"stronger,omitempty"`  // walls that will do as well, each stronger than Isolation
	// Image is "host" (default), or one that the daemon has: a name, a name
	// with a digest, or the start of a digest. Another one is a not_found.
	Image string `json:"image,omitempty"`
	// Template names what to start from: NAME, NAME:TAG, OWNER/NAME or an ID. What
	// the request says stands above what the template has.
	Template string `json:"template,omitempty"`
	// Snapshot is the ID of a snapshot to start from; Image is then its image, or
	// left out.
	Snapshot string `json:"snapshot,omitempty"`
	User     string `json:"user,omitempty"` // whom commands run as unless they say: "user" (default) or "root"
	// Network is "off" (default), "policy": what Policy allows, or "on": the
	// public internet, but for what Policy says. With a Policy alone it is
	// "policy".
	Network string          `json:"network,omitempty"`
	Policy  *Policy         `json:"policy,omitempty"`
	Secrets []SandboxSecret `json:"secrets,omitempty"` // each must have a place in Policy
	// ReadOnlyRoot lets nobody inside write anywhere, root neither, but in
	// /workspace, the mounts, /tmp, /var/tmp, /dev/shm and the home of User.
	ReadOnlyRoot bool `json:"read_only_root,omitempty"`

	Workspace *Workspace        `json:"workspace,omitempty"` // default: a private empty one
	Mounts    []Mount           `json:"mounts,omitempty"`
	Limits    Limits            `json:"limits,omitzero"`
	Env       map[string]string `json:"env,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	TTLMillis int64             `json:"ttl_ms,omitempty"`    // milliseconds from each start to the end; 0: none
	OnExpiry  string            `json:"on_expiry,omitempty"` // what the end does: "stop" (default), "pause" or "remove"
	// Ephemeral sandboxes end when their client has been gone for 10 seconds:
	// a client keeps one by GET /v1/sandboxes/{id}/hold.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

// Workspace says what is seen at /workspace.
type Workspace struct {
	// Mode is "private", "cow", "ro", "rw" or "volume"; default "cow" with a
	// source, "volume" with a volume, else "private".
	Mode     string `json:"mode,omitempty"`
	Source   string `json:"source,omitempty"`    // of cow, ro and rw: absolute path of a directory on the daemon's host
	Volume   string `json:"volume,omitempty"`    // of volume: its name or, where it is asked for, its ID
	ReadOnly bool   `json:"read_only,omitempty"` // of volume
}

// Mount is a further directory of the host, a volume, or a directory of the
// sandbox's own: one of Source, Volume and Own. It may lie below /workspace: the
// directories that lead to it are made where they are missing.
type Mount struct {
	Source string `json:"source,omitempty"` // absolute path on the daemon's host
	Volume string `json:"volume,omitempty"` // a volume's name or, where it is asked for, its ID
	// Own is a directory on the sandbox's disk that belongs to root. It is no
	// part of the workspace's changes, nor of a snapshot.
	Own      bool   `json:"own,omitempty"`
	Target   string `json:"target"` // absolute path inside
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Limits bound a sandbox. Zero takes the default; what is set is explicit: it
// is enforced, or the create fails.
type Limits struct {
	CPUs   float64 `json:"cpus,omitempty"`   // default 2
	Memory int64   `json:"memory,omitempty"` // bytes; default 2 GiB
	PIDs   int64   `json:"pids,omitempty"`   // default 1,024
	Disk   int64   `json:"disk,omitempty"`   // bytes; default 8 GiB
	Inodes int64   `json:"inodes,omitempty"` // default 1,000,000
}

// Sandbox is one sandbox as the daemon knows it. Times that have not come are
// absent.
type Sandbox struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Owner     string   `json:"owner"` // "uid:1000" or "key:ID"
	State     string   `json:"state"` // "created", "running", "stopping", "stopped" or "removing"
	Ended     string   `json:"ended,omitempty"`
	Lost      []string `json:"lost,omitempty"`      // what the last end lost: "processes", "root changes"
	Suspended bool     `json:"suspended,omitempty"` // stopped, and goes on from its memory when it is started
	Isolation string   `json:"isolation"`           // the wall that was built
	// IsolationAsked and Stronger are what the create named, IsolationReason
	// why it became Isolation.
	IsolationAsked  string   `json:"isolation_asked"`
	Stronger        []string `json:"stronger,omitempty"`
	IsolationReason string   `json:"isolation_reason,omitempty"`

	Image       string       `json:"image"`                  // without the digest
	ImageDigest string       `json:"image_digest,omitempty"` // absent for "host"
	ImageConfig *ImageConfig `json:"image_config,omitempty"` // absent for "host"
	Snapshot    string       `json:"snapshot,omitempty"`     // the ID of the one that it lies over

	User    string   `json:"user"`
	Network string   `json:"network"`           // GET /v1/sandboxes/{id}/policy has the rules
	Secrets []string `json:"secrets,omitempty"` // the names alone

	ReadOnlyRoot bool `json:"read_only_root,omitempty"`
	// Sudo says that what the user runs becomes root by sudo, where root is
	// allowed.
	Sudo bool `json:"sudo,omitempty"`

	Workspace Workspace         `json:"workspace"`
	Mounts    []Mount           `json:"mounts"`
	Limits    Limits            `json:"limits"` // as they hold, defaults filled in
	Env       []string          `json:"env"`    // the names alone, sorted: values may be secrets
	Labels    map[string]string `json:"labels"`
	TTLMillis int64             `json:"ttl_ms,omitempty"`
	OnExpiry  string            `json:"on_expiry"`
	Ephemeral bool              `json:"ephemeral,omitempty"`
	Kept      bool              `json:"kept,omitempty"` // what remains of an ephemeral one whose workspace had changes
	Enforced  []Enforcement     `json:"enforced"`
	CreatedAt time.Time         `json:"created_at"`
	StartedAt time.Time         `json:"started_at,omitzero"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	ExpiresAt time.Time         `json:"expires_at,omitzero"`
	Starts    int               `json:"starts"` // how often it was started

	// Warnings are in the answer to a create alone: what its owner should know
	// before anything runs in it.
	Warnings []string `json:"warnings,omitempty"`
}

// Enforcement says how one promise is kept, or why it is not.
type Enforcement struct {
	Promise   string `json:"promise"` // filesystem, root, network, probe, privileges, memory, cpus, pids, disk, inodes or isolation
	Enforced  bool   `json:"enforced"`
	Mechanism string `json:"mechanism,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// PauseRequest is the body of POST /v1/sandboxes/{id}/pause, which may be left
// out.
type PauseRequest struct {
	// FilesOnly ends the processes, as a stop does, also where their memory could
	// be kept.
	FilesOnly bool `json:"files_only"`
}

// TimeoutRequest is the body of POST /v1/sandboxes/{id}/timeout.
type TimeoutRequest struct {
	TTLMillis int64 `json:"ttl_ms"` // milliseconds from now; 0: no end
}

// FinishResult is the answer of POST /v1/sandboxes/{id}/finish.
type FinishResult struct {
	Kept bool `json:"kept"` // its workspace has changes: it is there still, stopped
}

// Event is one line of a sandbox's log. GET /v1/sandboxes/{id}/events streams
// them as JSON lines; an empty line says that the stream is alive.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Message string    `json:"message"`
}
