package api

import "time"

// CreateNews is what a POST /v1/sandboxes or /v1/volumes accepts that wants to know how far the copy
// of a directory is, where one has to be made, and a sandbox's set-up. It is answered as any other, unless there is something
// to tell: then with 200 and a CreateEvent on each line.
const CreateNews = "application/jsonl"

// CreateEvent is one line of such an answer. One field is set; the last line has a
// sandbox or an error, and a stream that ends without one was cut short.
type CreateEvent struct {
	Copied  *Copied    `json:"copied,omitempty"`
	Step    *SetUpStep `json:"step,omitempty"`
	Sandbox *Sandbox   `json:"sandbox,omitempty"`
	Error   *Error     `json:"error,omitempty"`
}

// Result is what the last line has.
func (e CreateEvent) Result() (*Sandbox, *Error) { return e.Sandbox, e.Error }

// Copied is how much of a workspace was copied so far.
type Copied struct {
	Files int64 `json:"files"` // regular files, symlinks and directories
	Bytes int64 `json:"bytes"` // of data
}

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

	Workspace *Workspace `json:"workspace,omitempty"` // default: a private empty one
	Mounts    []Mount    `json:"mounts,omitempty"`
	// Caches names the tools, such as "go" and "npm", whose caches are kept for the
	// directory that is the workspace, and shown to each sandbox of the caller's that
	// has it and asks.
	Caches []string `json:"caches,omitempty"`
	// Homes are directories of a home that are kept for the directory that is the
	// workspace, as caches are: one sandbox at a time has them.
	Homes     []Home            `json:"homes,omitempty"`
	Limits    Limits            `json:"limits,omitzero"`
	Env       map[string]string `json:"env,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	TTLMillis int64             `json:"ttl_ms,omitempty"`    // milliseconds from each start to the end; 0: none
	OnExpiry  string            `json:"on_expiry,omitempty"` // what the end does: "stop" (default), "pause" or "remove"
	// Publish are ports that are to be open on the loopback of the daemon's
	// machine, for the caller alone: over the unix socket only.
	Publish []Publish `json:"publish,omitempty"`
	// Ephemeral sandboxes end when their client has been gone for 10 seconds:
	// a client keeps one by GET /v1/sandboxes/{id}/hold.
	Ephemeral bool     `json:"ephemeral,omitempty"`
	Project   *Project `json:"project,omitempty"`
	SetUp     *SetUp   `json:"setup,omitempty"` // for an agent
	// Remotes are git repositories elsewhere, at most 16. With any, a network that is off becomes one by
	// a policy that lets nothing else through.
	Remotes []Remote `json:"remotes,omitempty"`
	// MaySpawn is how many pods its programs may have spawned at once, by the tools at the service "pods" of its gate; 0: they spawn none. Its
	// workspace has to be a volume.
	MaySpawn int `json:"may_spawn,omitempty"`
}

// Project says which file of a project's own a create has taken something from. It is
// shown, and changes nothing.
type Project struct {
	File   string   `json:"file"`   // its path
	Digest string   `json:"digest"` // SHA-256 of its text, in hexadecimal
	Keys   []string `json:"keys"`   // what was taken
}

// Home is what one program keeps in its home, such as its history and its log-in. Each
// program has its own for each directory that is a workspace.
type Home struct {
	Program string   `json:"program"` // 1 to 32 of a-z, A-Z, 0-9, _ and -, such as "claude"
	Paths   []string `json:"paths"`   // the directories inside, absolute; at most 8
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
	// Own is a directory on the sandbox's disk that belongs to Owner: "root", the
	// default, or "user". It is no part of the workspace's changes, nor of a snapshot.
	Own      bool   `json:"own,omitempty"`
	Owner    string `json:"owner,omitempty"` // of Own: whose it is
	Target   string `json:"target"`          // absolute path inside
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

// Sandbox is one sandbox as the daemon knows it: the answer of POST /v1/sandboxes, GET
// /v1/sandboxes/{id}, and POST /v1/sandboxes/{id}/start, POST /v1/sandboxes/{id}/stop, POST
// /v1/sandboxes/{id}/pause and POST /v1/sandboxes/{id}/timeout. GET /v1/sandboxes lists the
// caller's, with ?label=KEY=VALUE those with that label. Times that have not come are absent.
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
	Caches    []string          `json:"caches,omitempty"` // the tools whose caches one of the mounts keeps
	Limits    Limits            `json:"limits"`           // as they hold, defaults filled in
	Env       []string          `json:"env"`              // the names alone, sorted: values may be secrets
	Labels    map[string]string `json:"labels"`
	TTLMillis int64             `json:"ttl_ms,omitempty"`
	OnExpiry  string            `json:"on_expiry"`
	Ephemeral bool              `json:"ephemeral,omitempty"`
	Project   *Project          `json:"project,omitempty"`
	Agent     *Agent            `json:"agent,omitempty"`     // that it was made for
	Remotes   []Remote          `json:"remotes,omitempty"`   // git repositories elsewhere, which its git gate talks to
	MaySpawn  int               `json:"may_spawn,omitempty"` // how many pods its programs may have spawned at once
	Kept      bool              `json:"kept,omitempty"`      // what remains of an ephemeral one whose workspace had changes
	Published []PublishedPort   `json:"published,omitempty"` // on the loopback of the daemon's machine
	// Socket is the path of the unix socket by which ports inside are reached as through
	// Firecracker's vsock device; absent where it does not run, and over TCP.
	Socket    string        `json:"socket,omitempty"`
	Enforced  []Enforcement `json:"enforced"`
	CreatedAt time.Time     `json:"created_at"`
	StartedAt time.Time     `json:"started_at,omitzero"`
	EndedAt   time.Time     `json:"ended_at,omitzero"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
	Starts    int           `json:"starts"` // how often it was started

	// Held says that what it writes waits for room on the host's disk; absent: it does not.
	Held *DiskHeld `json:"held,omitempty"`

	// DiskBroken says why its disk can't be used before it is stopped and started; absent: it can.
	DiskBroken string `json:"disk_broken,omitempty"`

	// Next is what was set and holds from the next start on.
	Next []Pending `json:"next,omitempty"`

	// Locked are the directories of its workspace that nothing inside can write to until they are unlocked, and in them those
	// that it can.
	Locked []Access `json:"locked,omitempty"`

	// Warnings are in the answer to a create alone: what its owner should know
	// before anything runs in it.
	Warnings []string `json:"warnings,omitempty"`
}

