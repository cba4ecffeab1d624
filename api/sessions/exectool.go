package sessions

import (
	"github.com/carboy-sandbox/carboy/api/tools"
)

// ExecToolRequest is what an agent says of a command. It is no body of the API,
// which has an ExecRequest, but what a platform's service reads.
type ExecToolRequest struct {
	Command     string            `json:"command" jsonschema:"the shell command to run"`
	Workdir     string            `json:"workdir,omitempty" jsonschema:"the directory to run it in; by default /workspace"`
	TimeoutSec  int               `json:"timeout_sec,omitempty" jsonschema:"after how many seconds it is ended, with all that it started"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"further environment variables of this command"`
	Description string            `json:"description,omitempty" jsonschema:"what the command is for, in a few words"`
}

// ExecToolResult is how a command of the exec tool ended: each stream within
// tools.MaxToolBytes, and a preview of both.
type ExecToolResult struct {
	ToolResult
	Preview     string      `json:"preview"`
	Truncated   bool        `json:"truncated"` // of Stdout, Stderr or Preview
	TruncatedBy tools.Cause `json:"truncated_by,omitempty"`
}
