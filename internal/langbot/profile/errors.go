package profile

import (
	"errors"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// What went wrong beside what package fault has, as the cause of a
// *sandbox.Error. Class tells a wire's code from them.
var (
	ErrRuntime   = errors.New("the runtime does not answer")
	ErrAdmission = errors.New("no valid grant")
	ErrReadiness = errors.New("the isolation that is asked for is not ready")
)

// causes are the sentinels with their classes, and the kinds that they come
// back with over a wire. The first that an error has counts.
var causes = []struct {
	err   error
	class string
	kind  sandbox.Kind
}{
	{fault.ErrNotFound, langbot.ClassSessionNotFound, sandbox.NotFound},
	{fault.ErrProcessNotFound, langbot.ClassProcessNotFound, sandbox.NotFound},
	{fault.ErrProcessConflict, langbot.ClassProcessConflict, sandbox.Conflict},
	{fault.ErrCapacity, langbot.ClassCapacity, sandbox.Exhausted},
	{fault.ErrBackend, langbot.ClassBackendUnavailable, sandbox.Unavailable},
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
	if _, ok := errors.AsType[*fault.ConflictError](err); ok {
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
// is langbot.ClassError. Nothing of message is interpreted.
func FromClass(class, message string) error {
	e := &sandbox.Error{Kind: sandbox.Internal, Msg: message}
	switch class {
	case langbot.ClassValidation:
		e.Kind = sandbox.Invalid
	case langbot.ClassSessionConflict:
		e.Kind, e.Err = sandbox.Conflict, &fault.ConflictError{}
	}
	for _, c := range causes {
		if class == c.class {
			e.Kind, e.Err = c.kind, c.err
		}
	}
	return e
}

// Text is what an error of a session is in the original's words, for which each
// session is a Box's.
func Text(err *sandbox.Error) string {
	if _, ok := errors.AsType[*fault.ConflictError](error(err)); ok || errors.Is(err, fault.ErrCapacity) {
		return "Box " + err.Msg
	}
	return err.Msg
}
