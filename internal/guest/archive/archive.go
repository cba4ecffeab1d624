// Package archive turns a file or a directory into a tar stream, and a tar
// stream into files, inside the guest.
//
// It acts with whatever rights the calling thread has, which is the only
// guard for what is read; the caller runs it as the user who asked. What is
// written stays below one directory: absolute names, "..", names that lead
// through a link out of it and hard links to the outside are errors. Devices,
// fifos and sockets are never made, set-id bits never kept, sparse entries
// not read, since they declare more than is there. Ids, extended attributes
// and access times are not carried: everything belongs to who extracts it.
//
// Memory is bounded: whatever the tree or the stream holds, it takes a few
// buffers, one descriptor per level of a tree, and names within the limits
// below.
package archive

import (
	"errors"
	"fmt"
)

// Limits that hold whatever the options say.
const (
	maxName     = 4096    // bytes of a name or of a link's target
	maxDepth    = 512     // directories within each other that Create enters
	maxLinks    = 250_000 // files with several names that Create remembers at once
	maxSkips    = 1000    // things left out that a Result names
	maxDeferred = 250_000 // directories whose mode and time Extract sets at the end
	bufferSize  = 256 << 10
)

// MaxEntries is the default bound on the entries that Extract takes.
const MaxEntries = 10_000_000

// ErrUnsafe is the cause of an error for an entry that would leave the
// directory, or that no archive made in good faith holds.
var ErrUnsafe = errors.New("refused")

// ErrFormat is the cause of an error for a stream that is no tar archive, or
// one that was cut short.
var ErrFormat = errors.New("not a complete tar archive")

// Skip is something that was left out, or not done as asked, and why.
type Skip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Result says what went into or came out of an archive.
type Result struct {
	Entries int64  `json:"entries"` // without those skipped
	Bytes   int64  `json:"bytes"`   // of file contents
	Skipped []Skip `json:"skipped"` // the first 1000
	Left    int64  `json:"skipped_more,omitempty"`
}

func (r *Result) skip(name, format string, args ...any) {
	if len(r.Skipped) == maxSkips {
		r.Left++
		return
	}
	r.Skipped = append(r.Skipped, Skip{name, fmt.Sprintf(format, args...)})
}
