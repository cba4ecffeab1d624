// Package tools holds the wire types of a session's native tools, by which an agent
// reads, writes and searches files, and of attachments, which come from users and
// go to them. It has no logic, and reads and writes nothing.
package tools

import "encoding/json"

// The native tools: what an agent reads and changes files of its session with.
// Each is POST /v1/sessions/{id}/tools/{name}, whose body is the request here
// and whose answer is the result. What a tool could not do is a result with OK
// false, for the model to read, and not an error of the API. What a tag
// "jsonschema" says of a field is for the model, too: GET /v1/session-tools.
const (
	ToolExec  = "exec"
	ToolRead  = "read"
	ToolWrite = "write"
	ToolEdit  = "edit"
	ToolGlob  = "glob"
	ToolGrep  = "grep"
)

// Places inside.
const (
	// WorkspacePath is where the workspace is, unless it was asked for elsewhere.
	WorkspacePath = "/workspace"
	// SkillsPath is where packages of skills are, each below its name.
	SkillsPath = "/workspace/.skills"
)

// Limits of the native tools.
const (
	ReadLines     = 2000      // that a read answers by default
	MaxReadLines  = 10_000    // and at most
	MaxToolBytes  = 50 << 10  // of what a tool answers
	MaxDirEntries = 10_000    // of a directory that is read
	MaxWriteBytes = 10 << 20  // of what one write writes
	MaxEditBytes  = 1 << 20   // of a file that is edited, before and after
	MaxPattern    = 1024      // characters of a pattern
	GlobMatches   = 100       // that are answered, the newest
	GrepMatches   = 200       // that are answered
	GrepFiles     = 5000      // that are searched
	GrepLineChars = 500       // of a line that are answered
	GrepLineBytes = 1 << 20   // of a line that are searched
	GrepFileBytes = 10 << 20  // of a file that are searched
	GrepScanBytes = 50 << 20  // that are searched in all
	WalkEntries   = 100_000   // of directories that a search looks at
	WalkDepth     = 100       // directories within each other that it enters
	ReadScanBytes = 256 << 20 // that are passed over for a line far down
)

// Encodings of a file's content.
const (
	EncodingText   = "text"   // UTF-8; in answers, bytes that are none are replaced
	EncodingBase64 = "base64" // exact bytes
)

// What a write does to a file that is there.
const (
	WriteOverwrite = "overwrite"
	WriteAppend    = "append"
)

// Codes of a tool's failure. They are ours.
const (
	ToolInvalid    = "invalid"     // the request can't work as written
	ToolEscapes    = "escapes"     // the path leads out of the workspace, or through a link that does
	ToolNotFound   = "not_found"   // no such file
	ToolDenied     = "denied"      // the session's user may not
	ToolTooLarge   = "too_large"   // more than the tool handles
	ToolNoMatch    = "no_match"    // the text to replace is not there
	ToolAmbiguous  = "ambiguous"   // it is there more than once
	ToolNoSpace    = "no_space"    // the workspace is full
	ToolConflict   = "conflict"    // another writes to the file, or has replaced it
	ToolOutOfTime  = "out_of_time" // the tool's time was over
	ToolIncomplete = "incomplete"  // the file was changed in part: the error says how
	ToolFailed     = "failed"      // anything else
)

// Cause is why a result is not all there is; "" is null on the wire: it is.
type Cause string

// Causes.
const (
	ByLines   Cause = "lines"   // the read's limit
	ByBytes   Cause = "bytes"   // MaxToolBytes, or the read's limit
	ByEntries Cause = "entries" // MaxDirEntries
	ByMatches Cause = "matches" // GlobMatches or GrepMatches
	ByScan    Cause = "scan"    // WalkEntries, GrepFileBytes or GrepScanBytes
	ByFiles   Cause = "files"   // GrepFiles
	ByLine    Cause = "line"    // GrepLineChars or GrepLineBytes
	ByDepth   Cause = "depth"   // WalkDepth
	ByTime    Cause = "time"    // the time that a search may take
)

// MarshalJSON implements json.Marshaler.
func (c Cause) MarshalJSON() ([]byte, error) {
	if c == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(c))
}

// Failure is the part of each result that says whether the tool did it.
type Failure struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"` // why not, for the model
	Code  string `json:"code,omitempty"`  // ToolInvalid and so on
}

// ToolSpec is a native tool as a model is told of it.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // a JSON Schema of the request
}

// ToolList is the answer of GET /v1/session-tools: the native tools, and what a
// model is to be told of them. With ?query_id= it is told where files for the
// user go, too.
type ToolList struct {
	Tools    []ToolSpec `json:"tools"`
	Guidance string     `json:"guidance"`
}

// ReadRequest reads a file or lists a directory.
type ReadRequest struct {
	Path       string `json:"path" jsonschema:"the file or directory, relative to /workspace or below it"`
	Offset     int64  `json:"offset,omitempty" jsonschema:"the first line to read, from 1"`                                      // 0: 1
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines to read: by default 2000, at most 10000"`               // 0: ReadLines
	MaxBytes   int    `json:"max_bytes,omitempty" jsonschema:"how many bytes to read: by default 51200, which is also the most"` // 0: MaxToolBytes
	Encoding   string `json:"encoding,omitempty" jsonschema:"text, the default, or base64 for exact bytes"`                      // "": EncodingText
	ByteOffset int64  `json:"byte_offset,omitempty" jsonschema:"the first byte to read where the encoding is base64, from 0"`
}

