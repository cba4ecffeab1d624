package sessions

// Defaults of a Spec.
const (
	// DefaultImage is the name by which LangBot's clients ask for the image that
	// the runtime is configured with.
	DefaultImage      = "rockchin/langbot-sandbox:latest"
	DefaultTimeoutSec = 30
	DefaultCPUs       = 1.0
	DefaultMemoryMB   = 512
	DefaultPIDs       = 128

	MinMemoryMB = 32
	// DefaultProcess is the ID of a managed process that is given none.
	DefaultProcess = "default"
)

// Modes of a session's network.
const (
	NetworkOff = "off"
	NetworkOn  = "on" // the public internet, through the sandbox's gate
)

// Modes of a mount.
const (
	MountNone     = "none" // not mounted
	MountReadOnly = "ro"
	MountWritable = "rw"
)

// What the end of a command's time does, as Spec.OnTimeout has it.
const (
	OnTimeoutKeep  = "keep"  // the command and all that it started end; the default
	OnTimeoutReset = "reset" // so does the session
)

// How a workspace's quota is to hold, as Spec.Quota has it.
const (
	QuotaAny  = ""     // hard where it can be, else soft
	QuotaHard = "hard" // by the file system; refused where it can't be
	QuotaSoft = "soft" // by looking; what a SessionInfo says where it is so
)

// Spec is one request: what the session is to be, and the command to run in it.
type Spec struct {
	SessionID  string            `json:"session_id"`
	Cmd        string            `json:"cmd"`     // for a shell
	Workdir    string            `json:"workdir"` // default: MountPath
	TimeoutSec int               `json:"timeout_sec"`
	Network    string            `json:"network"`
	Env        map[string]string `json:"env"` // of the command alone
	Image      string            `json:"image"`
	// HostPath is a directory of the runtime's host; "": the workspace is the
	// session's own.
	HostPath         string  `json:"host_path,omitempty"`
	HostPathMode     string  `json:"host_path_mode"`
	MountPath        string  `json:"mount_path"`
	ExtraMounts      []Mount `json:"extra_mounts"`
	SkillName        string  `json:"skill_name,omitempty"` // 1 to 64 letters, digits, - and _
	Persistent       bool    `json:"persistent"`           // never reaped for being idle
	CPUs             float64 `json:"cpus"`
	MemoryMB         int     `json:"memory_mb"`
	PIDsLimit        int     `json:"pids_limit"`
	ReadOnlyRootFS   bool    `json:"read_only_rootfs"`
	WorkspaceQuotaMB int     `json:"workspace_quota_mb"` // 0: none

	// What follows is ours.

	OnTimeout       string `json:"on_timeout,omitempty"`
	Quota           string `json:"quota,omitempty"`
	WorkspaceInodes int64  `json:"workspace_inodes,omitempty"` // files in the workspace; 0: as many as its size has room for
	Isolation       string `json:"isolation,omitempty"`        // a wall; "": as configured
}

// Mount is one further directory.
type Mount struct {
	HostPath  string `json:"host_path"`
	MountPath string `json:"mount_path"`
	Mode      string `json:"mode"`
}

// Profile has what a Spec that does not say gets, and what it may not say.
type Profile struct {
	Name             string   `json:"name"`
	Image            string   `json:"image"`
	Network          string   `json:"network"`
	TimeoutSec       int      `json:"timeout_sec"`
	HostPathMode     string   `json:"host_path_mode"`
	MaxTimeoutSec    int      `json:"max_timeout_sec"`
	CPUs             float64  `json:"cpus"`
	MemoryMB         int      `json:"memory_mb"`
	PIDsLimit        int      `json:"pids_limit"`
	ReadOnlyRootFS   bool     `json:"read_only_rootfs"`
	WorkspaceQuotaMB int      `json:"workspace_quota_mb"`
	Locked           []string `json:"locked,omitempty"` // JSON names of fields, sorted
}

// Adjustment says that a request got something else than it named. It is ours.
type Adjustment struct {
	Field  string `json:"field"`  // its JSON name
	Asked  any    `json:"asked"`  // as it was asked for
	Got    any    `json:"got"`    // what holds
	Reason string `json:"reason"` // "locked by profile offline_readonly", "at most 120 by profile default"
}
