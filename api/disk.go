package api

import "github.com/carboy-sandbox/carboy/api/action"

// DiskListing is what lies at a path of a stopped sandbox's disk.
type DiskListing struct {
	Entries []action.Entry `json:"entries"` // ordered by whole paths
	Notes   []string       `json:"notes"`   // what is left out, and why
}

// DiskNews is a line of the answer to a scrub. The last one has Scrubbed or Error.
type DiskNews struct {
	Step     string `json:"step,omitempty"` // copy, replay, remove, settle, erase, check or swap
	Done     uint64 `json:"done,omitempty"` // of Total, in parts of the step
	Total    uint64 `json:"total,omitempty"`
	Scrubbed bool   `json:"scrubbed,omitempty"`
	Error    *Error `json:"error,omitempty"`
}

// DiskExport says where a disk's image was copied to. What a listing of a disk and a file of it
// look like is action.Entry and action.ReadFileReply of api/action.
type DiskExport struct {
	OutputPath   string `json:"output_path"`
	DiskFormat   string `json:"disk_format"`   // ext4
	BytesWritten int64  `json:"bytes_written"` // the file's length, with its holes
}
