// Package quota holds a directory tree of the host to a size that no file
// system enforces: it counts what is there, before, after and while a command
// runs, and has the command stopped soon after it has passed the limit.
//
// The tree is its agent's and hostile. It is walked from an open directory by
// descriptors, never by the text of a path: symbolic links are not followed,
// other file systems not entered, and the walk is bounded in entries, in open
// descriptors and in memory. Sizes are what lstat says of all but directories;
// a file with several names counts once.
//
// This is a soft limit: what is written between two looks is written. A
// workspace whose size must not be passed is a file system of its own.
package quota

import (
	"fmt"
	"math"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// When a tree was looked at, as messages have it.
const (
	Before = "before execution"
	During = "after execution was stopped" // by who watched it: clients look for the first two words
	After  = "after execution"
	// Writing is while managed processes run.
	Writing = "while managed processes ran"
)

const (
	// DefaultEntries is how many entries a tree may have where no limit is set.
	DefaultEntries = 100_000
	// MaxEntries is the most that a limit may be.
	MaxEntries = 1_000_000
)

// Limits are what a tree may have.
type Limits struct {
	Bytes   int64 // 0: any number
	Entries int   // files, directories and all else; 0: DefaultEntries; at most MaxEntries
}

// Most is how many entries a tree may have.
func (l Limits) Most() int { return l.entries() }

// entries is the limit that holds.
func (l Limits) entries() int {
	if l.Entries <= 0 {
		return DefaultEntries
	}
	return min(l.Entries, MaxEntries)
}

// room is how many bytes a tree may still take.
func (l Limits) room(u Usage) int64 {
	if l.Bytes <= 0 {
		return math.MaxInt64
	}
	return l.Bytes - u.Bytes
}

// Usage is what a tree has. A scan that found too much stops there, so that
// each number is at least what it says.
type Usage struct {
	Bytes   int64
	Entries int
	// What was too much. Unsteady is a tree that is nested deeper than the scan
	// holds open, and was moved about meanwhile: it could not be counted, and
	// is over its entries.
	OverBytes, OverEntries, Unsteady bool
}

// Over reports whether a limit was passed.
func (u Usage) Over() bool { return u.OverBytes || u.OverEntries || u.Unsteady }

// ExceededError is the cause of what Check returns.
type ExceededError struct {
	When      string // Before, During, After or a time of the caller's
	Usage     Usage
	Limits    Limits
	HostPath  string
	SessionID string
}

// Error has the words that clients of sessions know.
func (e *ExceededError) Error() string {
	at := fmt.Sprintf("host_path=%s session_id=%s", e.HostPath, e.SessionID)
	switch {
	case e.Usage.OverBytes:
		return fmt.Sprintf("workspace quota exceeded %s: used=%d bytes limit=%d bytes %s", e.When, e.Usage.Bytes, e.Limits.Bytes, at)
	case e.Usage.Unsteady:
		return fmt.Sprintf("workspace entry limit exceeded %s: directories are nested deeper than %d and were moved while they were counted, %s", e.When, maxOpen, at)
	}
	return fmt.Sprintf("workspace entry limit exceeded %s: entries>%d %s", e.When, e.Limits.entries(), at)
}

// Check returns nil for a tree within its limits, and else a *sandbox.Error
// of kind Invalid with an *ExceededError as its cause.
func Check(when string, u Usage, l Limits, hostPath, sessionID string) error {
	if !u.Over() {
		return nil
	}
	e := &ExceededError{When: when, Usage: u, Limits: l, HostPath: hostPath, SessionID: sessionID}
	return (&sandbox.Error{Kind: sandbox.Invalid, Msg: e.Error(), Err: e}).
		WithHint("delete files below %s, or raise the session's workspace_quota_mb", hostPath)
}
