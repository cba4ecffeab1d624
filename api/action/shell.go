package action

// The states of a shell and of a service.
const (
	Running = "running"
	Stopped = "stopped"
	// Failed and Restarting are a service's alone: it ended with another code than 0 or was
	// never ready; it has ended and is about to be started again.
	Failed     = "failed"
	Restarting = "restarting"
)

// OpenShellRequest starts an interactive shell on a terminal. The caller picks its id.
type OpenShellRequest struct {
	Action  string            `json:"action"`
	ShellID string            `json:"shell_id"`
	CWD     string            `json:"cwd"`
	Cols    int               `json:"cols"` // 1 to 1000; 0: 120
	Rows    int               `json:"rows"` // 1 to 1000; 0: 30
	Env     map[string]string `json:"env,omitempty"`
}

// ListRequest asks for all shells, or all services, by name.
type ListRequest struct {
	Action string `json:"action"`
}

// ShellRequest names a shell: status_shell and close_shell.
type ShellRequest struct {
	Action  string `json:"action"`
	ShellID string `json:"shell_id"`
}

// ReadShellRequest reads what a shell wrote from a cursor on, which is an offset in the raw
// stream: 0, or the next_cursor of a read before.
type ReadShellRequest struct {
	Action   string `json:"action"`
	ShellID  string `json:"shell_id"`
	Cursor   int64  `json:"cursor"`
	MaxChars int    `json:"max_chars"` // at most so many characters
	// Plain has colours and the like left out, and carriage returns and backspaces applied.
	Plain bool `json:"plain,omitempty"`
	// WaitForIdleMS waits until the shell has written nothing for so long, in milliseconds.
	WaitForIdleMS int `json:"wait_for_idle_ms,omitempty"`
	// WaitMS waits for so long until there is something at the cursor, in milliseconds.
	WaitMS int `json:"wait_ms,omitempty"`
	// Encoding is base64 for the bytes as they were written; max_chars then counts bytes.
	Encoding string `json:"encoding,omitempty"`
}

// ResizeShellRequest changes the size of a shell's terminal.
type ResizeShellRequest struct {
	Action  string `json:"action"`
	ShellID string `json:"shell_id"`
	Cols    int    `json:"cols"`
	Rows    int    `json:"rows"`
}

// ListShellsReply is all shells that are known, by their ids.
type ListShellsReply struct {
	Shells []Shell `json:"shells"`
}

// WriteShellRequest types something.
type WriteShellRequest struct {
	Action        string `json:"action"`
	ShellID       string `json:"shell_id"`
	Input         string `json:"input"`
	AppendNewline bool   `json:"append_newline"`
}

// SignalShellRequest signals what runs in a shell's foreground.
type SignalShellRequest struct {
	Action  string `json:"action"`
	ShellID string `json:"shell_id"`
	Signal  string `json:"signal"` // INT, TERM, HUP, QUIT, KILL
}

// Shell is a shell's state. Times are seconds since 1970.
type Shell struct {
	ShellID   string   `json:"shell_id"`
	CWD       string   `json:"cwd"`
	Cols      int      `json:"cols"`
	Rows      int      `json:"rows"`
	State     string   `json:"state"` // running or stopped
	StartedAt float64  `json:"started_at"`
	EndedAt   *float64 `json:"ended_at"`  // null while it runs
	ExitCode  *int     `json:"exit_code"` // likewise
}

// ReadShellReply is a part of what a shell wrote.
type ReadShellReply struct {
	Shell
	Cursor     int64  `json:"cursor"`      // where the output begins: later than was asked for where that is gone
	NextCursor int64  `json:"next_cursor"` // to go on from; no length says it
	Output     string `json:"output"`
	Truncated  bool   `json:"truncated"` // there is more by now, or what was asked for is gone
	Encoding   string `json:"encoding,omitempty"`
}

// WriteShellReply says how much was typed.
type WriteShellReply struct {
	Shell
	InputLength   int  `json:"input_length"` // in characters, without the newline
	AppendNewline bool `json:"append_newline"`
}

// SignalShellReply repeats the signal.
type SignalShellReply struct {
	Shell
	Signal string `json:"signal"`
}

// CloseShellReply is the end of a shell.
type CloseShellReply struct {
	Shell
	Closed bool `json:"closed"`
}
