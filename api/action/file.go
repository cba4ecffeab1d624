package action

// ListFilesRequest lists a directory.
type ListFilesRequest struct {
	Action    string `json:"action"`
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

// ListFilesReply is what is there, by whole paths in order.
type ListFilesReply struct {
	Path    string  `json:"path"`
	Entries []Entry `json:"entries"`
}

// Entry is a file, a directory or a symbolic link.
type Entry struct {
	Path         string  `json:"path"`
	ArtifactType string  `json:"artifact_type"` // file, directory or symlink
	SizeBytes    int64   `json:"size_bytes"`    // 0 for a directory
	LinkTarget   *string `json:"link_target"`   // null unless it is a link
}

// ReadFileRequest reads the beginning of a file.
type ReadFileRequest struct {
	Action   string `json:"action"`
	Path     string `json:"path"`
	MaxBytes int64  `json:"max_bytes"`
}

// ReadFileReply is the beginning of a file.
type ReadFileReply struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"` // of the whole file
	MaxBytes  int64  `json:"max_bytes"`
	Content   string `json:"content"`
	Encoding  string `json:"encoding,omitempty"` // base64 where the content is no UTF-8
	Truncated bool   `json:"truncated"`
}

// WriteFileRequest makes a file, or replaces one.
type WriteFileRequest struct {
	Action string `json:"action"`
	Path   string `json:"path"`
	Text   string `json:"text"`
}

// WriteFileReply says what was written.
type WriteFileReply struct {
	Path         string `json:"path"`
	SizeBytes    int64  `json:"size_bytes"`
	BytesWritten int64  `json:"bytes_written"`
}
