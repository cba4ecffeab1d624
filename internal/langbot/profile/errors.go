package profile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What went wrong, as the cause of a *sandbox.Error. Class tells a wire's code
// from them; each has a function below that makes such an error.
var (
	ErrNotFound        = errors.New("no such session")
	ErrProcessNotFound = errors.New("no such managed process")
	ErrProcessConflict = errors.New("the managed process is in the wrong state")
	ErrCapacity        = errors.New("a limit of the runtime was reached")
	ErrBackend         = errors.New("no wall is available")
	ErrRuntime         = errors.New("the runtime does not answer")
	ErrAdmission       = errors.New("no valid grant")
	ErrReadiness       = errors.New("the isolation that is asked for is not ready")
)

// ConflictError says in what a request differs from the session of its key. It
// is the cause of a *sandbox.Error of kind Conflict.
type ConflictError struct {
	Session string
	// Fields are all that differ, in the order of Conflicts. Empty where only a
	// message came over a wire.
	Fields []sessions.Difference
}

// Error names each field with both of its values.
func (e *ConflictError) Error() string {
	var parts []string
	for _, d := range e.Fields {
		parts = append(parts, fmt.Sprintf("%s=%s (asked for %s)", d.Field, show(d.Is), show(d.Asked)))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Box session %s already exists with another shape", e.Session)
	}
	return fmt.Sprintf("Box session %s already exists with %s", e.Session, strings.Join(parts, ", "))
}

// SessionNotFound is what is said of a session that is not there, or not the
// caller's.
func SessionNotFound(id string) *sandbox.Error {
	return because(sandbox.NotFound, ErrNotFound, "session %s not found", id).WithHint("carboy session ls")
}

// ProcessNotFound is what is said of a managed process that is not there.
func ProcessNotFound(id, process string) *sandbox.Error {
	return because(sandbox.NotFound, ErrProcessNotFound, "session %s has no managed process with process_id=%s", id, process)
}

// ProcessConflict is what is said of a managed process that can't do what is
// asked; what says why: "is not running".
func ProcessConflict(id, process, what string) *sandbox.Error {
	return because(sandbox.Conflict, ErrProcessConflict, "managed process %s of session %s %s", process, id, what)
}

// Conflict is what is said of a request that does not fit its session.
func Conflict(id string, fields []sessions.Difference) *sandbox.Error {
	c := &ConflictError{Session: id, Fields: fields}
	return because(sandbox.Conflict, c, "%s", c.Error()).
		WithHint("ask for what the session has, or delete it first: carboy session rm")
}

// SessionCapacity is what is said where no further session has room.
func SessionCapacity(limit int) *sandbox.Error {
	return because(sandbox.Exhausted, ErrCapacity, "Box session capacity reached (%d)", limit).
		WithHint("delete a session, or raise box.limits.max_sessions")
}

// Invalid is what is said of a request that can never work as written.
func Invalid(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// because is Errorf with a cause that the message does not have.
func because(k sandbox.Kind, cause error, format string, args ...any) *sandbox.Error {
	e := sandbox.Errorf(k, format, args...)
	e.Err = cause
	return e
}

// causes are the sentinels with their classes, and the kinds that they come
// back with over a wire. The first that an error has counts.
var causes = []struct {
	err   error
	class string
	kind  sandbox.Kind
}{
	{ErrNotFound, langbot.ClassSessionNotFound, sandbox.NotFound},
	{ErrProcessNotFound, langbot.ClassProcessNotFound, sandbox.NotFound},
	{ErrProcessConflict, langbot.ClassProcessConflict, sandbox.Conflict},
	{ErrCapacity, langbot.ClassCapacity, sandbox.Exhausted},
	{ErrBackend, langbot.ClassBackendUnavailable, sandbox.Unavailable},
	{ErrRuntime, langbot.ClassRuntimeUnavailable, sandbox.Unavailable},
	{ErrAdmission, langbot.ClassAdmission, sandbox.Denied},
	{ErrReadiness, langbot.ClassReadiness, sandbox.Unavailable},
}

// Class returns the class of an error, which is its code on every wire: that
// of its cause, or else of its kind. What a caller may not do (Denied) and what
// can't be done here (Unsupported) are faults of the request, as the original
// has them. What may work in a while (Unavailable) is nothing but an error: only
// ErrBackend says that there is no wall. "" is for nil.
func Class(err error) string {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return langbot.ClassSessionConflict
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	switch sandbox.KindOf(err) {
	case sandbox.Invalid, sandbox.Denied, sandbox.Unsupported:
		return langbot.ClassValidation
	case sandbox.Exhausted:
		return langbot.ClassCapacity
	default:
		return langbot.ClassError
	}
}

// FromClass is the reverse of Class, for the end of a wire that reads: an error
// with the kind and the cause that class stands for. A class that is not known
// is box.ClassError. Nothing of message is interpreted.
func FromClass(class, message string) error {
	e := &sandbox.Error{Kind: sandbox.Internal, Msg: message}
	switch class {
	case langbot.ClassValidation:
		e.Kind = sandbox.Invalid
	case langbot.ClassSessionConflict:
		e.Kind, e.Err = sandbox.Conflict, &ConflictError{}
	}
	for _, c := range causes {
		if class == c.class {
			e.Kind, e.Err = c.kind, c.err
		}
	}
	return e
}

// show writes a value of a request into a message: bounded, and quoted where it
// has anything that is not plain.
func show(v any) string {
	s, ok := v.(string)
	if !ok {
		return cut(fmt.Sprint(v))
	}
	if s == "" {
		return "none"
	}
	if q := fmt.Sprintf("%q", cut(s)); q != `"`+s+`"` {
		return q
	}
	return s
}

const maxShown = 200 // bytes of a value that a message has

func cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}
