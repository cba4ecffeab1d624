// Package fault is what can go wrong with a session: a cause for each case, by
// which a dialect tells them apart, and the errors that have them, with a text
// for people. It has no codes: those are a dialect's.
package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What went wrong, as the cause of a *sandbox.Error.
var (
	ErrNotFound        = errors.New("no such session")
	ErrProcessNotFound = errors.New("no such managed process")
	ErrProcessConflict = errors.New("the managed process is in the wrong state")
	ErrCapacity        = errors.New("a limit of the runtime was reached")
	ErrBackend         = errors.New("no wall is available")
)

// ConflictError says in what a request differs from the session of its key. It
// is the cause of a *sandbox.Error of kind Conflict.
type ConflictError struct {
	Session string
	// Fields are all that differ, in the order of request.Differences. Empty where
	// only a message came over a wire.
	Fields []sessions.Difference
}

// Error names each field with both of its values.
func (e *ConflictError) Error() string {
	var parts []string
	for _, d := range e.Fields {
		parts = append(parts, fmt.Sprintf("%s=%s (asked for %s)", d.Field, Show(d.Is), Show(d.Asked)))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("session %s already exists with another shape", e.Session)
	}
	return fmt.Sprintf("session %s already exists with %s", e.Session, strings.Join(parts, ", "))
}

// NotFound is what is said of a session that is not there, or not the caller's.
func NotFound(key string) *sandbox.Error {
	return Because(ErrNotFound, sandbox.NotFound, "session %s not found", key).WithHint("carboy session ls")
}

// ProcessNotFound is what is said of a managed process that is not there.
func ProcessNotFound(key, process string) *sandbox.Error {
	return Because(ErrProcessNotFound, sandbox.NotFound, "session %s has no managed process with process_id=%s", key, process)
}

// ProcessConflict is what is said of a managed process that can't do what is
// asked; what says why: "is not running".
func ProcessConflict(key, process, what string) *sandbox.Error {
	return Because(ErrProcessConflict, sandbox.Conflict, "managed process %s of session %s %s", process, key, what)
}

// Conflict is what is said of a request that does not fit its session.
func Conflict(key string, fields []sessions.Difference) *sandbox.Error {
	c := &ConflictError{Session: key, Fields: fields}
	return Because(c, sandbox.Conflict, "%s", c.Error()).
		WithHint("ask for what the session has, or delete it first: carboy session rm")
}

// Capacity is what is said where no further session has room.
func Capacity(limit int) *sandbox.Error {
	return Because(ErrCapacity, sandbox.Exhausted, "session capacity reached (%d)", limit).
		WithHint("delete a session, or raise box.limits.max_sessions")
}

// ProcessCapacity is what is said where no further managed process has room.
func ProcessCapacity(limit int) *sandbox.Error {
	return Because(ErrCapacity, sandbox.Exhausted, "managed process capacity reached (%d)", limit).
		WithHint("stop one, or raise box.limits.max_managed_processes")
}

// Invalid is what is said of a request that can never work as written.
func Invalid(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// Because returns an Error of a kind that has cause in its chain, and not in its
// message.
func Because(cause error, k sandbox.Kind, format string, args ...any) *sandbox.Error {
	e := sandbox.Errorf(k, format, args...)
	e.Err = cause
	return e
}

// Show writes a value of a request into a message: bounded, and quoted where it
// has anything that is not plain.
func Show(v any) string {
	s, ok := v.(string)
	if !ok {
		return Cut(fmt.Sprint(v))
	}
	if s == "" {
		return "none"
	}
	if q := fmt.Sprintf("%q", Cut(s)); q != `"`+s+`"` {
		return q
	}
	return s
}

const maxShown = 200 // bytes of a value that a message has

// Cut bounds a text of a request that a message has.
func Cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}
