package tools

// Limits of attachments.
const (
	MaxAttachmentBytes  = 10 << 20 // of one file
	MaxAttachments      = 20       // of one query, each way
	MaxAttachmentsTotal = 50 << 20 // bytes of them together

	OutboxEntries = 512 // names in an outbox, directories among them
	OutboxDirs    = 64
	OutboxDepth   = 8 // directories within each other
)

// Where attachments are, below a session's workspace; in each is a directory
// for each query.
const (
	InboxDir  = "inbox"
	OutboxDir = "outbox"
)

// Kinds of attachments.
const (
	KindImage = "Image"
	KindVoice = "Voice"
	KindFile  = "File"
)

// Attachment is one file that a user sends to an agent.
type Attachment struct {
	Name string `json:"name"`           // any text; it is cleaned
	Type string `json:"type,omitempty"` // a kind; "": by the name
	Data []byte `json:"base64"`
}

// AttachmentsIn is the body of POST /v1/sessions/{id}/attachments, which puts
// files where the agent finds them. Those of the same query that were there go.
type AttachmentsIn struct {
	QueryID string       `json:"query_id"` // letters, digits, . _ and -; not beginning with a dot
	Files   []Attachment `json:"files"`
}

// Delivered is one attachment as the agent finds it.
type Delivered struct {
	Path string `json:"path"` // inside
	Name string `json:"name"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

// AttachmentsDelivered is the answer.
type AttachmentsDelivered struct {
	Attachments []Delivered    `json:"attachments"`
	Skipped     []SkippedEntry `json:"skipped,omitempty"`
	Notices     []string       `json:"notices,omitempty"`
}

// SkippedEntry is a file that was left out, and why.
type SkippedEntry struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// CollectRequest is the body of POST /v1/sessions/{id}/attachments/collect,
// which takes what the agent left for the user, and empties its place.
type CollectRequest struct {
	QueryID string `json:"query_id"`
}

// Outbound is one file of an agent's.
type Outbound struct {
	Type string `json:"type"` // a kind, by the name's end
	Name string `json:"name"`
	// Base64 is the content: of an image or a voice as a data URL, of a file
	// alone.
	Base64 string `json:"base64"`
	Path   string `json:"path"` // below the outbox; ours
	Size   int64  `json:"size"` // ours
}

// Collected is the answer.
type Collected struct {
	Attachments []Outbound     `json:"attachments"`
	Skipped     []SkippedEntry `json:"skipped,omitempty"`
	Notices     []string       `json:"notices,omitempty"`
}

// Purged is the answer of DELETE /v1/sessions/{id}/attachments, which removes
// the inboxes and outboxes of all queries.
type Purged struct {
	Notices []string `json:"notices,omitempty"`
}