// DiskHeld is a sandbox whose writes wait. Nothing of them fails, and they go on when there is
// room.
type DiskHeld struct {
	Since time.Time `json:"since"`
	Need  int64     `json:"need"`           // bytes that must be freed on the disk
	Path  string    `json:"path,omitempty"` // a directory of the disk; absent for a key's requests
}

// Publish is a port of the machine's loopback that leads to one of a sandbox.
type Publish struct {
	Port     int `json:"port"`                // inside
	HostPort int `json:"host_port,omitempty"` // the machine's; 0: the same where it is free, else one that is
}

// PublishedPort is how a Publish stands.
type PublishedPort struct {
	Port     int    `json:"port"`
	HostPort int    `json:"host_port"`
	Open     bool   `json:"open"`             // false while the sandbox does not run
	Reason   string `json:"reason,omitempty"` // why it is not open although the sandbox runs
}

// OpenedPort is the answer of POST /v1/sandboxes/{id}/ports/{port}/open.
type OpenedPort struct {
	// URL lets one browser in, once, until ExpiresAt: it is a secret.
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
	// SessionMillis is for how long that browser is let in then.
	SessionMillis int64 `json:"session_ms"`
}

// ChangeRequest is the body of PATCH /v1/sandboxes/{id}. What is left out stays as
// it is; a field that is not listed here is an error, and nothing is changed then.
type ChangeRequest struct {
	Limits ChangeLimits `json:"limits,omitzero"`
	// Network and Policy are as in a CreateRequest, and take the place of what there
	// is. "off" is a policy that lets nothing through, where there is a link.
	Network   string             `json:"network,omitempty"`
	Policy    *Policy            `json:"policy,omitempty"`
	Add       bool               `json:"add,omitempty"`    // the rules of Policy are added to those that there are
	TTLMillis *int64             `json:"ttl_ms,omitempty"` // milliseconds from now, and from each later start; 0: no end
	OnExpiry  string             `json:"on_expiry,omitempty"`
	Labels    map[string]*string `json:"labels,omitempty"` // null: the label goes
}

// ChangeLimits are the limits that can be changed. Zero stays as it is.
type ChangeLimits struct {
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"` // bytes
	PIDs   int64   `json:"pids,omitempty"`
	Disk   int64   `json:"disk,omitempty"` // bytes; no less than there are
}

// ChangeResult is the answer of PATCH /v1/sandboxes/{id}.
type ChangeResult struct {
	Sandbox Sandbox   `json:"sandbox"`
	Changes []Setting `json:"changes"`
}

// Setting is one thing that was set of a sandbox.
type Setting struct {
	What string `json:"what"` // cpus, memory, pids, disk, network, ttl, on_expiry, or "label" and its key
	From string `json:"from"`
	To   string `json:"to"`
	When string `json:"when"`           // "now" or "next start"
	Note string `json:"note,omitempty"` // why not now, or what does not follow yet
}

// Access says of a directory of a workspace, with what is below, whether it is read-only for what runs inside.
type Access struct {
	Path     string `json:"path"` // in the workspace; "." is all of it
	ReadOnly bool   `json:"read_only"`
}

// LockRequest is the body of POST /v1/sandboxes/{id}/workspace/lock, which makes directories of a workspace read-only for all
// that runs inside. What could go on writing there is in the way: 409, which names it, and nothing is changed.
type LockRequest struct {
	Paths      []string `json:"paths,omitempty"`       // directories of the workspace; none: all of it
	EndWriters bool     `json:"end_writers,omitempty"` // what is in the way is ended
}

