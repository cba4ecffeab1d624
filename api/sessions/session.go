package sessions

import "time"

// How a command ended, as Result.Status has it.
const (
	StatusCompleted = "completed"
	StatusTimedOut  = "timed_out"
)

// Result is how a command ended.
type Result struct {
	SessionID   string `json:"session_id"`
	BackendName string `json:"backend_name"`
	Status      string `json:"status"`
	ExitCode    *int   `json:"exit_code"` // nil where its time was up
	// Stdout and Stderr are what is left of the output after its limits, bytes
	// that are no UTF-8 replaced: its first MiB and its last 256 KiB, with a note between
	// them where there was more.
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	DurationMS int64  `json:"duration_ms"`

	// What follows is ours.

	QueuedMS    int64  `json:"queued_ms"`               // of DurationMS, what it waited for the session's other commands
	StdoutBytes int64  `json:"stdout_bytes"`            // that it wrote
	StderrBytes int64  `json:"stderr_bytes"`            // likewise
	StdoutRaw   []byte `json:"stdout_base64,omitempty"` // what is left of them exactly, where Stdout is not
	StderrRaw   []byte `json:"stderr_base64,omitempty"`
	// StdoutLeftOut and StderrLeftOut are how many bytes the note stands for; 0: there is none.
	StdoutLeftOut int64        `json:"stdout_left_out,omitempty"`
	StderrLeftOut int64        `json:"stderr_left_out,omitempty"`
	Limits        []string     `json:"limits,omitempty"`   // it ran into: "memory", "pids", "disk", "inodes", "quota"
	Notices       []string     `json:"notices,omitempty"`  // what the user should know: a sandbox that was replaced
	Adjusted      []Adjustment `json:"adjusted,omitempty"` // what the profile changed
}

// ToolResult is how a command of a tool ended: a Result whose output is cut to
// what a model is shown.
type ToolResult struct {
	SessionID       string       `json:"session_id"`
	Backend         string       `json:"backend"`
	Status          string       `json:"status"`
	OK              bool         `json:"ok"` // completed, with exit code 0
	ExitCode        *int         `json:"exit_code"`
	Stdout          string       `json:"stdout"`
	Stderr          string       `json:"stderr"`
	StdoutTruncated bool         `json:"stdout_truncated"`
	StderrTruncated bool         `json:"stderr_truncated"`
	DurationMS      int64        `json:"duration_ms"`
	QueuedMS        int64        `json:"queued_ms"`
	StdoutBytes     int64        `json:"stdout_bytes"`
	StderrBytes     int64        `json:"stderr_bytes"`
	StdoutRaw       []byte       `json:"stdout_base64,omitempty"` // what Stdout shows, exactly, where that is no UTF-8
	StderrRaw       []byte       `json:"stderr_base64,omitempty"`
	Limits          []string     `json:"limits,omitempty"`
	Notices         []string     `json:"notices,omitempty"`
	Adjusted        []Adjustment `json:"adjusted,omitempty"`
}

// SessionInfo is a session as its owner sees it.
type SessionInfo struct {
	SessionID        string    `json:"session_id"`
	BackendName      string    `json:"backend_name"`
	BackendSessionID string    `json:"backend_session_id"` // the sandbox's ID
	Image            string    `json:"image"`
	Network          string    `json:"network"`
	HostPath         string    `json:"host_path,omitempty"`
	HostPathMode     string    `json:"host_path_mode"`
	MountPath        string    `json:"mount_path"`
	Persistent       bool      `json:"persistent"`
	CPUs             float64   `json:"cpus"`
	MemoryMB         int       `json:"memory_mb"`
	PIDsLimit        int       `json:"pids_limit"`
	ReadOnlyRootFS   bool      `json:"read_only_rootfs"`
	WorkspaceQuotaMB int       `json:"workspace_quota_mb"`
	CreatedAt        time.Time `json:"created_at"`
	LastUsedAt       time.Time `json:"last_used_at"`

	// Processes are the managed ones, by ID; Process is the one that is called
	// "default". Neither is there where there are none.
	Processes map[string]ProcessInfo `json:"managed_processes,omitempty"`
	Process   *ProcessInfo           `json:"managed_process,omitempty"`

	// What follows is ours.

	Owner     string `json:"owner,omitempty"`
	Quota     string `json:"quota,omitempty"` // QuotaHard or QuotaSoft; "": there is none
	Isolation string `json:"isolation,omitempty"`
	Active    int    `json:"active"`           // calls under way or waiting
	Asleep    bool   `json:"asleep,omitempty"` // stopped for being idle; its next call wakes it
	// Notices say what of it is otherwise than was asked: as long as it is there,
	// and what became of it in the answer to the call that found out.
	Notices []string `json:"notices,omitempty"`
}