// ReadResult is what was read. One of the three further parts is there.
type ReadResult struct {
	Failure
	Content     string `json:"content"`
	Truncated   bool   `json:"truncated"`
	TruncatedBy Cause  `json:"truncated_by"`
	MaxBytes    int    `json:"max_bytes,omitempty"` // as it held
	*TextRange
	*ByteRange
	*Listing
}

// TextRange says which lines of a text a ReadResult has.
type TextRange struct {
	StartLine  int64  `json:"start_line"`
	EndLine    int64  `json:"end_line"`    // StartLine-1: none
	NextOffset *int64 `json:"next_offset"` // nil: there is no more
	MaxLines   int    `json:"max_lines"`
	Replaced   bool   `json:"replaced,omitempty"` // bytes that are no UTF-8 were replaced; ours
}

// ByteRange says which bytes of a file a ReadResult has.
type ByteRange struct {
	Encoding       string `json:"encoding"` // EncodingBase64
	ByteOffset     int64  `json:"byte_offset"`
	Length         int    `json:"length"`
	SizeBytes      int64  `json:"size_bytes"` // of the file
	HasMore        bool   `json:"has_more"`
	NextByteOffset *int64 `json:"next_byte_offset"`
}

// Listing says that a ReadResult has the names in a directory, sorted, one a
// line.
type Listing struct {
	IsDirectory bool `json:"is_directory"`
	Total       int  `json:"total"` // of names that were read
}

// WriteRequest makes or changes a file, and the directories above it.
type WriteRequest struct {
	Path     string `json:"path" jsonschema:"the file, relative to /workspace or below it"`
	Content  string `json:"content" jsonschema:"what to write"`
	Encoding string `json:"encoding,omitempty" jsonschema:"of the content: text, the default, or base64"` // "": EncodingText
	Mode     string `json:"mode,omitempty" jsonschema:"overwrite, the default, or append"`                // "": WriteOverwrite
}

// WriteResult is what was written.
type WriteResult struct {
	Failure
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"` // of the file now; ours
	Created   bool   `json:"created"`    // it was not there before; ours
}

// EditRequest replaces a text that is in a file exactly once.
type EditRequest struct {
	Path      string `json:"path" jsonschema:"the file, relative to /workspace or below it"`
	OldString string `json:"old_string" jsonschema:"the text to replace, exactly as it is in the file, with enough around it to be there once"`
	NewString string `json:"new_string" jsonschema:"the text to put in its place"`
}

// EditResult is what was edited.
type EditResult struct {
	Failure
	Path string `json:"path"`
	Line int64  `json:"line"` // where the text began; ours
}

// GlobRequest looks for names. In a pattern "*" and "?" stand for what is
// within a name, "**" for any directories, [a-z] and [!a-z] for one character
// and {a,b} for either. A pattern is matched from its end: "*.go" finds such
// files in every directory.
type GlobRequest struct {
	Pattern string `json:"pattern" jsonschema:"the names to look for, from the end of the path: * and ? within a name, ** for any directories, [a-z], {a,b}"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to look in; by default /workspace"`
}

// GlobResult is what was found, the newest first. Directories such as .git and
// node_modules below Path are not entered.
type GlobResult struct {
	Failure
	Matches     []string `json:"matches"`
	Preview     string   `json:"preview"` // the matches, one a line
	Total       int      `json:"total"`
	Truncated   bool     `json:"truncated"`
	TruncatedBy Cause    `json:"truncated_by"`
	Searched
}

// GrepRequest looks for lines that match a regular expression of RE2.
type GrepRequest struct {
	Pattern string `json:"pattern" jsonschema:"a regular expression of RE2: it has no look-around and no back-references"`
	Path    string `json:"path,omitempty" jsonschema:"the file or directory to look in; by default /workspace"`
	Include string `json:"include,omitempty" jsonschema:"only in files with such names, as *.py"` // a pattern of GlobRequest; "": each file
}

// GrepMatch is one line.
type GrepMatch struct {
	File    string `json:"file"`
	Line    int64  `json:"line"` // from 1
	Content string `json:"content"`
}

// GrepResult is what was found.
type GrepResult struct {
	Failure
	Matches     []GrepMatch `json:"matches"`
	Total       int         `json:"total"` // of Matches
	Truncated   bool        `json:"truncated"`
	TruncatedBy Cause       `json:"truncated_by"`
	Searched
}

// Searched says what a search passed over. It is ours.
type Searched struct {
	Files      int      `json:"files,omitempty"`        // whose content was searched
	Binary     int      `json:"binary_files,omitempty"` // which were not
	Unreadable int      `json:"unreadable,omitempty"`   // files and directories that could not be opened
	Skipped    []string `json:"skipped_dirs,omitempty"` // names of directories that are never entered and that were met
}

// Outcome returns the part of a result that says whether the tool did it.
func (f *Failure) Outcome() *Failure { return f }