// UnlockRequest is the body of POST /v1/sandboxes/{id}/workspace/unlock, which lets them be written to again.
type UnlockRequest struct {
	Paths []string `json:"paths,omitempty"` // as LockRequest has them
}

// LockResult is the answer of both.
type LockResult struct {
	Sandbox Sandbox  `json:"sandbox"`
	Ended   []Writer `json:"ended,omitempty"` // 16 at most
}

// Writer is a process that was in the way of a lock, as the sandbox says.
type Writer struct {
	PID     int    `json:"pid,omitempty"` // as those inside see it; absent: a client's transfer
	Program string `json:"program"`
	Path    string `json:"path"`
	// How is what it had of the path: "writes" and "maps" a file; "reaches", from before, a file or directory by which it could write;
	// "works in" and "rooted in" a directory; "passes" has a socket in which descriptors wait.
	How string `json:"how"`
}

// Process is one process inside a sandbox, as that says itself.
type Process struct {
	PID       int       `json:"pid"` // as those inside see it
	Parent    int       `json:"parent"`
	User      string    `json:"user"`
	State     string    `json:"state"`
	StartedAt time.Time `json:"started_at,omitzero"`
	CPUMillis int64     `json:"cpu_ms"`  // processor time, in milliseconds
	RSS       int64     `json:"rss"`     // bytes in memory
	Threads   int       `json:"threads"` // it has
	Command   string    `json:"command"` // and its arguments, the first 200 bytes
}

// Processes is the answer of GET /v1/sandboxes/{id}/processes.
type Processes struct {
	Processes []Process `json:"processes"` // by PID, 2,000 at most
	Total     int       `json:"total"`
}

// Usage is the answer of GET /v1/sandboxes/{id}/usage: what a running sandbox uses.
type Usage struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	CPUMillis int64     `json:"cpu_ms"`             // processor time since its start; -1: not counted
	CPULoad   float64   `json:"cpu_load,omitempty"` // where it is not: the share of its processors that was busy, from 0 to 1; -1: not known
	CPUs      float64   `json:"cpus"`               // it may use
	Memory    int64     `json:"memory"`             // bytes, the cache apart; -1: not known
	MemoryMax int64     `json:"memory_max"`
	// MemoryCache is bytes besides: what is kept of files, which the machine takes back when it needs them; -1: not known.
	MemoryCache int64  `json:"memory_cache"`
	PIDs        int    `json:"pids"` // processes and threads, as it says itself; -1: it did not
	PIDsMax     int64  `json:"pids_max"`
	Disk        int64  `json:"disk"` // bytes; of the machine's disk where the sandbox has none of its own
	DiskMax     int64  `json:"disk_max"`
	Sent        uint64 `json:"sent"` // bytes through its gate
	Received    uint64 `json:"received"`
	// Connections are those that are open through its gate. Where there are none, its
	// record has all that there was.
	Connections int `json:"connections,omitempty"`
}

// Held is the answer of GET /v1/sandboxes/{id}/held.
type Held struct {
	Bytes int64 `json:"bytes"` // of the host's disk that the sandbox takes, running or not
}

// Pending is one thing that was set and holds from the next start on.
type Pending struct {
	What string `json:"what"`
	To   string `json:"to"`
	Why  string `json:"why"` // it does not hold yet
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

// ChangesRequest is the body of POST /v1/sandboxes/{id}/changes: it selects what is streamed of
// the changes below /workspace. GET /v1/sandboxes/{id}/changes has a query in its place.
type ChangesRequest struct {
	Content bool     `json:"content,omitempty"` // file contents too, not just digests
	Paths   []string `json:"paths,omitempty"`   // only these and what is below them; none: all
	// Ignore are lines of a .gitignore, compared with paths to which Prefix is added:
	// what they ignore is left out, but for Tracked, and for a path of Paths that is
	// ignored itself. The stream's end says of how many files.
	Ignore  []string `json:"ignore,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`
	Tracked []string `json:"tracked,omitempty"`
	// Exclude and Only are patterns like those: what an Exclude matches is left out, and
	// what no Only matches, if there is one.
	Exclude []string `json:"exclude,omitempty"`
	Only    []string `json:"only,omitempty"`
	// Whole is for an apply: first all that directories show which were renamed inside is copied to the
	// sandbox's disk, so that it stays there when it is deleted here.
	Whole bool `json:"whole,omitempty"`
	// Hold, with Whole, keeps the commands of a sandbox that runs still until the answer is closed, after its last byte too, so
	// that they see what is applied meanwhile: for 20 s at most in all. One byte more says that they are about to go on.
	Hold bool `json:"hold,omitempty"`
	// Origins has the stream tell what each thing began as, also of what it leaves out; Selves what it is in
	// the sandbox, too, by which what was applied before is known again.
	Origins bool `json:"origins,omitempty"`
	Selves  bool `json:"selves,omitempty"`
}
