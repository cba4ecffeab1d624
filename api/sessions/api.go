package sessions

// The API of sessions, which is ours. Where a path has {id}, that is the key
// of a session: as it is where it is made of letters, digits, "-", "_", "." and
// "@" alone and is neither "." nor ".."; else "~" and its base64url without
// padding.

// CreateRequest is the body of POST /v1/sessions, which makes or reuses a
// session and answers with a CreateResponse.
type CreateRequest struct {
	SessionID string `json:"session_id"`
	// Payload has fields of a Spec by their JSON names, but for session_id and
	// cmd. What is not there is the profile's.
	Payload map[string]any `json:"spec,omitempty"`
	Profile string         `json:"profile,omitempty"` // "": as configured
}

// CreateResponse is a session, and what its profile changed.
type CreateResponse struct {
	SessionInfo
	Adjusted []Adjustment `json:"adjusted,omitempty"`
}

// ExecRequest is the body of POST /v1/sessions/{id}/exec, which answers with a
// ToolResult.
type ExecRequest struct {
	Command string         `json:"command"`
	Payload map[string]any `json:"spec,omitempty"` // as in a CreateRequest
	Profile string         `json:"profile,omitempty"`
	// OutputLimit is how many characters of each stream are answered; 0: 4,000;
	// -1: all that is kept, which is 1 MiB.
	OutputLimit int `json:"output_limit,omitempty"`
}

// SessionList is the answer of GET /v1/sessions.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
}

// ErrorList is the answer of GET /v1/session-errors, oldest first. GET
// /v1/session-status answers with a Status.
type ErrorList struct {
	Errors []ErrorRecord `json:"errors"`
}

// SkillList is the answer of GET /v1/skills, and of POST /v1/skills, whose body
// is a zip archive and whose query says what of it: filename, source_subdir,
// source_path (more than once), target_suffix, and preview=1 for a look alone.
// GET and DELETE /v1/skills/{name} are about one.
type SkillList struct {
	Skills []Skill `json:"skills"`
}