// Difference is one field of a session that a request wants otherwise.
type Difference struct {
	Field string `json:"field"` // its JSON name
	Is    any    `json:"is"`
	Asked any    `json:"asked"`
}

// States of a managed process.
const (
	ProcessRunning = "running"
	ProcessExited  = "exited"
)

// ProcessSpec is a process that a session keeps, and whose input and output a
// client attaches to.
type ProcessSpec struct {
	ProcessID string            `json:"process_id"` // default: DefaultProcess
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	Cwd       string            `json:"cwd"`       // default: /workspace
	MemoryMB  int               `json:"memory_mb"` // 0: as the session has
}

// ProcessInfo is a managed process as its owner sees it: the names of its
// environment's variables alone.
type ProcessInfo struct {
	SessionID     string     `json:"session_id"`
	ProcessID     string     `json:"process_id"`
	Status        string     `json:"status"`
	Command       string     `json:"command"`
	Args          []string   `json:"args"`
	Cwd           string     `json:"cwd"`
	EnvKeys       []string   `json:"env_keys"` // sorted
	Attached      bool       `json:"attached"` // a relay reads it
	StartedAt     time.Time  `json:"started_at"`
	ExitedAt      *time.Time `json:"exited_at"`
	ExitCode      *int       `json:"exit_code"`
	StderrPreview string     `json:"stderr_preview"` // the newest of it, at most 4,000 characters

	Notices []string `json:"notices,omitempty"` // ours: what was asked for and is not so
}

// Backend is the wall that sessions are behind.
type Backend struct {
	Name      *string `json:"name"` // nil: none
	Available bool    `json:"available"`
	Reason    string  `json:"reason,omitempty"` // ours: why it is not available, and what to do
}

// Limits are what a runtime has room for.
type Limits struct {
	MaxSessions      int   `json:"max_sessions"`
	MaxProcesses     int   `json:"max_managed_processes"`
	MaxCompleted     int   `json:"max_completed_processes"`
	CompletedSec     int   `json:"completed_process_retention_sec"`
	MaxEntries       int   `json:"max_workspace_entries"`
	MaxAdmissions    int   `json:"max_admission_records"`
	MaxRPCFileBytes  int64 `json:"max_rpc_file_bytes"`
	MaxSleeping      int   `json:"max_sleeping"`
	SleepingKeepsSec int   `json:"sleeping_keeps_sec"`
}

// RuntimeStatus is what a runtime says of itself.
type RuntimeStatus struct {
	Backend        Backend `json:"backend"`
	ActiveSessions int     `json:"active_sessions"`
	Processes      int     `json:"managed_processes"` // that run
	SessionTTLSec  int     `json:"session_ttl_sec"`
	Limits         Limits  `json:"limits"`
}

// Status is what a service says of itself and of its runtime.
type Status struct {
	RuntimeStatus
	Available        bool   `json:"available"` // a sandbox can be had: the runtime answers, and its backend works
	Enabled          bool   `json:"enabled"`
	Profile          string `json:"profile"`
	RecentErrorCount int    `json:"recent_error_count"`
	ConnectorError   string `json:"connector_error,omitempty"` // why it is not available
}

// ErrorRecord is one of the newest errors of a service.
type ErrorRecord struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"` // a class
	Message   string    `json:"message"`
	QueryID   string    `json:"query_id"`
	SessionID string    `json:"session_id,omitempty"`
}
