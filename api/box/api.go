package box

// The API of sessions, which is ours. POST /v1/sessions makes or reuses one
// and answers with a SessionInfo; GET /v1/sessions lists; GET and DELETE
// /v1/sessions/{id} are about one. {id} is the key, escaped.

// ExecRequest is the body of POST /v1/sessions/{id}/exec, which answers with a
// ToolResult. Payload has further fields of a Spec, by their JSON names; what is
// not there is the profile's.
type ExecRequest struct {
	Command string         `json:"command"`
	Payload map[string]any `json:"spec,omitempty"`
	Profile string         `json:"profile,omitempty"` // "": as configured
	// OutputLimit is how many characters of each stream are answered: 0: 4,000;
	// -1: all that is kept, which is 1 MiB.
	OutputLimit int `json:"output_limit,omitempty"`
}

// CreateRequest is the body of POST /v1/sessions.
type CreateRequest struct {
	SessionID string         `json:"session_id"`
	Payload   map[string]any `json:"spec,omitempty"`
	Profile   string         `json:"profile,omitempty"`
}

// SessionList is the answer of GET /v1/sessions.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
}

// ErrorList is the answer of GET /v1/sessions-errors, oldest first.
type ErrorList struct {
	Errors []ErrorRecord `json:"errors"`
}
